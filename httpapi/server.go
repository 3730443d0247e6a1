package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
)

// Server serves the face on a unix socket, or on a port.
type Server struct {
	http  *http.Server
	addr  string
	relay *relay
	door  *door
	done  chan struct{} // closed when nothing is accepted any more

	mu         sync.Mutex
	endStreams func()
}

func start(l *door, handler http.Handler, endStreams func(), log *slog.Logger) *Server {
	r := newRelay(handler)
	h := &http.Server{Handler: r, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes,
		ConnContext: connContext, ConnState: l.state, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	s := &Server{http: h, addr: l.Addr().String(), relay: r, door: l, endStreams: endStreams, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the gateway is no longer served at an address", "address", s.addr, "err", err)
		}
	}()
	return s
}

// Addr returns the address at which a port listens, host:port.
func (s *Server) Addr() string { return s.addr }

// Shutdown refuses new requests, ends streams, and waits for the requests in progress until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	endStreams := s.endStreams
	s.mu.Unlock()
	endStreams()
	s.relay.end()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.done
	return err
}

// SocketConfig is the configuration of the socket.
type SocketConfig struct {
	Path   string
	Mode   os.FileMode // 0600, or 0666 where the site lets other users of this host in
	Limits Limits

	Known  func(uid int) bool // whether a user may connect; nil: everybody who can open the socket
	Turned func(uid, n int)   // called at most once a second for each user, with the number of rejected connections; may be nil
}

// Listen serves h on a unix socket. The kernel reports the peer; the handler's authenticator decides whether it may
// do anything. Only a socket left by a dead gateway of this user is replaced; anything else at its path is refused.
// endStreams ends the face's event streams; it is called at each shutdown.
func Listen(c SocketConfig, h http.Handler, endStreams func(), log *slog.Logger) (*Server, error) {
	path := c.Path
	fail := func(err error) (*Server, error) {
		return nil, fault.Wrap(fault.Internal, "socket", "cannot serve the socket "+path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fail(err)
	}
	// Made under a private name and then renamed: at its own name it always has its mode.
	temp := filepath.Join(filepath.Dir(path), ".s") // short: a socket path has at most 107 bytes (unix(7))
	for _, name := range []string{path, temp} {
		if err := removeStale(name); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", temp)
	if err != nil {
		return fail(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(temp, c.Mode), os.Rename(temp, path)); err != nil {
		l.Close()
		return fail(err)
	}
	d := &door{Listener: handListener{l.(*net.UnixListener)}, conns: newConns(c.Limits)}
	d.admit(c)
	return start(d, h, endStreams, log), nil
}

// setMode sets the socket's mode.
func setMode(c SocketConfig) error {
	if err := os.Chmod(c.Path, c.Mode); err != nil {
		return fault.Wrap(fault.Transport, "socket", "cannot change the mode of the socket "+c.Path, err)
	}
	return nil
}

// removeStale removes the socket of a dead gateway of this user. Anything else at path stays and is an error.
func removeStale(path string) error {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fault.Wrap(fault.Internal, "socket", "cannot examine "+path+", the place of the gateway's socket", err)
	}
	kind, isSocket := files.Kind(st.Mode), st.Mode&unix.S_IFMT == unix.S_IFSOCK
	if isSocket {
		kind += fmt.Sprintf(" of another user (uid %d)", st.Uid)
	}
	if !isSocket || int(st.Uid) != os.Geteuid() {
		return fault.New(fault.Validation, "socket_path", "the gateway cannot make its socket: "+path+" is "+kind).
			WithNext("set gateway.socket in the site file to a path where nothing else is, or move it away")
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		c.Close()
		return fault.New(fault.Conflict, "socket_in_use", "another program serves the socket "+path).
			WithNext("give each site file its own gateway.socket, or stop that program")
	case !errors.Is(err, unix.ECONNREFUSED): // for example EAGAIN: a process listens and is busy
		return fault.Wrap(fault.Conflict, "socket_in_use", "it is unknown whether another program serves the socket "+path,
			err).WithNext("stop that program, or set gateway.socket to another path")
	}
	if err := os.Remove(path); err != nil {
		return fault.Wrap(fault.Internal, "socket", "cannot remove the socket of a dead gateway, "+path, err)
	}
	return nil
}
