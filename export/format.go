package export

import (
	"encoding/binary"
	"strings"
)

// The bytes of a ZIP (APPNOTE 6.3) as an archive has them. Whatever the format leaves open is fixed here, so that the same files are the
// same bytes: nothing is compressed, sizes and CRC-32 follow an entry's bytes, all times are the format's first day, files may be read by
// everybody and written by their owner. Where a size or an offset does not fit into 32 bits, the forms of ZIP64 take their place.
const (
	localHeader, descriptor, descriptor64 = 30, 16, 24
	centralHeader, central64              = 46, 28
	endRecord, end64                      = 22, 56 + 20
	big                                   = 1<<32 - 1
	manyRecords                           = 1<<16 - 1

	fixedDate = 1<<5 | 1 // 1980-01-01
	plainMode = 0o100644 << 16
)

var le = binary.LittleEndian

// entry is one file of a ZIP.
type entry struct {
	name   string
	size   int64
	crc    uint32
	offset int64 // of its local header
}

// flags: sizes follow the bytes; the name is UTF-8 where it is not ASCII.
func (e entry) flags() uint16 {
	if strings.ContainsFunc(e.name, func(r rune) bool { return r > '~' }) {
		return 1<<3 | 1<<11
	}
	return 1 << 3
}

// wide reports whether the directory's header of the entry needs ZIP64.
func (e entry) wide() bool { return e.size >= big || e.offset >= big }

// version returns the version of the format that a reader of the entry needs.
func (e entry) version() uint16 {
	if e.wide() {
		return 45
	}
	return 20
}

// local returns the header before the bytes.
func (e entry) local() []byte {
	b := le.AppendUint32(nil, 0x04034b50)
	for _, v := range []uint16{20, e.flags(), 0, 0, fixedDate, 0, 0, 0, 0, 0, 0, uint16(len(e.name)), 0} {
		b = le.AppendUint16(b, v)
	}
	return append(b, e.name...)
}

// trailer returns the data descriptor after the bytes.
func (e entry) trailer() []byte {
	b := le.AppendUint32(le.AppendUint32(nil, 0x08074b50), e.crc)
	if e.size >= big {
		return le.AppendUint64(le.AppendUint64(b, uint64(e.size)), uint64(e.size))
	}
	return le.AppendUint32(le.AppendUint32(b, uint32(e.size)), uint32(e.size))
}

// end returns where the next entry begins.
func (e entry) end() int64 {
	at := e.offset + localHeader + int64(len(e.name)) + e.size + descriptor
	if e.size >= big {
		at += descriptor64 - descriptor
	}
	return at
}

// central returns the entry's header in the directory.
func (e entry) central() []byte {
	size, offset, extra := uint32(e.size), uint32(e.offset), 0
	if e.wide() {
		size, offset, extra = big, big, central64
	}
	b := le.AppendUint32(nil, 0x02014b50)
	for _, v := range []uint16{3<<8 | e.version(), e.version(), e.flags(), 0, 0, fixedDate} {
		b = le.AppendUint16(b, v)
	}
	b = le.AppendUint32(le.AppendUint32(le.AppendUint32(b, e.crc), size), size)
	for _, v := range []uint16{uint16(len(e.name)), uint16(extra), 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	b = append(le.AppendUint32(le.AppendUint32(b, plainMode), offset), e.name...)
	if e.wide() {
		b = le.AppendUint16(le.AppendUint16(b, 1), central64-4)
		b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, uint64(e.size)), uint64(e.size)), uint64(e.offset))
	}
	return b
}

// ending returns the end of a ZIP whose directory has so many records in so many bytes, and begins at byte at.
func ending(records, length, at int64) (b []byte) {
	if records >= manyRecords || length >= big || at >= big {
		b = le.AppendUint64(le.AppendUint32(b, 0x06064b50), end64-20-12)
		b = le.AppendUint16(le.AppendUint16(b, 3<<8|45), 45)
		b = le.AppendUint64(b, 0)
		for _, v := range []int64{records, records, length, at} {
			b = le.AppendUint64(b, uint64(v))
		}
		b = le.AppendUint32(le.AppendUint32(b, 0x07064b50), 0)
		b = le.AppendUint32(le.AppendUint64(b, uint64(at+length)), 1)
		records, length, at = manyRecords, big, big
	}
	b = le.AppendUint32(le.AppendUint32(b, 0x06054b50), 0)
	b = le.AppendUint16(le.AppendUint16(b, uint16(records)), uint16(records))
	return le.AppendUint16(le.AppendUint32(le.AppendUint32(b, uint32(length)), uint32(at)), 0)
}
