package filetype

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// tail reads to the end and returns the last n bytes, or all if there are fewer.
func tail(r io.Reader, n int) ([]byte, error) {
	b := make([]byte, 0, 2*n)
	for {
		if len(b) == cap(b) {
			b = b[:copy(b, b[n:])]
		}
		got, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+got]
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return b[max(0, len(b)-n):], err
		}
	}
}

// checkPDF searches for the marker that ends a PDF. Readers search for it in the last 1024 bytes.
func checkPDF(r *bufio.Reader) error {
	b, err := tail(r, 1024)
	if err == nil && !bytes.Contains(b, []byte("%%EOF")) {
		err = errors.New("it is cut short: the end marker %%EOF is missing")
	}
	return err
}

// checkZIP searches for the end of the central directory: 22 bytes, the last two of which are the length of the
// comment that ends the file.
func checkZIP(r *bufio.Reader) error {
	const size = 22
	b, err := tail(r, size+1<<16-1)
	for at := len(b) - size; at >= 0; at-- {
		if bytes.HasPrefix(b[at:], []byte("PK\x05\x06")) && int(binary.LittleEndian.Uint16(b[at+20:])) == len(b)-at-size {
			return err
		}
	}
	return errors.New("it is cut short: the end of the archive's directory is missing")
}

// checkPNG reads chunk by chunk: length(4) type(4) data checksum(4), after a signature of 8 bytes. The data after the
// last chunk, IEND, belong to the program that wrote the file, and readers ignore them.
func checkPNG(r *bufio.Reader) error {
	at, _ := r.Discard(8)
	for {
		var head [8]byte
		_, err := io.ReadFull(r, head[:])
		length := int(binary.BigEndian.Uint32(head[:]))
		if err == nil && length > 1<<31-1 {
			return fmt.Errorf("the data at byte %d are not a PNG chunk", at)
		}
		if err == nil {
			_, err = r.Discard(length + 4)
		}
		switch {
		case err != nil:
			return errors.New("it is cut short: the end chunk IEND is missing")
		case string(head[4:]) == "IEND":
			return nil
		}
		at += 12 + length
	}
}

// checkHDF5 compares a file's size with the one in its superblock (HDF5 file format specification 3.0, II.A). After the signature and the
// version:
//
//	version 0, 1   4 bytes, size of offsets, 3 (1: 7) bytes more than the 7 that follow it, then base, free space, end of file
//	version 2, 3   size of offsets, 2 bytes, then base, extension, end of file
func checkHDF5(r *bufio.Reader) error {
	errShort := errors.New("it is cut short: the HDF5 superblock is not whole")
	head, _ := r.Peek(96)
	if len(head) < 14 {
		return errShort
	}
	width, first := int(head[9]), 12
	switch head[8] {
	case 0:
		width, first = int(head[13]), 24
	case 1:
		width, first = int(head[13]), 28
	case 2, 3:
	default:
		return fmt.Errorf("HDF5 superblock version %d is unknown", head[8])
	}
	if width != 2 && width != 4 && width != 8 {
		return fmt.Errorf("the HDF5 superblock is damaged: offsets of %d bytes", width)
	}
	at := first + 2*width
	if len(head) < at+width {
		return errShort
	}
	var field [8]byte
	copy(field[:], head[at:at+width])
	end := binary.LittleEndian.Uint64(field[:])
	size, err := io.Copy(io.Discard, r)
	if err == nil && uint64(size) < end {
		err = fmt.Errorf("it is cut short: it has %d bytes, and its superblock says %d", size, end)
	}
	return err
}
