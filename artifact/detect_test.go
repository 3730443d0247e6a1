package artifact

import (
	"bytes"
	"compress/gzip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"slurmgate/plan"
)

func gz(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	w.Close()
	return b.Bytes()
}

// bgzf is gzip with the BC subfield that marks its blocks.
func bgzf(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Extra = []byte{'X', 'Y', 1, 0, 9, 'B', 'C', 2, 0, 0, 0}
	w.Write([]byte(s))
	w.Close()
	return b.Bytes()
}

const record = "@read1 x\nACGTN\n+\nIIIII\n"

func TestDetect(t *testing.T) {
	many := strings.Repeat("a\tb\tc\n", HeadBytes/3)
	for _, c := range []struct{ head, name, want string }{
		{string(gz(record)), "r.fq.gz", "FASTQ_GZ"},
		{string(gz(record)), "", "FASTQ_GZ"},
		{string(gz(strings.Repeat(record, 10000))), "", "FASTQ_GZ"},
		{string(gz(strings.Repeat(record, 10000)))[:200], "", "FASTQ_GZ"},
		{string(bgzf(record)), "", "FASTQ_GZ"},
		{string(gz("@long\n" + strings.Repeat("A", 200_000) + "\n+\n")), "", "FASTQ_GZ"},
		{string(gz("@r\nACGT\n+\nII\n")), "r.fastq.gz", "UNKNOWN"},
		{string(gz("@HD\tVN:1.6\n@SQ\tSN:x\n")), "x.sam.gz", "UNKNOWN"},
		{string(gz(">seq\nACGT\n")), "r.fa.gz", "UNKNOWN"},
		{string(gz("")), "r.fastq.gz", "UNKNOWN"},
		{"\x1f\x8b\x08", "r.fastq.gz", "UNKNOWN"},
		{string(bgzf("BAM\x01\x00\x00")), "", "BAM"},
		{string(gz("BAM\x01\x00\x00")), "x.bam", "UNKNOWN"},
		{string(bgzf("##fileformat=VCFv4.2\n")), "x.vcf.gz", "VCF"},
		{"BAI\x01\x00", "", "BAI"},
		{"##fileformat=VCFv4.2\n#CHROM\n", "", "VCF"},
		{"\x89HDF\r\n\x1a\n\x00", "cells.H5AD", "H5AD"},
		{"\x89HDF\r\n\x1a\n\x00", "x.h5", "UNKNOWN"},
		{"PK\x03\x04\x14", "", "ZIP"},
		{"\x89PNG\r\n\x1a\n\x00", "x.txt", "PNG"},
		{"%PDF-1.7\n\xff", "", "PDF"},
		{`{"a": [1, 2]}` + "\n", "x.txt", "JSON"},
		{`[]`, "", "JSON"},
		{`{"a": 1} {"a": 2}`, "x.json", "TEXT"},
		{`{"a": `, "x.json", "TEXT"},
		{`12`, "x.json", "JSON"},
		{`12`, "", "TEXT"},
		{`["` + strings.Repeat("x", HeadBytes), "", "JSON"},
		{"[" + strings.Repeat(`{"a":1},`, HeadBytes), "", "JSON"},
		{strings.Repeat(`{"a":1}`+"\n", HeadBytes), "", "TEXT"},
		{"{" + strings.Repeat("not json ", HeadBytes), "", "TEXT"},
		{"  <!DOCTYPE html><p>", "", "HTML"},
		{"\ufeff<HTML>", "", "HTML"},
		{"a\tb\n1\t2\n", "x.tsv", "TSV"},
		{"# c\na\tb\n1\t2", "x.TSV", "TSV"},
		{"a\tb\n1\n", "x.tsv", "TEXT"},
		{"a\tb\n1\t2\n", "x", "TEXT"},
		{many, "x.tsv", "TSV"},
		{"a,b\n\"1,\n2\",3\n", "x.csv", "CSV"},
		{"a,b\n1\n", "x.csv", "TEXT"},
		{"# Title\n", "README.md", "MD"},
		{">seq\nACGT\n", "x.fa", "TEXT"},
		{"grüße\n", "", "TEXT"},
		{strings.Repeat("a", HeadBytes-1) + "é", "", "TEXT"},
		{"caf\xe9", "x.txt", "UNKNOWN"},
		{"caf\xc3", "x.txt", "UNKNOWN"},
		{"a\x00b", "x.txt", "UNKNOWN"},
		{"", "x.txt", "TEXT"},
	} {
		if got := Detect([]byte(c.head), c.name); got != c.want {
			t.Errorf("%.40q %s: %s, want %s", c.head, c.name, got, c.want)
		}
	}
}

// A small file that inflates to much costs little.
func TestDetectBomb(t *testing.T) {
	bomb := gz(strings.Repeat("\x00", 16<<20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		Detect(bomb, "")
	}
	runtime.ReadMemStats(&after)
	if allocs := (after.TotalAlloc - before.TotalAlloc) / 10; allocs > 2<<20 {
		t.Errorf("%d bytes allocated", allocs)
	}
}

func FuzzDetect(f *testing.F) {
	for _, s := range []string{record, "BAM\x01", "{", `{"a":1}`, "a\tb", "a,\"b\n", "\x89HDF\r\n\x1a\n", "<html", string(gz(record)),
		string(bgzf("BAM\x01")), "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\x00\x05\x00BC\xff\xff"} {
		f.Add([]byte(s), "x.csv")
		f.Add(gz(s), "x.tsv")
	}
	f.Fuzz(func(t *testing.T, head []byte, name string) {
		got := Detect(head, name)
		if !slices.Contains(plan.Types(), got) {
			t.Errorf("the type %s", got)
		}
		if got != Detect(head, name) {
			t.Error("two answers")
		}
	})
}
