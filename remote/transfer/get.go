package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/pkg/sftp"

	"slurmgate/fault"
)

// download is the transfer of one file from the server.
type download struct {
	pool *Pool
	file File
	from int64
	crew *crew
	free chan []byte  // unused buffers of spans
	slot []chan *span // the received spans, by their place in the window
}

// Get writes the bytes of f, starting at byte from, to dst in order, and returns how many it wrote. After an error a
// caller may continue after them. They are also written to h, which must have the bytes before from; if h is nil, a new
// SHA-256 is used. At the end the sum must be f.SHA256, unless that is empty.
//
// A file of another size is a Tool fault with code transfer_size, other bytes are one with code transfer_checksum, and anything but a
// regular file is one with code transfer_irregular.
func (p *Pool) Get(ctx context.Context, f File, from int64, h hash.Hash, dst io.Writer) (n int64, err error) {
	if h == nil {
		h = sha256.New()
	}
	d := &download{pool: p, file: f, from: from, crew: newCrew(p.choose(f.Size - from))}
	defer d.crew.release()
	if err = d.begin(ctx); err == nil {
		n, err = d.run(ctx, io.MultiWriter(dst, h))
	}
	if err == nil && f.SHA256 != "" {
		if sum := hex.EncodeToString(h.Sum(nil)); sum != f.SHA256 {
			err = fault.New(fault.Tool, CodeSum, fmt.Sprintf("its bytes have checksum %s instead of %s", sum, f.SHA256))
		}
	}
	return n, explain(ctx, "read", f.name(), err)
}

// notRegular returns the fault of a file that is not regular. A file is examined before each opening, because opening a
// pipe would hang.
func notRegular() error { return fault.New(fault.Tool, CodeKind, "it is not a regular file") }

// begin examines the file before it opens it: a wrong size need not be read.
func (d *download) begin(ctx context.Context) error {
	w, first := d.crew, d.crew.lanes[0]
	type found struct {
		fs.FileInfo
		conn *conn
	}
	st, err := steady(ctx, first.slot, func(c *conn, _ bool) (found, error) {
		st, err := c.Lstat(d.file.Path)
		return found{st, c}, err
	})
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return notRegular()
	case st.Size() < d.file.Size || st.Size() > d.file.Size && !d.file.Grows:
		return fault.New(fault.Tool, CodeSize, fmt.Sprintf("it has %d bytes instead of %d", st.Size(), d.file.Size))
	}
	w.name, w.flags, w.chunk, w.reads = d.file.Path, os.O_RDONLY, st.conn.chunk, true
	first.seen = true
	w.setDepth(d.pool.tune.window, d.file.Size-d.from)
	w.request = func(c *conn, f *sftp.File, off int64, buf []byte) error { return readFull(f, off, buf, d.file.Size) }
	w.done = func(_ *lane, s *span) { d.slot[d.place(s.off)] <- s }
	w.after = func(context.Context, *lane) error { return nil }
	w.gone = func(*lane) {}
	window := w.depth * len(w.lanes)
	d.free = make(chan []byte, window)
	for range window {
		d.free <- nil
		d.slot = append(d.slot, make(chan *span, 1))
	}
	w.start(window)
	return nil
}

func (d *download) place(off int64) int {
	return int((off - d.from) / int64(d.crew.chunk) % int64(len(d.slot)))
}

// readFull fills buf. A closed channel of x/crypto/ssh reads like a file's end, so an end counts only if the server
// confirms it.
func readFull(f *sftp.File, off int64, buf []byte, size int64) error {
	n, err := f.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := f.Stat(); err != nil {
		return err
	}
	return fault.New(fault.Tool, CodeSize, fmt.Sprintf("it ends at byte %d of %d", off+int64(n), size))
}

// run writes the spans to dst in the file's order.
func (d *download) run(ctx context.Context, dst io.Writer) (written int64, err error) {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	worked := make(chan error, 1)
	go func() {
		worked <- d.crew.work(inner)
		stop()
	}()
	fed := make(chan struct{})
	go func() {
		d.feed(inner)
		close(fed)
	}()
	for off := d.from; off < d.file.Size && err == nil; {
		select {
		case s := <-d.slot[d.place(off)]:
			var n int
			n, err = dst.Write(s.buf)
			written += int64(n)
			off += int64(n)
			d.free <- s.buf
		case <-inner.Done():
			err = inner.Err()
		}
	}
	if err == nil { // all requests have ended
		<-fed
		d.crew.finish()
	} else {
		stop()
	}
	workErr := <-worked
	<-fed
	switch {
	case ctx.Err() != nil:
		return written, ctx.Err()
	case workErr != nil && !errors.Is(workErr, context.Canceled):
		return written, workErr
	}
	return written, err
}

// feed requests the spans in order, each as soon as there is a buffer and the bandwidth limit allows it.
func (d *download) feed(ctx context.Context) {
	for off := d.from; off < d.file.Size; {
		n := int(min(int64(d.crew.chunk), d.file.Size-off))
		var buf []byte
		select {
		case buf = <-d.free:
		case <-ctx.Done():
			return
		}
		if pace(ctx, d.pool.down, n) != nil {
			return
		}
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		d.crew.todo <- &span{off, buf[:n]}
		off += int64(n)
	}
}
