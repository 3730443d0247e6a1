package transfer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/fault"
)

// The record of a resumable upload is a file next to its temporary file. It is written after a sync, and holds the
// number of bytes that are durable:
//
//	<20 digits>\n
//
// The bytes after that offset may have holes, and are sent again.
const (
	recordSuffix = ".at"
	recordLen    = 21
)

// resumable reports whether a later upload of the same bytes may continue this one.
func (u *upload) resumable() bool { return u.file.SHA256 != "" && u.file.Size >= u.pool.tune.resume }

// reserve waits until no other upload of this pool uses the temporary name, and reserves it.
func (p *Pool) reserve(ctx context.Context, name string) (release func(), err error) {
	for {
		p.mu.Lock()
		used, taken := p.names[name]
		if !taken {
			mine := make(chan struct{})
			p.names[name] = mine
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.names, name)
				p.mu.Unlock()
				close(mine)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-used:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// opened is an open file with its connection.
type opened struct {
	conn *conn
	file *sftp.File
	from int64
}

// Close closes the file, if there is one.
func (o opened) Close() error {
	if o.file == nil {
		return nil
	}
	return o.file.Close()
}

// begin opens the temporary file on the first lane: that of an earlier upload, or a new one.
func (u *upload) begin(ctx context.Context) error {
	w, first := u.crew, u.crew.lanes[0]
	o, err := steady(ctx, first.slot, func(c *conn, _ bool) (opened, error) {
		if u.resumable() {
			if o, ok, err := u.found(c); ok || mayReturn(err) {
				return o, err
			}
			if err := c.Remove(u.temp + recordSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
				return opened{}, err // it would describe a file that no longer exists
			}
		}
		f, err := create(c, u.temp)
		if err != nil {
			return opened{}, err
		}
		if mode := u.file.Mode.Perm(); mode != 0 {
			if err := c.Chmod(u.temp, mode|ownerWrites); err != nil {
				return opened{}, err
			}
		}
		return opened{conn: c, file: f}, nil
	})
	if err != nil {
		return err
	}
	first.conn, first.file, u.from = o.conn, o.file, o.from
	for i, l := range w.lanes { // staggered, so that one syncs while the others send
		l.mark = u.from - int64(len(w.lanes)-1-i)*u.pool.tune.sync
	}
	w.name, w.flags, w.chunk = u.temp, os.O_WRONLY, o.conn.chunk
	w.setDepth(u.pool.tune.window, u.file.Size)
	w.request = func(c *conn, f *sftp.File, off int64, buf []byte) error {
		n, err := f.WriteAt(buf, off)
		if err == nil && n < len(buf) {
			return io.ErrUnexpectedEOF
		}
		return err
	}
	w.done, w.after, w.gone = u.done, u.after, u.gone
	u.free = make(chan []byte, w.depth*len(w.lanes))
	for range cap(u.free) {
		u.free <- nil
	}
	return nil
}

// ownerWrites is the permission that the temporary file needs, because each connection opens it.
const ownerWrites = 0o200

// create creates a new file. An existing file with this name is left from an earlier upload of ours.
func create(c *conn, name string) (*sftp.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	f, err := c.OpenFile(name, flags)
	if _, refused := errors.AsType[*sftp.StatusError](err); !refused {
		return f, err
	}
	if err := c.Remove(name); err != nil {
		if mayReturn(err) {
			return nil, err
		}
	}
	return c.OpenFile(name, flags)
}

// found opens the file of an earlier upload, if its record can be read and the file has at least the recorded length.
func (u *upload) found(c *conn) (o opened, ok bool, err error) {
	st, err := c.Lstat(u.temp)
	if err != nil || !st.Mode().IsRegular() {
		return o, false, err
	}
	r, err := c.Open(u.temp + recordSuffix)
	if err != nil {
		return o, false, err
	}
	defer r.Close()
	buf := make([]byte, recordLen)
	if _, err := r.ReadAt(buf, 0); err != nil && !errors.Is(err, io.EOF) {
		return o, false, err
	}
	from, err := strconv.ParseInt(strings.TrimSuffix(string(buf), "\n"), 10, 64)
	if err != nil || from <= 0 || from > st.Size() || st.Size() > u.file.Size {
		return o, false, nil
	}
	f, err := c.OpenFile(u.temp, os.O_WRONLY)
	if err != nil {
		return o, false, err
	}
	if err := f.Truncate(from); err != nil {
		background(f)
		return o, false, err
	}
	return opened{c, f, from}, true, nil
}

// prefix hashes the part of the source that an earlier upload has sent. With [File.ReadBack] that part is read back
// from the server; if its bytes differ, the upload starts again.
func (u *upload) prefix(ctx context.Context) error {
	if u.from == 0 {
		return nil
	}
	buf := make([]byte, 1<<20)
	for off := int64(0); off < u.from; {
		n, err := u.src.ReadAt(buf[:min(int64(len(buf)), u.from-off)], off)
		u.sum.Write(buf[:n]) // never fails
		if off += int64(n); off < u.from && err != nil {
			return u.sourceFault(err, off)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if !u.file.ReadBack {
		return nil
	}
	// It may grow: the server of the earlier upload may still be writing.
	left := File{Path: u.temp, Size: u.from, SHA256: hex.EncodeToString(u.sum.Sum(nil)), Grows: true}
	_, err := u.pool.Get(ctx, left, 0, nil, io.Discard)
	if !fault.Is(err, fault.Tool) {
		return err
	}
	first := u.crew.lanes[0]
	_, err = steady(ctx, first.slot, func(c *conn, _ bool) (struct{}, error) {
		err := c.Remove(u.temp + recordSuffix)
		if errors.Is(err, os.ErrNotExist) { // the answer to an earlier try was lost
			err = nil
		}
		return struct{}{}, err
	})
	if err != nil {
		return err
	}
	background(first.file)
	u.sum.Reset()
	return u.begin(ctx)
}

// note writes the record of what is durable.
func (u *upload) note(ctx context.Context, l *lane) error {
	if !u.resumable() {
		return nil
	}
	u.noting.Lock()
	defer u.noting.Unlock()
	upTo := u.durable()
	if upTo <= u.noted {
		return nil
	}
	c := l.conn
	err := l.slot.call(ctx, c, func() error {
		f, err := c.OpenFile(u.temp+recordSuffix, os.O_WRONLY|os.O_CREATE)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteAt(fmt.Appendf(nil, "%020d\n", upTo), 0); err != nil {
			return err
		}
		return f.Sync()
	})
	if err == nil {
		u.noted = upTo
	}
	return err
}

// publish checks the file's size, sets its mode and gives it its name.
func (u *upload) publish(ctx context.Context) error {
	first := u.crew.lanes[0]
	st, err := steady(ctx, first.slot, func(c *conn, _ bool) (fs.FileInfo, error) {
		if mode := u.file.Mode.Perm(); mode != 0 && mode&ownerWrites == 0 {
			if err := c.Chmod(u.temp, mode); err != nil {
				return nil, err
			}
		}
		if u.noted > 0 || u.from > 0 {
			if err := c.Remove(u.temp + recordSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
		return c.Lstat(u.temp)
	})
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() != u.file.Size {
		return fault.New(fault.Transport, CodeSize, // the server may show the right size later
			fmt.Sprintf("the server says that it has %d bytes after %d were written", st.Size(), u.file.Size))
	}
	_, err = steady(ctx, first.slot, func(c *conn, again bool) (struct{}, error) { return struct{}{}, u.rename(c, again) })
	return err
}

// rename gives the file its name. If the answer to an earlier try was lost and the temporary name is gone, that try
// succeeded: no other upload uses the name.
func (u *upload) rename(c *conn, again bool) error {
	var err error
	if _, posix := c.HasExtension("posix-rename@openssh.com"); posix {
		err = c.PosixRename(u.temp, u.file.Path)
	} else {
		err = c.Rename(u.temp, u.file.Path)
	}
	if err == nil || mayReturn(err) || !again {
		return err
	}
	if _, gone := c.Lstat(u.temp); !errors.Is(gone, os.ErrNotExist) {
		return err
	}
	st, there := c.Lstat(u.file.Path)
	if there != nil || st.Size() != u.file.Size {
		return err
	}
	return nil
}

// removalTime bounds the removal of an abandoned file.
const removalTime = 10 * time.Second

// discard removes what a later upload cannot continue, in one short try.
func (u *upload) discard(ctx context.Context, err error) {
	keep := u.resumable() && !fault.Is(err, fault.Validation) && fault.CodeOf(err) != CodeSize
	c := u.crew.lanes[0].slot.current()
	if keep || c == nil || u.temp == "" {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), removalTime)
	defer stop()
	_ = u.crew.lanes[0].slot.call(ctx, c, func() error { // a leftover file is recognizable by its name
		if u.resumable() {
			_ = c.Remove(u.temp + recordSuffix)
		}
		return c.Remove(u.temp)
	})
}
