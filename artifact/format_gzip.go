package artifact

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// bgzfEnd is the empty block at the end of every BGZF file (SAM specification, 4.1.2).
const bgzfEnd = "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x06\x00\x42\x43\x02\x00\x1b\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"

var (
	errCut      = errors.New("it is cut short: the gzip data end in the middle")
	errNoMarker = errors.New("it is cut short: the BGZF end marker is missing")
)

// gzipExtra is the extra field of a gzip header; nil when there is none or it is not all there.
func gzipExtra(b []byte) []byte {
	if len(b) < 12 || !bytes.HasPrefix(b, []byte(magicGzip)) || b[3]&4 == 0 {
		return nil
	}
	n := int(binary.LittleEndian.Uint16(b[10:]))
	if len(b) < 12+n {
		return nil
	}
	return b[12 : 12+n]
}

// bgzfWalk goes from block to block of a BGZF file without inflating any:
//
//	1f 8b 08 04  mtime(4) xfl os  xlen(2)  extra(xlen), with 'B' 'C' 2 0 BSIZE(2)  data; the block has BSIZE+1 bytes
type bgzfWalk struct {
	at     int64  // bytes before the current block
	header []byte // of the current block, until its size is known
	left   int64  // bytes of the current block still to come
	tail   tail
}

func (w *bgzfWalk) write(p []byte) error {
	w.tail.keep(p, len(bgzfEnd))
	for len(p) > 0 {
		if w.left > 0 {
			n := min(w.left, int64(len(p)))
			w.left -= n
			p = p[n:]
			continue
		}
		want := 12
		if len(w.header) >= 12 {
			want += int(binary.LittleEndian.Uint16(w.header[10:]))
		}
		n := min(want-len(w.header), len(p))
		w.header = append(w.header, p[:n]...)
		p = p[n:]
		if err := w.block(); err != nil {
			return err
		}
	}
	return nil
}

// block looks at the header of a block as far as it is there.
func (w *bgzfWalk) block() error {
	errNoBlock := fmt.Errorf("the data at byte %d are not a BGZF block", w.at)
	if w.at == 0 {
		errNoBlock = errors.New("its first bytes are not a BGZF block")
	}
	if n := min(len(w.header), 4); string(w.header[:n]) != bgzfEnd[:n] {
		return errNoBlock
	}
	if len(w.header) < 12 || len(w.header) < 12+int(binary.LittleEndian.Uint16(w.header[10:])) {
		return nil
	}
	size := bgzfSize(w.header[12:])
	if size < int64(len(w.header))+8 {
		return errNoBlock
	}
	w.left = size - int64(len(w.header))
	w.at += size
	w.header = w.header[:0]
	return nil
}

func (w *bgzfWalk) end() error {
	switch {
	case w.left > 0 || len(w.header) > 0:
		return errors.New("it is cut short: the last BGZF block is not whole")
	case string(w.tail.b) != bgzfEnd:
		return errNoMarker
	}
	return nil
}

// bgzfSize is the size of the block with this extra field; 0 when it names none.
func bgzfSize(extra []byte) int64 {
	for len(extra) >= 4 {
		n := int(binary.LittleEndian.Uint16(extra[2:]))
		if len(extra) < 4+n {
			return 0
		}
		if extra[0] == 'B' && extra[1] == 'C' && n == 2 {
			return int64(binary.LittleEndian.Uint16(extra[4:])) + 1
		}
		extra = extra[4+n:]
	}
	return 0
}

// isBGZF looks for the BC subfield of the blocked gzip format (SAM specification, 4.1).
func isBGZF(extra []byte) bool { return bgzfSize(extra) > 0 }

// bamWalk is a bgzfWalk that inflates the beginning of the first block.
type bamWalk struct {
	blocks bgzfWalk
	first  []byte
	done   bool
}

func (w *bamWalk) write(p []byte) error {
	if !w.done {
		w.first = append(w.first, p[:min(len(p), HeadBytes-len(w.first))]...)
		if len(w.first) == HeadBytes {
			if err := w.magic(); err != nil {
				return err
			}
		}
	}
	return w.blocks.write(p)
}

