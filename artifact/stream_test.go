package artifact

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"slurmgate/fault"
)

// What a stream brings is stored once, with the type its content and name give. One that is cut, too large or given up leaves nothing.
func TestImportStream(t *testing.T) {
	im, _, dir := newImporter(t, 100)
	for name, c := range map[string]struct{ content, name, want string }{
		"text": {"hello\n", "", "TEXT"}, "again": {"hello\n", "x.md", "MD"}, "packed": {string(gz(record)), "", "FASTQ_GZ"},
		"named": {"a,b\n1,2\n", "t.csv", "CSV"},
	} {
		got, err := im.ImportStream(t.Context(), strings.NewReader(c.content), -1, c.name, nil)
		if err != nil || got != (Imported{sumOf([]byte(c.content)), int64(len(c.content)), c.want, "upload", nil}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	before := listed(t, dir)
	if len(before) != 3 {
		t.Errorf("%d objects of three contents", len(before))
	}
	cut := func(n int, err error) io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("x", n)), iotest.ErrReader(err))
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		kind fault.Kind
		code string
	}{
		"cut":       {t.Context(), cut(50, io.ErrUnexpectedEOF), fault.Transport, "filesystem"},
		"cut early": {t.Context(), cut(0, errors.New("gone")), fault.Transport, "filesystem"},
		"endless":   {t.Context(), cut(101, io.ErrUnexpectedEOF), fault.Policy, "artifact_too_large"},
		"nothing":   {t.Context(), cut(0, io.EOF), fault.Validation, ImportSize},
		"given up":  {gone, cut(50, io.EOF), fault.Canceled, "canceled"},
	} {
		_, err := im.ImportStream(c.ctx, c.r, -1, "", nil)
		if fault.KindOf(err) != c.kind || fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range listed(t, dir) {
			if strings.Contains(f, "tmp/") {
				t.Errorf("%s left %s", name, f)
			}
		}
	}
}

// The domain's own types are told by content, and only where the domain has them.
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
			t.Errorf("%s, and with types of its own %s", plain, own)
		}
		if bytes.HasPrefix(head, []byte("%PDF-")) && own != "PDF" {
			t.Error(own)
		}
	})
}
