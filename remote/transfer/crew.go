package transfer

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/pkg/sftp"
)

// span is a part of a file, and the buffer for its bytes.
type span struct {
	off int64
	buf []byte
}

// lane is one connection's part of a transfer.
type lane struct {
	slot *slot
	conn *conn // nil: none, or lost
	file *sftp.File
	i    int
	seen bool // the file was just examined and is regular

	syncing sync.Mutex
	mark    int64 // progress of the file at the last sync
}

// crew transfers the spans of one file over several connections.
type crew struct {
	lanes   []*lane
	chunk   int        // bytes of a request
	depth   int        // concurrent requests on each
	name    string     // of the file
	flags   int        // for opening it
	reads   bool       // spans are filled, not sent
	todo    chan *span // has room for all spans that exist at a time
	request func(c *conn, f *sftp.File, off int64, buf []byte) error
	done    func(l *lane, s *span) // a span was confirmed
	after   func(ctx context.Context, l *lane) error
	closed  chan struct{} // with todo
	gone    func(l *lane) // called when the lane's connection is lost: spans that are confirmed and not synced are in doubt
}

// newCrew returns a crew with a lane for each slot; the slots come from [Pool.choose].
func newCrew(slots []*slot) *crew {
	w := &crew{}
	for i, s := range slots {
		w.lanes = append(w.lanes, &lane{slot: s, i: i})
	}
	return w
}

// setDepth sets the number of concurrent requests on each lane, for a transfer of bytes bytes.
func (w *crew) setDepth(window int, bytes int64) {
	chunks := (bytes + int64(w.chunk) - 1) / int64(w.chunk)
	w.depth = int(max(1, min(int64(window/w.chunk), maxDepth, chunks)))
}

const maxDepth = 64

// start begins a round with room for its spans.
func (w *crew) start(spans int) {
	w.todo = make(chan *span, spans)
	w.closed = make(chan struct{})
}

// finish ends a round in which all requests have ended; lanes without a connection stop connecting.
func (w *crew) finish() {
	close(w.todo)
	close(w.closed)
}

// release closes the file on every lane.
func (w *crew) release() {
	for _, l := range w.lanes {
		l.slot.leave()
		if l.file != nil {
			background(l.file)
		}
	}
}

// openFile opens the file on the lane's connection unless it is open.
func (w *crew) openFile(ctx context.Context, l *lane) error {
	if l.file != nil {
		return nil
	}
	c, err := l.slot.get(ctx)
	if err != nil {
		return err
	}
	examine := w.reads && !l.seen
	l.seen = false
	f, err := ask(ctx, l.slot, c, func() (*sftp.File, error) {
		if examine {
			st, err := c.Lstat(w.name)
			switch {
			case err != nil:
				return nil, err
			case !st.Mode().IsRegular():
				return nil, notRegular()
			}
		}
		return c.OpenFile(w.name, w.flags)
	})
	if err != nil {
		if mayReturn(err) {
			l.slot.drop(c)
		}
		return err
	}
	l.conn, l.file = c, f
	return nil
}

// lose closes the lane's connection.
func (w *crew) lose(l *lane) {
	if l.conn != nil {
		l.slot.drop(l.conn)
		l.conn, l.file = nil, nil
		w.gone(l)
	}
}

// work transfers spans until todo is closed. It fails if the server refuses a request, or if no connection is left.
func (w *crew) work(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	errs := make(chan error, len(w.lanes))
	for _, l := range w.lanes {
		go func() { errs <- w.drive(ctx, l) }()
	}
	var fatal, last error
	worked := false
	for range w.lanes {
		err := <-errs
		switch {
		case err == nil:
			worked = true
		case fatal == nil && !mayReturn(err):
			fatal = err
			stop(err)
		default:
			last = err
		}
	}
	switch {
	case fatal != nil:
		return fatal
	case worked:
		return nil
	}
	return last
}

// drive works on one lane and reconnects it when its connection is lost.
func (w *crew) drive(ctx context.Context, l *lane) error {
	var losses backOff
	connecting, stop := context.WithCancel(ctx)
	defer stop()
	closed := w.closed
	go func() {
		select {
		case <-closed:
			stop()
		case <-connecting.Done():
		}
	}()
	for {
		err := w.openFile(connecting, l)
		if err == nil {
			var moved bool
			if moved, err = w.pump(ctx, l); err == nil {
				return nil
			}
			if moved {
				losses = 0
			}
		}
		if connecting.Err() != nil { // the end of the round, or of the transfer
			if mayReturn(err) {
				w.lose(l)
			}
			return ctx.Err()
		}
		if !mayReturn(err) {
			return err
		}
		w.lose(l)
		if !losses.wait(connecting, l.slot.pause) && ctx.Err() == nil && connecting.Err() == nil {
			return err
		}
	}
}

// pump transfers several spans concurrently on the lane's connection, until todo is closed or a request fails. A span
// without an answer returns to todo.
func (w *crew) pump(ctx context.Context, l *lane) (moved bool, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	failed := make(chan struct{})
	fail := func(e error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			err = e
			close(failed)
			if mayReturn(e) {
				l.slot.drop(l.conn) // which ends the other requests
			}
		}
	}
	for range w.depth {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					fail(ctx.Err())
					return
				case <-failed:
					return
				case s, open := <-w.todo:
					if !open {
						return
					}
					if e := w.carry(ctx, l, s); e != nil {
						w.todo <- s
						fail(e)
						return
					}
					mu.Lock()
					moved = true
					mu.Unlock()
					w.done(l, s)
					if e := w.after(ctx, l); e != nil {
						fail(e)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	return moved, err
}

// carry sends the request for a span.
func (w *crew) carry(ctx context.Context, l *lane, s *span) error {
	c, f, off, buf := l.conn, l.file, s.off, s.buf
	err := l.slot.call(ctx, c, func() error { return w.request(c, f, off, buf) })
	switch {
	case !errors.Is(err, errStalled):
	case w.reads: // the request may still use the buffer
		s.buf = make([]byte, len(buf))
	default:
		s.buf = slices.Clone(buf)
	}
	return err
}
