package e2e

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	exampleVCF = "##fileformat=VCFv4.2\n##contig=<ID=1,length=1000>\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n" +
		"1\t10\t.\tA\tG\t50\t.\t.\n1\t20\t.\tA\tAT\t60\t.\t.\n1\t30\t.\tC\tT\t5\t.\t.\n"
	exampleTSV  = "sample\tn\na\t1\nb, c\t2\nd\t3\n"
	exampleCSV  = "sample,n\na,1\nb,2\n"
	exampleText = "# Title\n\nOne two two.\nThree <b>two</b>\n"
)

// example is a call of a tool of the example domain, and what its output must be.
type example struct {
	tool   string
	args   []string
	role   string
	typ    string
	image  string
	direct []string // the same program without a container, run where its files are; its standard output is the output
	check  func(t *testing.T, got []byte)
}

func examples(s *site) []example {
	vcf, tsv, csv, text := s.file("v.vcf", exampleVCF), s.file("t.tsv", exampleTSV), s.file("c.csv", exampleCSV), s.file("x.md", exampleText)
	same := func(want string) func(*testing.T, []byte) {
		return func(t *testing.T, got []byte) {
			if string(got) != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
	}
	values := []string{"--param", "values=[3, 1.5, 2]"}
	return []example{
		{tool: "values.sum", args: values, role: "result", typ: "JSON", check: same(`{"count":3,"sum":6.5}` + "\n")},
		{tool: "values.order", args: values, role: "result", typ: "JSON", check: same(`{"values":[1.5,2,3]}` + "\n")},
		{tool: "values.mean", args: []string{"--param", "values=[3, 1]"}, role: "result", typ: "JSON", check: same(`{"mean":2}` + "\n")},
		{tool: "bcftools.filter", args: []string{"--input", "variants=" + vcf, "--param", "min_qual=20", "--param", "kind=snp"},
			role: "filtered", typ: "VCF", image: "bcftools",
			direct: []string{"bcftools", "view", "--no-version", "--include", `QUAL>=20 && TYPE="snp"`, "-O", "v", host(vcf)},
			check: func(t *testing.T, got []byte) {
				if n := bytes.Count(got, []byte("\n1\t")); n != 1 {
					t.Errorf("%d variants", n)
				}
			}},
		{tool: "samtools.sort", args: []string{"--input", "bam=" + data("aln.bam"), "--param", "by=name"}, role: "sorted", typ: "BAM",
			image:  "samtools",
			direct: []string{"samtools", "sort", "--no-PG", "-n", host(data("aln.bam"))}},
		{tool: "samtools.index", args: []string{"--input", "bam=" + data("aln.bam")}, role: "index", typ: "BAI", check: func(t *testing.T,
			got []byte) {
			if !bytes.HasPrefix(got, []byte("BAI\x01")) {
				t.Errorf("the index begins with %q, want that of a BAI file", got[:4])
			}
		}},
		{tool: "seqkit.head", args: []string{"--input", "reads=" + data("reads.fastq.gz"), "--param", "count=7"}, role: "head", typ: "FASTQ_GZ",
			check: func(t *testing.T, got []byte) {
				z := value(gzip.NewReader(bytes.NewReader(got)))(t)
				out := value(io.ReadAll(z))(t)
				if n := bytes.Count(out, []byte("\n")); n != 28 {
					t.Errorf("%d lines", n)
				}
			}},
		{tool: "mlr.csv", args: []string{"--input", "table=" + tsv, "--param", "rows=2"}, role: "csv", typ: "CSV",
			check: same("sample,n\na,1\n\"b, c\",2\n")},
		{tool: "mlr.markdown", args: []string{"--input", "table=" + csv}, role: "markdown", typ: "MD", image: "textkit", direct: []string{"mlr",
			"--icsv", "--omd", "cat", host(csv)}},
		{tool: "cmark.render", args: []string{"--input", "text=" + text}, role: "html", typ: "HTML", image: "textkit", direct: []string{"cmark",
			"--to", "html", host(text)}},
		{tool: "qrencode.label", args: []string{"--param", `text=sample 7; $(reboot) "x"`, "--param", "size=2"}, role: "label", typ: "PNG",
			image:  "textkit",
			direct: []string{"qrencode", "--type=PNG", "--size=2", "--output=-", `sample 7; $(reboot) "x"`}, check: func(t *testing.T, got []byte) {
				if img, err := png.Decode(bytes.NewReader(got)); err != nil || img.Bounds().Dx() < 40 {
					t.Errorf("the label is no picture of 40 pixels and more: %v", err)
				}
			}},
		{tool: "qpdf.pages", args: []string{"--input", "document=" + s.file("three.pdf", examplePDF(3)), "--param", "last=2"}, role: "pages",
			typ: "PDF", check: func(t *testing.T, got []byte) {
				if n := bytes.Count(got, []byte("/Type /Page\n")) + bytes.Count(got, []byte("/Type /Page ")); !bytes.HasPrefix(got,
					[]byte("%PDF-1.")) || n != 2 {
					t.Errorf("%d pages in %.200q", n, got)
				}
			}},
		{tool: "zip.bundle", args: []string{"--input", "first=" + csv, "--input", "second=" + tsv}, role: "bundle", typ: "ZIP",
			check: func(t *testing.T, got []byte) {
				z := value(zip.NewReader(bytes.NewReader(got), int64(len(got))))(t)
				for i, want := range []string{exampleCSV, exampleTSV} {
					f := value(z.File[i].Open())(t)
					if b, err := io.ReadAll(f); err != nil || string(b) != want {
						t.Errorf("%s in the archive is %q (%v), want %q", z.File[i].Name, b, err, want)
					}
				}
			}},
		{tool: "reads.profile", args: []string{"--input", "reads=" + data("reads-small.fastq.gz"), "--param", "first=5"}, role: "summary",
			typ: "JSON", check: sameProfile},
		{tool: "text.words", args: []string{"--input", "text=" + text, "--param", "top=2"}, role: "words", typ: "JSON",
			check: same(`{"lines":4,"distinct":5,"top":[{"word":"two","count":3},{"word":"b","count":2}]}` + "\n")},
		{tool: "text.lines", args: []string{"--input", "text=" + text}, role: "lines", typ: "JSON",
			check: same(fmt.Sprintf(`{"lines":4,"longest":16,"bytes":%d}`, len(exampleText)-4) + "\n")},
	}
}

// examplePDF returns a document of empty pages (ISO 32000-1, 7.5).
func examplePDF(pages int) string {
	var b strings.Builder
	var at []int
	object := func(text string) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", len(at), text)
	}
	b.WriteString("%PDF-1.4\n")
	object("<< /Type /Catalog /Pages 2 0 R >>")
	kids := ""
	for i := range pages {
		kids += fmt.Sprintf("%d 0 R ", 3+i)
	}
	object(fmt.Sprintf("<< /Type /Pages /Count %d /Kids [ %s] >>", pages, kids))
	for range pages {
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Resources << >> >>")
	}
	start := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, n := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", n)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, start)
	return b.String()
}

