package signer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"slurmgate/fault"
)

// Server answers requests at the socket.
type Server struct {
	config  Config
	callers []int // user ids that may ask
	ca      *authority
	guard   guard
	rates   *limiter
	journal *journal
	log     *slog.Logger
	now     func() time.Time

	strangers, busy rate.Sometimes
	slots           map[int]chan struct{} // of each caller
	open            sync.WaitGroup
}

const (
	readTime  = 10 * time.Second // for a request to arrive, and for an answer to be taken
	signTime  = 15 * time.Second // for queries of users, the log and the signature
	atATime   = 64               // connections of one caller
	warnEvery = time.Minute
)

// New makes a server for a checked configuration: the CA's key can be used and the log can be written.
func New(ctx context.Context, c Config, users Directory, callers []int, log *slog.Logger) (*Server, error) {
	s := &Server{config: c, callers: callers, guard: guard{c, users}, rates: newLimiter(c.PerMinute, c.PerUserMinute),
		journal: &journal{path: c.Log}, log: log, now: time.Now, slots: map[int]chan struct{}{},
		strangers: rate.Sometimes{Interval: warnEvery}, busy: rate.Sometimes{Interval: warnEvery}}
	for _, uid := range callers {
		s.slots[uid] = make(chan struct{}, atATime)
	}
	var err error
	if s.ca, err = openAuthority(ctx, c.CA); err != nil {
		return nil, err
	}
	return s, s.journal.check()
}

// PublicKey returns the CA's line for TrustedUserCAKeys of sshd.
func (s *Server) PublicKey() string { return s.ca.line() }

// Serve answers until ctx ends, and then the connections that are open. It closes l.
func (s *Server) Serve(ctx context.Context, l *net.UnixListener) error {
	defer s.open.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for pause := time.Millisecond; ; {
		c, err := l.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // no more files, for example: the connections that end give them back
			s.log.Error("a connection cannot be accepted", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = time.Millisecond
		s.receive(ctx, c)
	}
}

// receive finds out who connected. It waits for nothing.
func (s *Server) receive(ctx context.Context, c *net.UnixConn) {
	uid, err := peer(c)
	if err != nil || !slices.Contains(s.callers, uid) {
		s.strangers.Do(func() {
			s.log.Warn("a user who is not in gateway_users asked for a certificate", "uid", uid, "err", err)
		})
		s.finish(c, answer{Error: failureOf(fault.New(fault.Transport, Misfit, fmt.Sprintf("the signer accepts no requests of user id %d", uid)).
			WithNext("name the gateway's user in gateway_users of the signer's configuration and restart the signer"))})
		return
	}
	select {
	case s.slots[uid] <- struct{}{}:
	default:
		s.finish(c, answer{Error: failureOf(busy(fmt.Sprintf("all %d connections to the signer are in use", atATime), time.Second))})
		return
	}
	s.open.Go(func() {
		defer func() { <-s.slots[uid] }()
		s.finish(c, s.answer(context.WithoutCancel(ctx), c, uid))
	})
}

// finish sends an answer and ends the connection. A client that does not read it gets none.
func (s *Server) finish(c *net.UnixConn, a answer) {
	defer c.Close()
	data, err := line(a)
	if err == nil {
		err = errors.Join(c.SetWriteDeadline(time.Now().Add(readTime)), second(c.Write(data)))
	}
	if err != nil {
		s.log.Debug("an answer was not sent", "err", err)
	}
}

func second(_ int, err error) error { return err }

// answer reads the request and answers it.
func (s *Server) answer(ctx context.Context, c *net.UnixConn, uid int) answer {
	if err := c.SetReadDeadline(time.Now().Add(readTime)); err != nil {
		return answer{Error: failureOf(misfit(err.Error()))}
	}
	data, err := readLine(c)
	if err != nil {
		return answer{Error: failureOf(misfit("no request of one line arrived: " + err.Error()))}
	}
	ctx, stop := context.WithTimeout(ctx, signTime)
	defer stop()
	a, err := s.handle(ctx, data, uid)
	if err != nil {
		a = answer{Error: failureOf(err)}
	}
	return a
}

// peer returns the user at the other end of a unix socket.
func peer(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err != nil {
		return -1, err
	}
	return int(cred.Uid), nil
}

// failureOf returns an error in the form of the socket's protocol.
func failureOf(err error) *failure {
	msg, next, _ := strings.Cut(fault.Prose(err), ". Next: ")
	return &failure{Code: fault.CodeOf(err), Message: msg, Next: next, Retry: fault.RetryOf(err)}
}
