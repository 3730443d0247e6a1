package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/gate"
)

// A caller is known by the bearer token of its request, else by the kernel's word about the other end of the unix socket
// (SO_PEERCRED, unix(7)). A token always counts, so that a program on this host can act with less than its user may.

type peerKey struct{}

type callerKey struct{}

type heldKey struct{} // the context that ends with the caller's credentials

// authenticate finds the caller of a request, or refuses it in the form of the path. A failed login is answered the
// later the more of them came from its address; good credentials are never delayed.
func (f *face) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		who, err := f.whois(req)
		if err != nil {
			from := sourceOf(req)
			e, n, d := f.failures.add(from)
			if worthALine(n) {
				logRefused(f.Log, who, reasonOf(req, err), err)
			}
			if !f.failures.pause(req.Context(), e, d) {
				w.Header().Set("Connection", "close")
			}
			leaveBody(w, req)
			w.Header().Set("WWW-Authenticate", f.challenge(req))
			f.unheard(w, req, f.Gate.Refuse(gate.Source{Transport: who.Transport, From: from, Face: who.Face, Address: who.Address}, err))
			return
		}
		if c, ok := req.Context().Value(connKey{}).(*conn); ok {
			if err := c.belongs(who.Key()); err != nil {
				leaveBody(w, req)
				w.Header().Set("Connection", "close")
				problem(w, err)
				return
			}
		}
		ctx := req.Context()
		if f.While != nil {
			held, stop := f.While(ctx, who.Principal)
			defer stop()
			if held != ctx {
				ctx = context.WithValue(held, heldKey{}, held)
				who.Ended = func() error { return ended(held) }
			}
		}
		next.ServeHTTP(w, req.WithContext(context.WithValue(ctx, callerKey{}, who)))
	})
}

// Held returns ctx so that it also ends when the credentials of the request that it has its values from do.
func Held(ctx context.Context) (_ context.Context, stop func()) {
	held, ok := ctx.Value(heldKey{}).(context.Context)
	if !ok {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	leave := context.AfterFunc(held, cancel)
	return ctx, func() { leave(); cancel() }
}

// ended returns why the context of a request ended, if its caller's credentials ended or its caller sends the same
// upload again.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	if why := context.Cause(ctx); fault.Is(why, fault.Auth) || fault.CodeOf(why) == uploadReplaced {
		return why
	}
	return nil
}

// unheard answers a request that was refused before it became a call, in the form its path answers in.
func (f *face) unheard(w http.ResponseWriter, req *http.Request, res gate.Response) {
	switch {
	case req.URL.Path == "/v1/tool-calls":
		answer(w, res)
	case strings.HasPrefix(req.URL.Path, "/v1/tools/") && strings.HasSuffix(req.URL.Path, ":run"):
		id := strings.TrimSuffix(strings.TrimPrefix(req.URL.Path, "/v1/tools/"), ":run")
		writeRun(w, id, statusOf(res), res)
	default:
		failed(w, res)
	}
}

// malformed answers a request of a known caller that is no call of the tool, with a status of HTTP's own. It is recorded as one.
func (f *face) malformed(w http.ResponseWriter, req *http.Request, toolID string, status int, err error) {
	p := failure(f.Gate.Malformed(req.Context(), CallerOf(req.Context()), toolID, err))
	p.Status = status
	writeProblem(w, p)
}

// sourceOf returns the origin of a request: the user at the other end of the socket, or an address. The addresses of
// an IPv6 network of 64 bits are one source, since a client with one of them has all.
func sourceOf(req *http.Request) string {
	if uid, isPeer := req.Context().Value(peerKey{}).(int); isPeer {
		return userSource(uid)
	}
	return addressOf(clientOf(req))
}

func userSource(uid int) string { return fmt.Sprint("uid:", uid) }

func addressOf(addr netip.Addr) string {
	if !addr.IsValid() {
		return "unknown"
	}
	if network, err := addr.Prefix(64); addr.Is6() && err == nil {
		return network.String()
	}
	return addr.String()
}

// RefuseAtTheDoor records a request that is not meant for this gateway.
func RefuseAtTheDoor(g *gate.Gate) func(*http.Request, error) {
	return func(req *http.Request, err error) {
		how, from := originOf(req)
		g.Refuse(gate.Source{Transport: gate.Other, From: sourceOf(req), Face: how, Address: from}, err)
	}
}

// FaceHeader is the header in which the shell, and the chat face on standard input and output, name themselves: their
// calls come through the socket and are recorded under their own face. It is accepted only from peers, and gives no
// right.
const FaceHeader = "Slurmgate-Face"

// SpanHeader names the span of the caller's that a call is part of. Without it the parent of the W3C header traceparent counts.
const SpanHeader = "Slurmgate-Parent-Span"

func parentSpan(h http.Header) string {
	if span := h.Get(SpanHeader); span != "" {
		return span
	}
	if parts := strings.Split(h.Get("Traceparent"), "-"); len(parts) >= 4 && len(parts[2]) == 16 {
		return parts[2]
	}
	return ""
}

func (f *face) whois(req *http.Request) (gate.Caller, error) {
	uid, isPeer := req.Context().Value(peerKey{}).(int)
	who := gate.Caller{Transport: gate.Other, ParentSpanID: parentSpan(req.Header)}
	who.Face, who.Address = originOf(req)
	switch {
	case req.URL.Path == "/mcp", isPeer && req.Header.Get(FaceHeader) == string(gate.MCP):
		who.Transport = gate.MCP
	case isPeer:
		who.Transport = gate.Local
	}
	if isPeer && f.Admit != nil {
		if err := f.Admit(req.Context(), uid); err != nil {
			return who, err
		}
	}
	var err error
	switch given := req.Header.Values("Authorization"); {
	case len(given) == 1:
		scheme, token, _ := strings.Cut(given[0], " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			return who, fault.New(fault.Auth, "unauthenticated", "the Authorization header is not a bearer token").
				WithNext("send a bearer token in the header Authorization")
		}
		who.Principal, err = f.Auth.Bearer(req.Context(), token)
	case len(given) == 0 && isPeer:
		who.Principal, err = f.Auth.Peer(uid)
	default:
		err = fault.New(fault.Auth, "unauthenticated", "no credentials in the request").
			WithNext("send a bearer token in the header Authorization; create a token").WithSteps(fault.Do("token.create"))
	}
	return who, err
}

// CallerOf returns the caller of a request that the face has let in; the zero caller, who may do nothing, of any other.
func CallerOf(ctx context.Context) gate.Caller {
	who, _ := ctx.Value(callerKey{}).(gate.Caller)
	return who
}

// peer returns the user and the process at the other end of a unix socket.
func peer(c syscall.Conn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, 0, err
	}
	if credErr != nil {
		return 0, 0, credErr
	}
	return int(cred.Uid), int(cred.Pid), nil
}
