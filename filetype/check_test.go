package filetype

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"image"
	"image/png"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"
)

func pngFile() string {
	var b bytes.Buffer
	png.Encode(&b, image.NewGray(image.Rect(0, 0, 40, 40)))
	return b.String()
}

// hdf5 returns a file of size bytes with that size in its superblock.
func hdf5(version byte, size int) string {
	b := make([]byte, size)
	copy(b, magicHDF5)
	b[8] = version
	at := 28
	if version < 2 {
		b[13], at = 8, 40+int(version)*4
	} else {
		b[9] = 8
	}
	binary.LittleEndian.PutUint64(b[at:], uint64(size))
	return string(b)
}

// verdict checks a file in pieces of at most step bytes.
func verdict(typ, file string, step int, opt Checks) (string, int64) {
	c := NewChecker(typ, opt)
	defer c.Close()
	for rest := file; rest != ""; {
		n := min(step, len(rest))
		c.Write([]byte(rest[:n]))
		rest = rest[n:]
	}
	if err := c.Finish(); err != nil {
		return err.Error(), 0
	}
	return "", c.Lines()
}

var bam = block("BAM\x01"+noise(60_000)) + block(noise(50_000)) + bgzfEnd

// A file of each type passes whole; cut anywhere, with bytes of another type or damaged it does not.
func TestChecker(t *testing.T) {
	reads := strings.Repeat(record, 3000)
	blocked := block(reads[:2000*len(record)]) + block("@x\nA\n+\nI\n") + bgzfEnd
	vcf := "##fileformat=VCFv4.2\n#CHROM\tPOS\n"
	packed := string(gz(reads + longRead(5000)))
	damaged := []byte(packed)
	damaged[len(damaged)-6] ^= 1
	for _, c := range []struct {
		name, typ, file, want string
		everyCut              bool // no beginning of it passes
	}{
		{"BAM", "BAM", bam, "", true},
		{"BAM of one block", "BAM", block("BAM\x01x") + bgzfEnd, "", true},
		{"BAM without the marker", "BAM", bam[:len(bam)-len(bgzfEnd)], "BGZF end marker", false},
		{"BAM and more", "BAM", bam + "more", "not a BGZF block", false},
		{"BAM as gzip", "BAM", string(gz("BAM\x01x")), "begin with a BGZF block", false},
		{"BAM with another content", "BAM", block("SAM\x01") + bgzfEnd, "magic number", false},
		{"text as BAM", "BAM", "BAM", "begin with a BGZF block", false},
		{"BAM of nothing", "BAM", "", "it is empty", false},
		{"BAI", "BAI", "BAI\x01\x00\x00\x00\x00", "", false},
		{"BAM as BAI", "BAI", bam, `begin with "BAI\x01"`, false},
		{"FASTQ_GZ", "FASTQ_GZ", packed, "", true},
		{"FASTQ_GZ of two members", "FASTQ_GZ", packed + string(gz(record)), "", false},
		{"FASTQ_GZ of a record in two members", "FASTQ_GZ", string(gz("@r\nAC")) + string(gz("GT\n+\nIIII\n")), "", false},
		{"FASTQ_GZ without a record", "FASTQ_GZ", string(gz("")), "", true},
		{"FASTQ without a record", "FASTQ", "", "", false},
		{"bgzipped", "FASTQ_GZ", blocked, "", true},
		{"bgzipped without the marker", "FASTQ_GZ", blocked[:len(blocked)-len(bgzfEnd)], "BGZF end marker", false},
		{"gzip and more", "FASTQ_GZ", packed + noise(99), "is not gzip", false},
		{"gzip and text", "FASTQ_GZ", packed + "notes of the instrument\n", "and what follows is not gzip data", false},
		{"gzip and zeros", "FASTQ_GZ", packed + strings.Repeat("\x00", 100_000), "", false},
		{"gzip and zeros and text", "FASTQ_GZ", packed + strings.Repeat("\x00", 100_000) + "x", "is not gzip data", false},
		{"bgzipped and zeros", "FASTQ_GZ", blocked + strings.Repeat("\x00", 99), "", false},
		{"bgzipped and text", "FASTQ_GZ", blocked + "notes\n", "is not gzip data", false},
		{"bgzipped lane, gzipped lane", "FASTQ_GZ", blocked + packed, "", false},
		{"gzipped lane, bgzipped lane", "FASTQ_GZ", packed + blocked, "", false},
		{"bgzipped lane without the marker, gzipped lane", "FASTQ_GZ", blocked[:len(blocked)-len(bgzfEnd)] + packed,
			"BGZF end marker", false},
		{"bgzipped lane, cut gzipped lane", "FASTQ_GZ", blocked + packed[:len(packed)-9], "cut short", false},
		{"bgzipped without a record", "FASTQ_GZ", bgzfEnd, "", true},
		{"BAM and zeros", "BAM", bam + strings.Repeat("\x00", 99), "not a BGZF block", false},
		{"BAM and gzip", "BAM", bam + packed, "not a BGZF block", false},
		{"gzip with another checksum", "FASTQ_GZ", string(damaged), "checksum", false},
		{"text as gzip", "FASTQ_GZ", reads, "begin with a gzip header", false},
		{"a domain's type", "FASTA_GZ", packed[:len(packed)-9], "cut short", false},
		{"gzip by name", typeGzip, packed, "", true},
		{"VCF", "VCF", vcf, "", false},
		{"VCF without header", "VCF", "#CHROM\tPOS\n", `begin with "##fileformat=VCF"`, false},
		{"VCF packed", "VCF", string(gz(vcf)), "", true},
		{"VCF of another content", "VCF", string(gz("#CHROM\n")), "inflates to", false},
		{"PNG", "PNG", pngFile(), "", true},
		{"PNG and more", "PNG", pngFile() + "more", "", false},
		{"PNG of nonsense", "PNG", pngFile()[:8] + strings.Repeat("\xff", 100), "chunk", false},
		{"PDF", "PDF", "%PDF-1.7\n" + noise(9000) + "\n%%EOF\n", "", false},
		{"PDF cut", "PDF", "%PDF-1.7\n%%EOF\n" + noise(9000), "%%EOF", false},
		{"ZIP of nothing", "ZIP", "PK\x05\x06" + strings.Repeat("\x00", 18), "", true},
		{"ZIP with a comment", "ZIP", "PK\x03\x04" + noise(99_999) + "PK\x05\x06" + strings.Repeat("\x00", 16) + "\x03\x00PK\x05", "", false},
		{"ZIP cut", "ZIP", "PK\x03\x04" + noise(99_999) + "PK\x05\x06" + strings.Repeat("\x00", 16) + "\x03\x00PK", "directory", false},
		{"HDF5, superblock 0", "H5AD", hdf5(0, 300), "", true},
		{"HDF5, superblock 1", "H5AD", hdf5(1, 300), "", true},
		{"HDF5, superblock 3", "H5AD", hdf5(3, 300), "", true},
		{"HDF5 of the future", "H5AD", hdf5(9, 300), "unknown", false},
		{"JSON", "JSON", `{"a": [1, -2.5e+3, "é\u00e9\n", true, null], "b": {}}` + "\n", "", false},
		{"JSON cut", "JSON", `{"a": [1, 2]`, "does not end", false},
		{"two JSON values", "JSON", `{} {}`, "byte 4", false},
		{"JSON of Python", "JSON", `{"a": NaN}`, "byte 7 does not belong there: invalid character 'N'", false},
		{"JSON too deep", "JSON", strings.Repeat("[", 10_001), "exceeded max depth", false},
		{"JSON of nothing", "JSON", "", "it is empty", false},
		{"JSON in another encoding", "JSON", "[\"\xe9\"]", "not UTF-8", false},
		{"JSON with half a surrogate pair", "JSON", `["\ud83d"]`, "", false},
		{"JSON with a name twice", "JSON", `{"a": 1, "a": 2}`, "", false},
		{"text", "TEXT", "\xff\x00", "", false},
		{"a type without rule", "UNKNOWN", "", "", false},
	} {
		for _, step := range []int{1 << 20, 7, 4096} {
			got, _ := verdict(c.typ, c.file, step, Checks{})
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s in pieces of %d: %q, want %q", c.name, step, got, c.want)
			}
		}
		if !c.everyCut {
			continue
		}
		for n := 0; n < len(c.file); n += 1 + len(c.file)/200 {
			if got, _ := verdict(c.typ, c.file[:n], 1<<20, Checks{}); got == "" {
				t.Errorf("%s: its first %d of %d bytes pass", c.name, n, len(c.file))
			}
		}
	}
}

