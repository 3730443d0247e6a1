package export

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// Bounds of an archive that is read.
const (
	maxEntries   = 250_000
	maxDirectory = 64 << 20 // bytes of the central directory
)

const (
	repacked = "unpack it into an empty folder and verify the folder"
	foreign  = "slurmgate does not write such entries. If you packed the archive again: " + repacked
)

// readDirectory reads the directory of a ZIP as [Archive.WriteTo] writes one: nothing compressed, encrypted or split,
// entries one after the other from the first byte to the directory, and nothing behind it. So no byte of the file is
// outside of an entry, and none is in two. Other programs may write a sound ZIP of another form; the error names the
// next step then.
func readDirectory(r io.ReaderAt, size int64) ([]entry, error) {
	records, length, at, err := endOfDirectory(r, size)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(io.NewSectionReader(r, at, length))
	var list []entry
	var next int64
	for i := range records {
		e, n, err := readCentral(in)
		if err != nil {
			return nil, fmt.Errorf("entry %d of the directory: %w", i+1, err)
		}
		if length -= n; length < 0 {
			return nil, errors.New("the directory is longer than it says")
		}
		if e.offset != next {
			return nil, fmt.Errorf("%q is at byte %d, but the entry before it ends at byte %d", e.name, e.offset, next)
		}
		if next = e.end(); next > at {
			return nil, fmt.Errorf("%q says that it has %d bytes, which reach into the directory", e.name, e.size)
		}
		list = append(list, e)
	}
	if next != at || length != 0 {
		return nil, errors.New("there are bytes that belong to no entry")
	}
	return list, nil
}

// endOfDirectory reads the records at the end of the file.
func endOfDirectory(r io.ReaderAt, size int64) (records, length, at int64, err error) {
	tail := make([]byte, min(size, endRecord+end64))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && len(tail) > 0 {
		return 0, 0, 0, err
	}
	if len(tail) < endRecord || le.Uint32(tail[len(tail)-endRecord:]) != 0x06054b50 {
		return 0, 0, 0, errors.New("it is not a ZIP archive, or it was cut off, or something follows its end")
	}
	end := tail[len(tail)-endRecord:]
	records, length, at = int64(le.Uint16(end[10:])), int64(le.Uint32(end[12:])), int64(le.Uint32(end[16:]))
	if records == manyRecords && length == big && at == big && len(tail) == endRecord+end64 {
		records, length, at = int64(le.Uint64(tail[32:])), int64(le.Uint64(tail[40:])), int64(le.Uint64(tail[48:]))
	}
	if uint64(records) > maxEntries || uint64(length) > maxDirectory {
		return 0, 0, 0, fmt.Errorf("its directory has %d entries in %d bytes; at most %d entries in %d bytes are read", uint64(records),
			uint64(length), maxEntries, maxDirectory)
	}
	want := ending(records, length, at)
	if at < 0 || at+length+int64(len(want)) != size || !bytes.HasSuffix(tail, want) {
		return 0, 0, 0, errors.New("its directory is not where it says: bytes were added or are missing, or slurmgate did not write it. If " +
			"you packed it again: " + repacked)
	}
	return records, length, at, nil
}

// readCentral reads one header of the directory, and returns its size in bytes.
func readCentral(in *bufio.Reader) (e entry, n int64, err error) {
	h := make([]byte, centralHeader)
	if _, err := io.ReadFull(in, h); err != nil || le.Uint32(h) != 0x02014b50 {
		return e, 0, errors.New("it is missing")
	}
	nameLen := int(le.Uint16(h[28:]))
	rest := make([]byte, nameLen+int(le.Uint16(h[30:]))+int(le.Uint16(h[32:])))
	if _, err := io.ReadFull(in, rest); err != nil {
		return e, 0, errors.New("it is cut off")
	}
	e = entry{name: string(rest[:nameLen]), crc: le.Uint32(h[16:]), size: int64(le.Uint32(h[24:])), offset: int64(le.Uint32(h[42:]))}
	if extra := rest[nameLen:]; e.size == big && e.offset == big && len(extra) == central64 {
		e.size, e.offset = int64(le.Uint64(extra[4:])), int64(le.Uint64(extra[20:]))
	}
	mode := le.Uint32(h[38:]) >> 16
	switch {
	case le.Uint16(h[8:])&1 != 0:
		return e, 0, fmt.Errorf("%q is encrypted", e.name)
	case strings.HasSuffix(e.name, "/"):
		return e, 0, fmt.Errorf("%q is a folder; %s", e.name, foreign)
	case le.Uint16(h[10:]) != 0:
		return e, 0, fmt.Errorf("%q is compressed; %s", e.name, foreign)
	case mode&0o170000 == 0o120000:
		return e, 0, fmt.Errorf("%q is a symbolic link; %s", e.name, foreign)
	case e.size < 0 || e.offset < 0 || e.end() < e.offset || !bytes.Equal(append(h, rest...), e.central()):
		return e, 0, fmt.Errorf("the header of %q is not as slurmgate writes it; %s", e.name, foreign)
	}
	return e, centralHeader + int64(len(rest)), nil
}

// openEntry checks the headers before and behind an entry's bytes, which a program uses that reads the archive as a
// stream, and returns the bytes. sound reports, once they are read, whether they have the archive's CRC-32.
func openEntry(r io.ReaderAt, e entry) (content io.Reader, sound func() bool, err error) {
	before, behind := e.local(), e.trailer()
	got := make([]byte, len(before)+len(behind))
	if _, err := r.ReadAt(got[:len(before)], e.offset); err != nil {
		return nil, nil, err
	}
	if _, err := r.ReadAt(got[len(before):], e.end()-int64(len(behind))); err != nil {
		return nil, nil, err
	}
	if !bytes.Equal(got, append(before, behind...)) {
		return nil, nil, errors.New("its local header or what follows its bytes does not match the archive's directory")
	}
	crc := crc32.NewIEEE()
	content = io.TeeReader(io.NewSectionReader(r, e.offset+int64(len(before)), e.size), crc)
	return content, func() bool { return crc.Sum32() == e.crc }, nil
}
