// Package filetypetest makes files of several types for tests.
package filetypetest

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"strings"
)

// Record is a record of a FASTQ file.
const Record = "@read1 x\nACGTN\n+\nIIIII\n"

// End is the empty block that ends a BGZF file.
const End = "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x06\x00\x42\x43\x02\x00\x1b\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// Gzip compresses s.
func Gzip(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return b.Bytes()
}

// BGZF compresses s into gzip with the BC subfield that marks blocks.
func BGZF(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Extra = []byte{'X', 'Y', 1, 0, 9, 'B', 'C', 2, 0, 0, 0}
	w.Write([]byte(s))
	w.Close()
	return b.Bytes()
}

// Block compresses s into one whole BGZF block.
func Block(s string) string {
	var data bytes.Buffer
	w, _ := flate.NewWriter(&data, flate.DefaultCompression)
	w.Write([]byte(s))
	w.Close()
	b := []byte(End[:16])
	b = binary.LittleEndian.AppendUint16(b, uint16(data.Len()+25))
	b = append(b, data.Bytes()...)
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE([]byte(s)))
	return string(binary.LittleEndian.AppendUint32(b, uint32(len(s))))
}

// Noise returns n letters of a sequence, the same each time.
func Noise(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = "ACGT"[r.IntN(4)]
	}
	return string(b)
}

// LongRead returns a FASTQ record of at least n bytes.
func LongRead(n int) string {
	return "@long\n" + Noise(n/2) + "\n+\n" + strings.Repeat("I", n/2) + "\n"
}
