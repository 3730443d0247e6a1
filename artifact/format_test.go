package artifact

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/filetype/filetypetest"
)

// The files of the tests.
const (
	record  = filetypetest.Record
	bgzfEnd = filetypetest.End
)

var gz, bgzf, block, noise, longRead = filetypetest.Gzip, filetypetest.BGZF, filetypetest.Block, filetypetest.Noise, filetypetest.LongRead

var bam = block("BAM\x01"+noise(60_000)) + block(noise(50_000)) + bgzfEnd

// Every kind of import refuses a file that is not valid for its type, stores nothing, and names the problem and the
// next step.
func TestImportFormat(t *testing.T) {
	im, root, dir := newImporter(t, 1<<20)
	cut := string(gz(strings.Repeat(record, 300)))
	cut = cut[:len(cut)-20]
	for _, c := range []struct{ file, as, content, want string }{
		{"a.bam", "", "no BAM", `"a.bam" is not a whole BAM file: it does not begin with a BGZF block`},
		{"a.bam", "BAM", bam[:len(bam)-30], "cut short"},
		{"x", "BAM", "hello\n", `is not a whole BAM file`},
		{"r.fastq.gz", "", cut, "cut short"},
		{"r.fq.gz", "", record, "begin with a gzip header"},
		{"r.fq.gz", "", string(gz("@r\nACGT\n+\nII\n")), "record 1, which begins at line 1: its sequence has 4 letters, but its first line of " +
			"quality has 2"},
		{"r.fq.gz", "FASTQ_GZ", string(gz(strings.Repeat(record, 9) + "@r\nACGT\n+\nIIIII\n")),
			"record 10, which begins at line 37: its sequence has 4 letters, and its quality is longer"},
		{"r.fq.gz", "", string(gz("text\n")), "it does not begin with a record"},
		{"r.fq.gz", "", string(gz(record)) + "notes\n", "its gzip data end at byte"},
		{"x", "", cut, "cut short"}, // known by its content
		{"ref.fa.gz", "", string(gz(">x\n" + noise(9000)))[:1000], "gzip file: it is cut short"},
		{"big.json", "", "[" + strings.Repeat("1,", filetype.HeadBytes), "does not end"},
		{"x", "JSON", "{", "does not end"},
	} {
		put(t, root+"/"+c.file, c.content)
		for way, do := range map[string]func(*Importer) (Imported, error){
			"path": func(im *Importer) (Imported, error) { return im.ImportFile(t.Context(), root+"/"+c.file, inP) },
			"upload": func(im *Importer) (Imported, error) {
				return im.ImportStream(t.Context(), strings.NewReader(c.content), -1, c.file, nil)
			},
			"rehearsal": func(im *Importer) (Imported, error) {
				return im.Rehearsal().ImportFile(t.Context(), root+"/"+c.file, inP)
			},
		} {
			got, err := do(im.As(c.as))
			if fault.CodeOf(err) != ImportFormat || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(),
				"import the whole file again") {
				t.Errorf("%s as %q by %s: %s %s, %v; want %s with %q", c.file, c.as, way, got.Type, got.SHA256, err,
					ImportFormat, c.want)
			}
		}
		if got, err := im.As("UNKNOWN").ImportFile(t.Context(), root+"/"+c.file, inP); err != nil || got.Type != "UNKNOWN" {
			t.Errorf("%s as UNKNOWN: type %s, %v; want UNKNOWN", c.file, got.Type, err)
		}
	}
	if _, err := im.As("JSON").ImportText(t.Context(), "{"); fault.CodeOf(err) != ImportFormat || !strings.Contains(err.Error(),
		"the text is not a whole JSON file") {
		t.Error(err)
	}
	before := len(listed(t, dir))
	_, err := im.As("JSON").ImportText(t.Context(), "{ ")
	if after := len(listed(t, dir)); err == nil || after != before {
		t.Errorf("%v; %d objects, %d before", err, after, before)
	}
}

