package transfer

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/fault"
)

// slot holds one connection, which is opened when it is first needed and again after a loss.
type slot struct {
	open  func(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error)
	stall time.Duration
	pause time.Duration // after a loss
	chunk int           // bytes a request may carry when the server is OpenSSH
	busy  chan struct{} // held while the connection is opened
	users atomic.Int64  // transfers that use it

	kept bool // it stays open without a transfer

	mu     sync.Mutex
	conn   *conn
	closed bool
}

// conn is one SFTP channel.
type conn struct {
	*sftp.Client
	chunk    int  // bytes a request may carry
	syncs    bool // fsync@openssh.com is offered
	waiting  atomic.Int64
	answered atomic.Int64 // time of the last answer, or of the first request after a pause; Unix nanoseconds
}

// current returns the connection, or nil if absent.
func (s *slot) current() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}

// get returns the connection, and opens it if necessary.
func (s *slot) get(ctx context.Context) (*conn, error) {
	if c := s.current(); c != nil {
		return c, nil
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c := s.current(); c != nil { // opened meanwhile
		return c, nil
	}
	client, err := s.open(ctx, sftp.MaxPacketUnchecked(ChunkBytes))
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, dialError{err}
	}
	c := &conn{Client: client, chunk: min(otherChunkBytes, s.chunk)}
	if _, openssh := client.HasExtension("limits@openssh.com"); openssh {
		c.chunk = s.chunk
	}
	_, c.syncs = client.HasExtension("fsync@openssh.com")
	s.mu.Lock()
	s.conn = c
	closed := s.closed
	s.mu.Unlock()
	if closed {
		s.drop(c)
		return nil, fault.New(fault.Canceled, "closed", "the transfers have been closed")
	}
	s.rest()
	return c, nil
}

// idleTime is how long an additional connection stays open without a transfer.
const idleTime = time.Minute

// rest closes an additional connection that has been idle for idleTime.
func (s *slot) rest() {
	if c := s.current(); c != nil && !s.kept && s.users.Load() == 0 {
		time.AfterFunc(idleTime, func() {
			if s.users.Load() == 0 {
				s.drop(c)
			}
		})
	}
}

// leave ends a transfer's use of the slot.
func (s *slot) leave() {
	if s.users.Add(-1) == 0 {
		s.rest()
	}
}

// close closes the slot for good.
func (s *slot) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.drop(s.current())
}

// drop closes a failed connection, so that the next get opens another.
func (s *slot) drop(c *conn) {
	s.mu.Lock()
	current := c != nil && s.conn == c
	if current {
		s.conn = nil
	}
	s.mu.Unlock()
	if current {
		background(c.Client) // a server that reads nothing can block it; its requests fail, and nothing else is lost
	}
}

// background closes c without waiting, and ignores the error.
func background(c io.Closer) { go func() { _ = c.Close() }() }

// ask waits for f, which makes requests on the connection. When ctx ends it returns immediately and f continues: the
// caller must not reuse what f uses. The same holds if it returns errStalled: the connection did not answer for too
// long and was closed.
func ask[T any](ctx context.Context, s *slot, c *conn, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	if c.waiting.Add(1) == 1 {
		c.answered.Store(time.Now().UnixNano())
	}
	done := make(chan answer, 1)
	go func() {
		v, err := f()
		c.answered.Store(time.Now().UnixNano())
		c.waiting.Add(-1)
		done <- answer{v, err}
	}()
	silence := time.NewTimer(s.stall)
	defer silence.Stop()
	var none T
	for {
		select {
		case a := <-done:
			return a.value, a.err
		case <-ctx.Done():
			go func() { // close a handle that is no longer wanted
				a := <-done
				if c, ok := any(a.value).(io.Closer); ok && a.err == nil {
					_ = c.Close()
				}
			}()
			return none, ctx.Err()
		case <-silence.C:
			since := time.Since(time.Unix(0, c.answered.Load()))
			if since >= s.stall {
				s.drop(c)
				return none, errStalled
			}
			silence.Reset(s.stall - since)
		}
	}
}

// call is ask for requests without a result.
func (s *slot) call(ctx context.Context, c *conn, f func() error) error {
	_, err := ask(ctx, s, c, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

const (
	tries     = 6 // connections in a row without progress of a transfer
	longPause = 3 * time.Second
)

// backOff counts losses in a row.
type backOff int

// wait pauses before the next try, for first after the first loss. It returns false if there is no further try.
func (b *backOff) wait(ctx context.Context, first time.Duration) bool {
	if *b++; *b >= tries {
		return false
	}
	t := time.NewTimer(min(first<<(*b-1), longPause))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// steady calls f until it has an answer of the server. f must be safe to repeat, because the answer to an earlier call
// may have been lost; again reports that there was an earlier call.
func steady[T any](ctx context.Context, s *slot, f func(c *conn, again bool) (T, error)) (T, error) {
	var losses backOff
	for again := false; ; {
		var v T
		c, err := s.get(ctx)
		if err == nil {
			if v, err = ask(ctx, s, c, func() (T, error) { return f(c, again) }); err == nil || !mayReturn(err) {
				return v, err
			}
			again = true
			s.drop(c)
		}
		if !mayReturn(err) || !losses.wait(ctx, s.pause) {
			return v, err
		}
	}
}