// A string or number of any length is read in constant memory.
//
// no race: each of its millions of steps is like the one before
func TestCheckerJSONMemory(t *testing.T) {
	for _, around := range [][3]string{{`["`, "x", `"]`}, {"-1", "0", "e5"}, {`{"`, "n", `":0}`}, {"[", " ", "]"}} {
		c := NewChecker("JSON", Checks{})
		piece := bytes.Repeat([]byte(around[1]), 1<<20)
		c.Write([]byte(around[0]))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			c.Write(piece)
		}
		c.Write([]byte(around[2]))
		err := c.Finish()
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > 1<<20 {
			t.Errorf("%s…: %v, %d bytes of memory", around[0], err, got)
		}
		c.Close()
	}
}

// Lines are those of the inflated text, and the last one needs no end.
func TestCheckerLines(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "a": 1, "a\n": 1, "a\n\nb": 3, strings.Repeat("x\n", 100_000): 100_000} {
		for _, step := range []int{1, 1000} {
			if got, n := verdict("TSV", text, step, Checks{Rows: true}); got != "" || n != want {
				t.Errorf("%.10q: %s %d lines, want %d", text, got, n, want)
			}
			if got, n := verdict("FASTA_GZ", string(gz(text)), step, Checks{Rows: true, Full: true}); got != "" || n != want {
				t.Errorf("%.10q packed: %s %d lines, want %d", text, got, n, want)
			}
		}
	}
}