// A gateway with full checks inflates large files too.
func TestImportFull(t *testing.T) {
	im, root, _ := newImporter(t, 100<<20)
	large := stored(longRead(filetype.MaxInflated + 1<<20))
	put(t, root+"/r.fastq.gz", large[:len(large)-1])
	_, err := im.As("FASTQ_GZ").ImportFile(t.Context(), root+"/r.fastq.gz", inP)
	must(t, err)
	im.full = true
	if _, err = im.As("FASTQ_GZ").ImportFile(t.Context(), root+"/r.fastq.gz", inP); fault.CodeOf(err) != ImportFormat ||
		!strings.Contains(err.Error(), "cut short") {
		t.Error(err)
	}
}

// stored returns gzip data without compression.
func stored(text string) string {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.NoCompression)
	w.Write([]byte(text))
	w.Close()
	return out.String()
}

// BenchmarkPut compares hashing and storing with and without each check.
func BenchmarkPut(b *testing.B) {
	const size = 32 << 20
	text := strings.Repeat("["+noise(62)+"\n", size/64)
	var blocks strings.Builder
	for blocks.Len() < size {
		blocks.WriteString(block("BAM\x01" + noise(60_000)))
	}
	blocks.WriteString(bgzfEnd)
	for _, c := range []struct{ name, typ, file string }{
		{"none", "TEXT", text},
		{"lines", "TSV", text},
		{"JSON", "JSON", "[" + strings.Repeat(`{"a":1.5,"b":"text"},`, size/21) + "0]"},
		{"BAM", "BAM", blocks.String()},
		{"gzip/full", "gzip", string(gz(noise(4 * size)))},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, _ := newStore(b)
			b.SetBytes(int64(len(c.file)))
			for b.Loop() {
				check := filetype.NewChecker(c.typ, filetype.Checks{Full: true, Rows: c.name == "lines"})
				if _, _, err := s.Put(context.Background(), io.TeeReader(strings.NewReader(c.file), check), 1<<40); err != nil {
					b.Fatal(err)
				}
				must(b, check.Finish())
				check.Close()
			}
		})
	}
}

// Reads come in through every way as people have them: none at all, lanes joined that were packed differently, padded
// with zeros, with the line ends of another system. All of them are counted.
func TestReadsAsTheyCome(t *testing.T) {
	im, root, _ := newImporter(t, 1<<20)
	four := strings.Repeat(record, 4)
	blocked := block(four) + bgzfEnd
	for _, c := range []struct {
		name, content string
		lines         int64
	}{
		{"control.fastq.gz", string(gz("")), 0},
		{"control-bgzf.fq.gz", bgzfEnd, 0},
		{"lanes.fastq.gz", blocked + string(gz(record+record+record)), 28},
		{"lanes-turned.fastq.gz", string(gz(record+record+record)) + blocked, 28},
		{"padded.fastq.gz", string(gz(four)) + strings.Repeat("\x00", 1000), 16},
		{"crlf.fastq.gz", string(gz(strings.ReplaceAll(four, "\n", "\r\n"))), 16},
	} {
		put(t, root+"/"+c.name, c.content)
		if got, err := im.ImportFile(t.Context(), root+"/"+c.name, inP); err != nil || got.Type != "FASTQ_GZ" {
			t.Errorf("import of %s: type %s, %v; want FASTQ_GZ", c.name, got.Type, err)
		}
		for _, full := range []bool{true, false} {
			check := filetype.NewChecker("FASTQ_GZ", filetype.Checks{Full: full, Rows: true, Size: int64(len(c.content))})
			io.WriteString(check, c.content)
			if err := check.Finish(); err != nil || check.Lines() != c.lines {
				t.Errorf("check of %s (full: %t): %v, %d lines; want %d", c.name, full, err, check.Lines(), c.lines)
			}
		}
	}
	// what is wrong is named, with a way out that works
	for content, want := range map[string]string{
		string(gz(four)) + "notes\n":        "its gzip data end at byte",
		blocked[:len(blocked)-len(bgzfEnd)]: "the BGZF end marker is missing",
	} {
		put(t, root+"/r.fastq.gz", content)
		_, err := im.ImportFile(t.Context(), root+"/r.fastq.gz", inP)
		if fault.CodeOf(err) != ImportFormat || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "zcat FILE") {
			t.Errorf("import of a file that can be written anew: %v, want %q and how", err, want)
		}
	}
}
