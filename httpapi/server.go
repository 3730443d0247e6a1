// Package httpapi is the HTTP face over the gate. Today it is served on the gateway's own unix socket only, whose peers the
// kernel names.
//
//	POST /v1/tool-calls               one envelope in, one envelope out (HTC-02, HTC-03)
//	POST /v1/artifacts                the body becomes an artifact: a call of artifact.import with the bytes beside it
//	GET  /v1/artifacts/{id}/content   the bytes, once the gate has allowed artifact.get
//	GET  /healthz                     the process is alive
package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-chi/chi/v5"

	"slurmgate/fault"
	"slurmgate/gate"
)

// Contents opens the bytes of an artifact that the gate has already allowed.
type Contents interface {
	Open(sha256 string) (*os.File, error)
}

const (
	maxRequestBytes = 2 << 20
	readTimeout     = 30 * time.Second
)

// Handler is the face: every request becomes one gate call of the caller that auth knows.
func Handler(g *gate.Gate, contents Contents, auth gate.Authenticator) http.Handler {
	r := chi.NewRouter()
	r.Get("/healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	r.Group(func(r chi.Router) {
		r.Use(authenticate(auth))
		routes(r, g, contents)
	})
	return r
}

func routes(r chi.Router, g *gate.Gate, contents Contents) {
	r.Post("/v1/tool-calls", func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxRequestBytes))
		if err != nil {
			answer(w, g.RefuseRaw(req.Context(), callerOf(req.Context()), nil, err))
			return
		}
		answer(w, g.CallRaw(req.Context(), callerOf(req.Context()), body))
	})
	r.Post("/v1/artifacts", upload(g))
	r.Get("/v1/artifacts/{id}/content", func(w http.ResponseWriter, req *http.Request) {
		args, err := json.Marshal(map[string]string{"artifact_id": chi.URLParam(req, "id")})
		if err != nil {
			problem(w, err)
			return
		}
		res := g.Call(req.Context(), callerOf(req.Context()), gate.NewRequest("artifact.get", versionOf(g, "artifact.get"), args))
		if !res.OK {
			answer(w, res)
			return
		}
		var a struct {
			SHA256 string `json:"checksum_sha256"`
		}
		if err := json.Unmarshal(res.Result, &a); err != nil {
			problem(w, err)
			return
		}
		f, err := contents.Open(a.SHA256)
		if err != nil {
			problem(w, err)
			return
		}
		defer f.Close()
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, req, "", time.Time{}, f)
	})
}

// versionOf is the version the registry has of a tool. Of one it does not have the gate says so.
func versionOf(g *gate.Gate, toolID string) string {
	t, err := g.Registry().Find(toolID)
	if err != nil {
		return "0.0.0"
	}
	return t.Version
}

func answer(w http.ResponseWriter, res gate.Response) {
	status := http.StatusOK
	if res.Error != nil {
		status = res.Error.Fault().Kind.HTTPStatus()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(res) // the peer is gone if this fails
}

// problem answers what did not become a call (RFC 9457).
func problem(w http.ResponseWriter, err error) {
	kind := fault.KindOf(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(kind.HTTPStatus())
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "about:blank", "status": kind.HTTPStatus(), "title": string(kind), "code": fault.CodeOf(err), "detail": err.Error()})
}

// Server serves the face on a unix socket.
type Server struct {
	http *http.Server
	done chan error
}

// Listen serves h on the socket at path with the file mode: 0600, or 0666 where the site lets other users of this host in. Who
// a peer is, the kernel says; whether it may do anything, the handler's authenticator. A socket left by a dead gateway is replaced; the caller
// holds the gateway lock, so no living one can be there.
func Listen(path string, mode os.FileMode, h http.Handler, log *slog.Logger) (*Server, error) {
	fail := func(err error) (*Server, error) {
		return nil, fault.Wrap(fault.Internal, "httpapi.Listen", "socket", "cannot serve the socket "+path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fail(err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err)
	}
	// Made under a private name and then renamed: at its own name it always has its mode.
	temp := filepath.Join(filepath.Dir(path), ".s") // short: a socket path has at most 107 bytes (unix(7))
	_ = os.Remove(temp)
	l, err := net.Listen("unix", temp)
	if err != nil {
		return fail(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temp, mode), os.Rename(temp, path)); err != nil {
		l.Close()
		return fail(err)
	}
	s := &Server{done: make(chan error, 1), http: &http.Server{Handler: h, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ConnContext: peerContext}}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// Shutdown stops taking calls and waits for those under way.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	<-s.done
	return err
}
