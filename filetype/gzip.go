package filetype

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// bgzfEnd is the empty block at the end of every BGZF file (SAM specification, 4.1.2).
const bgzfEnd = "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x06\x00\x42\x43\x02\x00\x1b\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"

var errNotBGZF = errors.New("it does not begin with a BGZF block")

// gzipExtra returns the extra field of the gzip header that r reads next; nil if absent or it is cut off.
func gzipExtra(r *bufio.Reader) []byte {
	head, _ := r.Peek(12)
	if len(head) < 12 || string(head[:3]) != magicGzip || head[3]&4 == 0 {
		return nil
	}
	head, err := r.Peek(12 + int(binary.LittleEndian.Uint16(head[10:])))
	if err != nil {
		return nil
	}
	return head[12:]
}

// bgzfSize returns the size of the block with this extra field, which has 'B' 'C' 2 0 BSIZE(2) in a BGZF file (SAM
// specification, 4.1); 0 when it has none.
func bgzfSize(extra []byte) int {
	for len(extra) >= 4 {
		n := int(binary.LittleEndian.Uint16(extra[2:]))
		if len(extra) < 4+n {
			return 0
		}
		if extra[0] == 'B' && extra[1] == 'C' && n == 2 {
			return int(binary.LittleEndian.Uint16(extra[4:])) + 1
		}
		extra = extra[4+n:]
	}
	return 0
}

// rewritable is the error of a gzip file whose content may be whole: the inflated content can be written anew.
type rewritable struct{ error }

// afterGzip reads what comes after the gzip data of a file, which end at a byte. Zeros are padding, as tapes and some
// storage add it; gzip and zcat ignore them.
func afterGzip(r *bufio.Reader, at int64) error {
	for {
		b, err := r.Peek(r.Size())
		if len(bytes.Trim(b, "\x00")) > 0 {
			return rewritable{fmt.Errorf("its gzip data end at byte %d, and what follows is not gzip data", at)}
		}
		_, _ = r.Discard(len(b))
		if err == io.EOF {
			return nil
		}
		if err != nil && err != bufio.ErrBufferFull {
			return err
		}
	}
}

// checkBGZF checks a BGZF file, which consists of blocks, without inflating any:
//
//	1f 8b 08 04  mtime(4) xfl os  xlen(2)  extra(xlen)  data
func checkBGZF(r *bufio.Reader) error { return checkBlocks(r, nil) }

// checkMixed is [checkBGZF] of a file that may have plain gzip data after its blocks, as where lanes are joined.
// Their length is not known without inflating them, so nothing behind them is checked.
func checkMixed(r *bufio.Reader) error {
	return checkBlocks(r, func(at int64, marker bool) error {
		head, _ := r.Peek(len(magicGzip))
		if string(head) != magicGzip {
			if err := afterGzip(r, at); err != nil {
				return err
			}
		}
		if !marker {
			return errNoMarker
		}
		return nil
	})
}

var errNoMarker = rewritable{errors.New("it is cut short: the BGZF end marker is missing")}

// checkBlocks checks block by block. other checks the data at a byte that is no block, with whether an end marker
// came before it; nil: only blocks may come.
func checkBlocks(r *bufio.Reader, other func(at int64, marker bool) error) error {
	marker := false
	for at := 0; ; {
		head, _ := r.Peek(len(bgzfEnd))
		extra := gzipExtra(r)
		size := bgzfSize(extra)
		switch n := min(4, len(head)); {
		case n == 0 && marker:
			return nil
		case n == 0:
			return errNoMarker
		case string(head[:n]) == bgzfEnd[:n] && extra == nil: // neither the header nor the block is whole
			size = math.MaxInt
		case at == 0 && (string(head[:n]) != bgzfEnd[:n] || size < 12+len(extra)+8):
			return errNotBGZF
		case (string(head[:n]) != bgzfEnd[:n] || size < 12+len(extra)+8) && other != nil:
			return other(int64(at), marker)
		case string(head[:n]) != bgzfEnd[:n] || size < 12+len(extra)+8:
			return fmt.Errorf("the data at byte %d are not a BGZF block", at)
		}
		marker = string(head) == bgzfEnd
		if n, _ := r.Discard(size); n < size {
			return errors.New("it is cut short: the last BGZF block is not whole")
		}
		at += size
	}
}

