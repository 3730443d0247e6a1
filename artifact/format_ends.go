package artifact

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// endWalk looks at the last bytes of a file.
type endWalk struct {
	n    int
	tail tail
	ok   func(tail []byte) error
}

func (w *endWalk) write(p []byte) error {
	w.tail.keep(p, w.n)
	return nil
}

func (w *endWalk) end() error { return w.ok(w.tail.b) }

// newPDFEnd looks for the marker that ends a PDF. Readers look for it in the last 1024 bytes.
func newPDFEnd() walker {
	return &endWalk{n: 1024, ok: func(b []byte) error {
		if !bytes.Contains(b, []byte("%%EOF")) {
			return errors.New("it is cut short: the end marker %%EOF is missing")
		}
		return nil
	}}
}

// newZipEnd looks for the end of the central directory: 22 bytes, the last two of which are the length of the comment that ends the file.
func newZipEnd() walker {
	const size = 22
	return &endWalk{n: size + 1<<16 - 1, ok: func(b []byte) error {
		for at := len(b) - size; at >= 0; at-- {
			if bytes.HasPrefix(b[at:], []byte("PK\x05\x06")) && int(binary.LittleEndian.Uint16(b[at+20:])) == len(b)-at-size {
				return nil
			}
		}
		return errors.New("it is cut short: the end of the archive's directory is missing")
	}}
}

// pngWalk goes from chunk to chunk: length(4) type(4) data checksum(4), after a signature of 8 bytes.
type pngWalk struct {
	past   int64 // bytes before the current chunk
	header []byte
	left   int64
	last   bool // the current chunk is IEND
}

func (w *pngWalk) write(p []byte) error {
	if w.past == 0 {
		w.past, w.left = 8, 8
	}
	for len(p) > 0 {
		switch {
		case w.left > 0:
			n := min(w.left, int64(len(p)))
			w.left -= n
			p = p[n:]
		case w.last: // programs append data of their own, and readers ignore them
			return nil
		default:
			n := min(8-len(w.header), len(p))
			w.header = append(w.header, p[:n]...)
			if p = p[n:]; len(w.header) == 8 {
				length := int64(binary.BigEndian.Uint32(w.header))
				if length > 1<<31-1 {
					return fmt.Errorf("the data at byte %d are not a PNG chunk", w.past)
				}
				w.left, w.last = length+4, string(w.header[4:]) == "IEND"
				w.past += 12 + length
				w.header = w.header[:0]
			}
		}
	}
	return nil
}

func (w *pngWalk) end() error {
	if !w.last || w.left > 0 {
		return errors.New("it is cut short: the end chunk IEND is missing")
	}
	return nil
}

// hdf5Walk compares a file's size with the one in its superblock (HDF5 file format specification 3.0, II.A). After the signature and the
// version:
//
//	version 0, 1   4 bytes, size of offsets, 3 (1: 7) bytes more than the 7 that follow it, then base, free space, end of file
//	version 2, 3   size of offsets, 2 bytes, then base, extension, end of file
type hdf5Walk struct {
	head []byte
	size uint64
}

func (w *hdf5Walk) write(p []byte) error {
	w.size += uint64(len(p))
	w.head = append(w.head, p[:min(len(p), 96-len(w.head))]...)
	return nil
}

func (w *hdf5Walk) end() error {
	errShort := errors.New("it is cut short: the HDF5 superblock is not whole")
	if len(w.head) < 14 {
		return errShort
	}
	width, first := int(w.head[9]), 12
	switch w.head[8] {
	case 0:
		width, first = int(w.head[13]), 24
	case 1:
		width, first = int(w.head[13]), 28
	case 2, 3:
	default:
		return fmt.Errorf("HDF5 superblock version %d is unknown", w.head[8])
	}
	if width != 2 && width != 4 && width != 8 {
		return fmt.Errorf("the HDF5 superblock is damaged: offsets of %d bytes", width)
	}
	at := first + 2*width
	if len(w.head) < at+width {
		return errShort
	}
	var field [8]byte
	copy(field[:], w.head[at:at+width])
	if end := binary.LittleEndian.Uint64(field[:]); w.size < end {
		return fmt.Errorf("it is cut short: it has %d bytes, and its superblock says %d", w.size, end)
	}
	return nil
}
