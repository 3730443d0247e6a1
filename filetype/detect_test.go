package filetype

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"slurmgate/filetype/filetypetest"
)

// The files of the tests.
const record = filetypetest.Record

var gz, bgzf, block, noise, longRead = filetypetest.Gzip, filetypetest.BGZF, filetypetest.Block, filetypetest.Noise, filetypetest.LongRead

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
		{string(gz("")), "r.fastq.gz", "FASTQ_GZ"},
		{string(gz("")), "r.gz", "UNKNOWN"},
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
		if !slices.Contains(Names(), got) {
			t.Errorf("the type %s", got)
		}
		if got != Detect(head, name) {
			t.Error("two answers")
		}
	})
}

// The domain's own types are recognised by content, and only where the domain has them.
func TestDetectOwn(t *testing.T) {
	log := strings.Repeat("2026-11-21T08:21:29Z job 5 on n1 executes this attempt\n", 5)
	all := []string{"FASTA", "FASTA_GZ", "FASTQ", "SAM", "SAM_GZ"}
	for _, c := range []struct{ head, name, plain, own string }{
		{">seq one\nACGT-N*\n", "x.fa", "TEXT", "FASTA"},
		{">seq one\r\nACGT\r\n", "", "TEXT", "FASTA"},
		{string(gz(">seq\nACGT\n")), "r.fa.gz", "UNKNOWN", "FASTA_GZ"},
		{string(bgzf(">seq\nACGT\n")), "", "UNKNOWN", "FASTA_GZ"},
		{"> quoted reply\nthis is 1 mail\n", "", "TEXT", "TEXT"},
		{">only a name", "", "TEXT", "TEXT"},
		{record, "", "TEXT", "FASTQ"},
		{"@HD\tVN:1.6\n@SQ\tSN:x\tLN:1\n", "x.sam", "TEXT", "SAM"},
		{string(gz("@SQ\tSN:x\tLN:1\n")), "", "UNKNOWN", "SAM_GZ"},
		{"a\tb\n1\t2\n3\t4\n", "", "TSV", "TSV"},
		{"# c\na\tb\n1\t2\n3\t4\n", "counts", "TSV", "TSV"},
		{"a\tb\n1\t2\n3\n", "", "TEXT", "TEXT"},
		{"a\tb\n1\t2\n3\t4\n", "x.txt", "TEXT", "TEXT"},
		{"a,b\n1,2\n3,4\n", "", "CSV", "CSV"},
		{"Dear all, hi\nwell, yes\nno, not\n", "", "TEXT", "TEXT"},
		{"# Title\n\n## Part\n", "", "MD", "MD"},
		{"# comment\nx = 1\n", "", "TEXT", "TEXT"},
		{log, "", "LOG", "LOG"},
		{log, "x.txt", "LOG", "LOG"},
		{"2026-11-21 08:21:29 once\n", "", "TEXT", "TEXT"},
		{"anything\n", "run.log", "LOG", "LOG"},
	} {
		if got := Detect([]byte(c.head), c.name); got != c.plain {
			t.Errorf("%.40q %s: %s, want %s", c.head, c.name, got, c.plain)
		}
		if got := Detect([]byte(c.head), c.name, all...); got != c.own {
			t.Errorf("%.40q %s with the domain's types: %s, want %s", c.head, c.name, got, c.own)
		}
	}
}

func FuzzDetectOwn(f *testing.F) {
	for _, s := range []string{record, ">a\nACGT", "@HD\tVN:1.6\n", "a\tb\n1\t2\n3\t4", "2026-11-21 08:21:29 x\n", "# a\n\n## b"} {
		f.Add([]byte(s), "x")
		f.Add(gz(s), "")
	}
	f.Fuzz(func(t *testing.T, head []byte, name string) {
		plain, own := Detect(head, name), Detect(head, name, "FASTA", "SAM_GZ")
		if own != plain && (plain != "TEXT" && plain != "UNKNOWN" && plain != "LOG" && plain != "TSV" && plain != "CSV" && plain != "MD" &&
			plain != "HTML" && plain != "JSON" || own != "FASTA" && own != "SAM_GZ") {
			t.Errorf("Detect(%q, %q) = %s, and with types of the domain %s", head, name, plain, own)
		}
		if bytes.HasPrefix(head, []byte("%PDF-")) && own != "PDF" {
			t.Error(own)
		}
	})
}
