package rest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pool holds a bounded number of connections, each with one request at a time. No request is ever sent twice.
type pool struct {
	name string // of the server, in messages
	dial func(context.Context) (*conn, error)
	free chan struct{} // one for each connection that may still be opened or taken

	mu   sync.Mutex
	idle []*conn
	over bool
}

func newPool(name string, size int, dial func(context.Context) (*conn, error)) *pool {
	return &pool{name: name, dial: dial, free: make(chan struct{}, size)}
}

// take waits until a connection is free, or opens one.
func (p *pool) take(ctx context.Context) (*conn, error) {
	select {
	case p.free <- struct{}{}:
	case <-ctx.Done():
		return nil, unreached(p.name, ctx.Err())
	}
	for {
		k, over := p.newest()
		switch {
		case over:
			<-p.free
			return nil, unreached(p.name, errors.New("the gateway closes its connections"))
		case k == nil:
			k, err := p.dial(ctx)
			if err != nil {
				<-p.free
				return nil, err
			}
			return k, nil
		case k.quiet():
			return k, nil
		}
		k.Close() // the server has ended it
	}
}

func (p *pool) newest() (k *conn, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 && !p.over {
		k, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	return k, p.over
}

// put returns a connection to the pool, or closes it unless it is reusable.
func (p *pool) put(k *conn, reusable bool) {
	p.mu.Lock()
	if reusable && !p.over {
		p.idle = append(p.idle, k)
		k = nil
	}
	p.mu.Unlock()
	if k != nil {
		k.Close()
	}
	<-p.free
}

func (p *pool) drop(k *conn) { p.put(k, false) }

// close closes the idle connections, and each other one when its call ends.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.over = nil, true
	p.mu.Unlock()
	for _, k := range idle {
		k.Close()
	}
}

// conn is a connection to a server, or to a child process.
type conn struct {
	net.Conn
	raw  syscall.Conn  // the socket or pipe to poll
	says func() string // what the child printed on standard error; nil: there is no child

	proven proof
	from   *io.LimitedReader
	buf    *bufio.Reader
}

func newConn(rw net.Conn, raw syscall.Conn) *conn {
	k := &conn{Conn: rw, raw: raw, from: &io.LimitedReader{R: rw}}
	k.buf = bufio.NewReaderSize(k.from, 32<<10)
	return k
}

// obey ends reads and writes when ctx ends. stop reports whether ctx had no effect.
func (k *conn) obey(ctx context.Context) (stop func() bool) {
	end, _ := ctx.Deadline()
	k.SetDeadline(end)
	ended := context.AfterFunc(ctx, func() { k.SetDeadline(time.Unix(1, 0)) })
	stopped := false
	return func() bool {
		stopped = stopped || ended()
		return stopped
	}
}

// roundTrip writes the request and reads the header of its answer, of which at most limit bytes can be read. arrived
// reports that the server may have the whole request; without its last byte it does nothing.
func (k *conn) roundTrip(r *http.Request, limit int64) (resp *http.Response, arrived bool, err error) {
	var whole bytes.Buffer
	if err := r.Write(&whole); err != nil {
		return nil, false, err
	}
	k.from.N = limit + maxHeader
	if n, err := k.Write(whole.Bytes()); err != nil {
		return nil, n == whole.Len(), err
	}
	resp, err = http.ReadResponse(k.buf, r)
	return resp, true, err
}

// finished reports whether the answer has been read to its end and nothing follows.
func (k *conn) finished() bool { return k.buf.Buffered() == 0 && k.from.N > 0 }

// complaint returns what the child printed, as the end of a message.
func (k *conn) complaint() string {
	if k.says == nil {
		return ""
	}
	if s := k.says(); s != "" {
		return "; it printed: " + shown(s)
	}
	return ""
}

// quiet reports whether an idle connection is still open: there is nothing to read, not even its end.
func (k *conn) quiet() bool {
	quiet := false
	raw, err := k.raw.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		quiet = n == 0 && err == nil
	})
	return quiet && err == nil
}
