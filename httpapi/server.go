package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"slurmgate/fault"
)

// readTimeout bounds a request on the socket, whose peers are on this host.
const readTimeout = 30 * time.Second

// Server serves the face on a unix socket.
type Server struct {
	http       *http.Server
	endStreams func()
	done       chan error
}

// Listen serves h on the socket at path with the file mode: 0600, or 0666 where the site lets other users of this host in. Who
// a peer is, the kernel says; whether it may do anything, the handler's authenticator. A socket left by a dead gateway is replaced; the caller
// holds the gateway lock, so no living one can be there. endStreams ends the face's event streams; it is called at each shutdown.
func Listen(path string, mode os.FileMode, h http.Handler, endStreams func(), log *slog.Logger) (*Server, error) {
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
	s := &Server{endStreams: endStreams, done: make(chan error, 1), http: &http.Server{Handler: h, ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ConnContext: peerContext}}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

// Shutdown stops taking calls, ends streams, and waits for the calls under way.
func (s *Server) Shutdown(ctx context.Context) error {
	s.endStreams()
	err := s.http.Shutdown(ctx)
	<-s.done
	return err
}