// checkBAM is checkBGZF, and inflates the beginning of the first block.
func checkBAM(r *bufio.Reader) error {
	size := bgzfSize(gzipExtra(r))
	if size == 0 {
		return errNotBGZF
	}
	block, _ := r.Peek(size)
	var got [4]byte
	zr, err := gzip.NewReader(bytes.NewReader(block))
	if err == nil {
		_, err = io.ReadFull(zr, got[:])
	}
	if err != nil || string(got[:]) != magicBAM {
		return errors.New("the first BGZF block does not begin with BAM's magic number")
	}
	return checkBGZF(r)
}

// Bounds of what is inflated for a check.
const (
	leastInflated   = 1 << 30 // inflated bytes of any file
	inflatedAllowed = 200     // times its size, of a file that is checked in full
)

var (
	errBomb   = fmt.Errorf("it inflates to more than %d times its size", inflatedAllowed)
	errEnough = errors.New("enough was inflated")
)

// inflated holds what a gzip file inflates to against a rule, and the checksums of its members, one after the other. The file itself must
// satisfy packed, which may be nil. What inflates to at most least bytes is read to its end; of more, a full check refuses a bomb, and
// another ends without a verdict.
func inflated(r *bufio.Reader, packed rule, full bool, least int64, content rule) error {
	if packed != nil {
		f := Follow(packed)
		defer f.Close()
		whole := bufio.NewReaderSize(io.TeeReader(r, f), bufferSize)
		err := inflated(whole, nil, full, least, content)
		_, _ = io.Copy(io.Discard, whole)
		if verdict := f.Finish(); verdict != nil {
			return verdict
		}
		return err
	}
	z := &inflater{full: full, least: least}
	z.in = bufio.NewReaderSize(counter{r, &z.read}, bufferSize)
	text := bufio.NewReaderSize(z, bufferSize)
	err := content(text)
	if err == nil {
		_, err = io.Copy(io.Discard, text)
	}
	switch {
	case z.err == nil, z.err == io.EOF, z.err == errBomb: // the rule's own verdict, or that of the bound
		return err
	case z.err == errEnough:
		return nil
	case errors.Is(z.err, io.ErrUnexpectedEOF):
		return errors.New("it is cut short: the gzip data end in the middle")
	case errors.As(z.err, new(rewritable)):
		return z.err
	case errors.Is(z.err, gzip.ErrChecksum):
		return errors.New("the gzip data do not have their checksum")
	}
	return errors.New("the gzip data are damaged")
}

// inflater inflates the members of a gzip file, one after the other, within bounds.
type inflater struct {
	in    *bufio.Reader
	read  int64 // by in
	out   int64
	full  bool
	least int64
	zr    *gzip.Reader
	err   error // that ended it
}

func (z *inflater) Read(p []byte) (n int, err error) {
	for n == 0 && z.err == nil {
		if z.zr == nil {
			z.err = z.begin()
			continue
		}
		if n, z.err = z.zr.Read(p); z.err == io.EOF {
			z.err = z.next()
		}
	}
	switch z.out += int64(n); {
	case z.err != nil:
	case z.full && z.out > z.least && z.out > inflatedAllowed*z.read:
		z.err = errBomb
	case !z.full && (z.out > z.least || z.read > MaxInflated):
		z.err = errEnough
	}
	return n, z.err
}

// begin begins the first member.
func (z *inflater) begin() (err error) {
	if z.zr, err = gzip.NewReader(z.in); err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	if err == nil {
		z.zr.Multistream(false)
	}
	return err
}

// next begins the member after one that has ended; EOF after the last one.
func (z *inflater) next() error {
	head, err := z.in.Peek(len(magicGzip))
	switch {
	case len(head) == 0:
		return err
	case string(head) != magicGzip[:len(head)]:
		if err := afterGzip(z.in, z.read-int64(z.in.Buffered())); err != nil {
			return err
		}
		return io.EOF
	}
	if err := z.zr.Reset(z.in); err == io.EOF {
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	z.zr.Multistream(false)
	return nil
}

// counter counts what is read.
type counter struct {
	io.Reader
	n *int64
}

func (c counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += int64(n)
	return n, err
}