func (w *bamWalk) magic() error {
	w.done = true
	if !isBGZF(gzipExtra(w.first)) {
		return errors.New("its first bytes are not a BGZF block")
	}
	var got [4]byte
	zr, err := gzip.NewReader(bytes.NewReader(w.first))
	if err == nil {
		_, err = io.ReadFull(zr, got[:])
	}
	if err != nil || string(got[:]) != "BAM\x01" {
		return errors.New("the first BGZF block does not begin with BAM's magic number")
	}
	w.first = nil
	return nil
}

func (w *bamWalk) end() error {
	if !w.done {
		if err := w.magic(); err != nil {
			return err
		}
	}
	return w.blocks.end()
}

// Bounds of what is inflated for a check.
const (
	leastInflated   = 1 << 30 // inflated bytes of any file
	inflatedAllowed = 200     // times its size, of a file that is checked in full
)

var errBomb = fmt.Errorf("it inflates to more than %d times its size", inflatedAllowed)

// inflater inflates in a goroutine of its own, which reads what is written. Without full it gives up, without a verdict, when there is
// too much.
type inflater struct {
	w       *io.PipeWriter
	result  chan error // one
	verdict error
	decided bool
}

func newInflater(magics []string, full bool, parts []walker) *inflater {
	r, w := io.Pipe()
	z := &inflater{w: w, result: make(chan error, 1)}
	go func() {
		err := inflateAll(r, magics, full, parts, leastInflated)
		r.CloseWithError(errStopped) // a writer does not wait for a reader that is gone
		z.result <- err
	}()
	return z
}

var errStopped = errors.New("stopped")

func (z *inflater) write(p []byte) error {
	if z.decided {
		return z.verdict
	}
	if _, err := z.w.Write(p); err != nil {
		return z.decide()
	}
	return nil
}

func (z *inflater) decide() error {
	if !z.decided {
		z.verdict, z.decided = <-z.result, true
	}
	return z.verdict
}

func (z *inflater) end() error {
	z.w.Close()
	return z.decide()
}

func (z *inflater) stop() {
	z.w.CloseWithError(errStopped)
	z.decide()
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// inflateAll reads gzip data, one member after the other, compares their checksums and passes on what they inflate to. What inflates to at
// most least bytes is read to its end.
func inflateAll(r io.Reader, magics []string, full bool, parts []walker, least int64) error {
	in := &counted{r: r}
	zr, err := gzip.NewReader(in)
	if err != nil {
		return gzipFault(err)
	}
	buf := make([]byte, 64<<10)
	var head []byte
	var out int64
	looked := magics == nil
	for {
		n, err := zr.Read(buf)
		out += int64(n)
		if !looked {
			head = append(head, buf[:n]...)
			if len(head) >= headNeeded || err != nil {
				if looked = true; !startsWithAny(head, magics) {
					return errors.New("what it inflates to does not begin as it should")
				}
			}
		}
		for _, part := range parts {
			if n == 0 {
				break
			}
			if err := part.write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return endAll(parts)
		case err != nil:
			return gzipFault(err)
		case full && out > least && out > inflatedAllowed*in.n:
			return errBomb
		case !full && (out > least || in.n > MaxInflated):
			return nil
		}
	}
}

func endAll(parts []walker) error {
	for _, part := range parts {
		if err := part.end(); err != nil {
			return err
		}
	}
	return nil
}

func gzipFault(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errCut
	case errors.Is(err, gzip.ErrHeader):
		return errors.New("what follows the gzip data is not gzip")
	case errors.Is(err, gzip.ErrChecksum):
		return errors.New("the gzip data do not have their checksum")
	case errors.Is(err, errStopped):
		return errStopped
	}
	return errors.New("the gzip data are damaged")
}

// tail keeps the last bytes of what passes.
type tail struct{ b []byte }

func (t *tail) keep(p []byte, n int) {
	if len(p) >= n {
		t.b = append(t.b[:0], p[len(p)-n:]...)
		return
	}
	t.b = append(t.b, p...)
	if over := len(t.b) - n; over > 0 {
		t.b = t.b[:copy(t.b, t.b[over:])]
	}
}