func nothing(*bufio.Reader) error { return nil }

// A small file that inflates to very much is not inflated to its end: an import lets it pass, a full check refuses it.
func TestCheckerBomb(t *testing.T) {
	bomb := gz(strings.Repeat("\x00", 4<<20))
	if err := inflated(bufio.NewReader(bytes.NewReader(bomb)), nil, false, 1<<20, nothing); err != nil {
		t.Error(err)
	}
	if err := inflated(bufio.NewReader(bytes.NewReader(bomb)), nil, true, 1<<20, nothing); err != errBomb {
		t.Error(err)
	}
	if err := inflated(bufio.NewReader(bytes.NewReader(bomb)), nil, true, 8<<20, nothing); err != nil {
		t.Error(err)
	}
}

// A large file is inflated only where the check is a full one; a BGZF file shows that it is cut in either case.
func TestCheckerLarge(t *testing.T) {
	cut := string(gz(longRead(5000)))
	cut = cut[:len(cut)-100]
	large := Checks{Size: MaxInflated + 1}
	if got, _ := verdict("FASTQ_GZ", cut, 1<<20, large); got != "" {
		t.Error(got)
	}
	if got, _ := verdict("FASTQ_GZ", block("x"), 1<<20, large); got == "" {
		t.Error("a cut BGZF file passes")
	}
	large.Full = true
	if got, _ := verdict("FASTQ_GZ", cut, 1<<20, large); got == "" {
		t.Error("a cut file passes a full check")
	}
}

// The blocks of a BAM file are inflated only where that is asked for.
func TestCheckerBlocks(t *testing.T) {
	damaged := []byte(bam)
	damaged[len(block("BAM\x01"+noise(60_000)))-6] ^= 1 // of the first block's checksum
	for _, c := range []struct {
		file, want string
		opt        Checks
	}{{bam, "", Checks{Full: true, Blocks: true}}, {string(damaged), "", Checks{Full: true}}, {string(damaged), "checksum",
		Checks{Full: true, Blocks: true}}} {
		if got, _ := verdict("BAM", c.file, 1000, c.opt); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("with %+v: %q, want %q", c.opt, got, c.want)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e-7,"x\u12aF\\",true,false,null]}`, `[]`, ` 0 `, `-`, `01`, `1.`, `"\x80"`, "\"\xed\xa0\x80\"",
		`[1,]`, `{"a" 1}`, `{,}`, `]`, `nul`, "\"\n\""} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, data []byte, step uint8) {
		got, _ := verdict("JSON", string(data), int(step)+1, Checks{})
		if want := json.Valid(data) && utf8.Valid(data); (got == "") != want {
			t.Errorf("%q: %q, encoding/json: %v", data, got, want)
		}
	})
}

// The verdict does not depend on the pieces in which a file arrives.
func FuzzChecker(f *testing.F) {
	for i, file := range []string{bam[:200], block("BAM\x01") + bgzfEnd, string(gz(record)), pngFile(), "%PDF-1\n%%EOF",
		"PK\x05\x06" + strings.Repeat("\x00", 18), hdf5(0, 100), hdf5(2, 100), "BAI\x01"} {
		f.Add([]byte(file), uint8(i), uint8(i))
	}
	types := []string{"BAM", "BAI", "FASTQ_GZ", "VCF", "PNG", "PDF", "ZIP", "H5AD", "JSON", "TEXT", "FASTQ"}
	f.Fuzz(func(t *testing.T, data []byte, typ, step uint8) {
		name := types[int(typ)%len(types)]
		whole, n := verdict(name, string(data), 1<<20, Checks{Rows: true, Full: true})
		pieces, m := verdict(name, string(data), int(step)+1, Checks{Rows: true, Full: true})
		if whole != pieces && name != "BAM" && !strings.HasPrefix(string(data), magicGzip) || (whole == "") != (pieces == "") || n != m {
			t.Errorf("%s: %q, in pieces %q; %d lines, in pieces %d", name, whole, pieces, n, m)
		}
	})
}
