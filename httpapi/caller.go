package httpapi

import (
	"context"
	"net"
	"net/http"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/gate"
)

// A caller is known by the bearer token of its request, else by the kernel's word about the other end of the unix socket
// (SO_PEERCRED, unix(7)). A token always counts, so that a program on this host can act with less than its user may.

type peerKey struct{}

type callerKey struct{}

// peerContext notes the peer of a connection to a unix socket.
func peerContext(ctx context.Context, c net.Conn) context.Context {
	if u, ok := c.(*net.UnixConn); ok {
		if uid, err := peer(u); err == nil {
			return context.WithValue(ctx, peerKey{}, uid)
		}
	}
	return ctx
}

func authenticate(auth gate.Authenticator) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			who, err := whois(req, auth)
			if err != nil {
				w.Header().Set("WWW-Authenticate", "Bearer")
				problem(w, err)
				return
			}
			next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), callerKey{}, who)))
		})
	}
}

func whois(req *http.Request, auth gate.Authenticator) (gate.Caller, error) {
	uid, isPeer := req.Context().Value(peerKey{}).(int)
	who := gate.Caller{Transport: gate.Other}
	if isPeer {
		who.Transport = gate.Local
	}
	var err error
	switch given := req.Header.Values("Authorization"); {
	case len(given) == 1:
		scheme, token, _ := strings.Cut(given[0], " ")
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			return who, fault.New(fault.Auth, "httpapi", "unauthenticated", "the Authorization header is not a bearer token").WithNext("send Authorization: Bearer TOKEN")
		}
		who.Principal, err = auth.Bearer(req.Context(), token)
	case len(given) == 0 && isPeer:
		who.Principal, err = auth.Peer(uid)
	default:
		err = fault.New(fault.Auth, "httpapi", "unauthenticated", "the request says not who makes it").WithNext("send Authorization: Bearer TOKEN (slurmgate token create makes one)")
	}
	return who, err
}

// callerOf gives the caller that authenticate found.
func callerOf(ctx context.Context) gate.Caller {
	who, _ := ctx.Value(callerKey{}).(gate.Caller) // the zero caller may do nothing
	return who
}

func peer(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, credErr
	}
	return int(cred.Uid), nil
}