// sameProfile counts the reads and bases itself.
func sameProfile(t *testing.T, got []byte) {
	f := value(os.Open(host(data("reads-small.fastq.gz"))))(t)
	defer f.Close()
	z := value(gzip.NewReader(f))(t)
	lines := bufio.NewScanner(z)
	reads, bases, gc := 0, 0, 0
	for n := 0; lines.Scan(); n++ {
		if n%4 == 1 {
			reads, bases, gc = reads+1, bases+len(lines.Text()), gc+strings.Count(lines.Text(), "G")+strings.Count(lines.Text(), "C")
		}
	}
	var v struct {
		Reads, Bases, Positions int
		GC                      float64 `json:"gc_percent"`
	}
	must(t, json.Unmarshal(got, &v))
	if v.Reads != reads || v.Bases != bases || v.Positions != 5 || fmt.Sprintf("%.2f", v.GC) != fmt.Sprintf("%.2f",
		100*float64(gc)/float64(bases)) {
		t.Errorf("%s; counted here: %d reads, %d bases, %d G and C", got, reads, bases, gc)
	}
}

// Every example runs: each kind of execution, each type of output. Where the same program can be run without a container, it
// makes the same bytes. Python, Node and PHP get their arguments as a file that is an input of the run.
//
// proves ABI-06 LOAD-05 LOAD-09 ABI-19
func TestExamples(t *testing.T) {
	t.Parallel()
	s := newSite(t, "examples")
	s.serve()
	for _, x := range examples(s) {
		t.Run(x.tool, func(t *testing.T) {
			t.Parallel()
			s := s.as(t)
			var l looked
			s.ok(&l, append(append([]string{"run", x.tool}, x.args...), "--wait")...)
			if l.State != "succeeded" {
				t.Fatalf("%s: %v, want it succeeded", x.tool, l)
			}
			got := s.bytesOf(l.Roles[x.role])
			if x.direct != nil {
				c := exec.Command(filepath.Join(world.repo, "scripts/images/direct"), append([]string{x.image}, x.direct...)...)
				if c.Env = os.Environ(); x.image != "samtools" {
					c.Env = append(c.Env, "SLURMGATE_IMAGES="+filepath.Join(world.repo, "build/images-examples"))
				}
				want := value(c.Output())(t)
				if !bytes.Equal(got, want) {
					t.Errorf("the output differs from the direct one:\n%.300q\n%.300q", got, want)
				}
			}
			if x.check != nil {
				x.check(t, got)
			}
			for _, o := range l.Outputs {
				if o.Role == x.role && o.Type != x.typ {
					t.Errorf("the output %s of %s has the type %s, want %s", o.Role, x.tool, o.Type, x.typ)
				}
			}
			var again submitted
			if s.ok(&again, append([]string{"run", x.tool}, x.args...)...); again.RunID != l.RunID || !again.Replayed {
				t.Errorf("the same call of %s gives %v, want a replay of %s", x.tool, again, l.RunID)
			}
		})
	}
}
