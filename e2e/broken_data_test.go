package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// packed is text as gzip makes it.
func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// fastq is n reads of 400 bases each.
func fastq(n int) (records []string) {
	bases := strings.Repeat("ACGTTGCA", 50)
	for i := range n {
		records = append(records, fmt.Sprintf("@r%d\n%s\n+\n%s\n", i, bases, strings.Repeat("I", len(bases))))
	}
	return records
}

// Broken reads do not become a success, although the programs exit 0: files that are cut or have a broken record are refused where they
// come in, and what the programs say of other broken data ends the run.
//
// proves ABI-15
func TestBrokenData(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	s.serve()
	good := fastq(20)
	whole := packed(strings.Join(good, ""))
	bam, err := os.ReadFile(host(data("aln.bam")))
	must(t, err)
	for name, content := range map[string]string{
		"cut.fastq.gz": whole[:len(whole)-10], "text.fastq.gz": good[0], "cut.bam": string(bam[:len(bam)/2]),
		"noend.bam": string(bam[:len(bam)-28]), "text.bam": "reads\n",
	} {
		for _, as := range [][]string{nil, {"--type", map[bool]string{true: "BAM", false: "FASTQ_GZ"}[strings.HasSuffix(name, ".bam")]}} {
			if f := s.fails(2, append([]string{"artifact", "import", s.file(name, content)}, as...)...); f.Code != "IMPORT-FORMAT" ||
				!strings.Contains(fmt.Sprintf("%+v", f), "is not a whole") {
				t.Errorf("%s %q: %+v", name, as, f)
			}
		}
	}
	if f := s.fails(2, "run", "samtools.flagstat", "--input", "bam="+s.file("cut.bam", string(bam[:9999]))); f.Code != "IMPORT-FORMAT" {
		t.Errorf("a run of a cut file: %+v", f)
	}
	reads := func(broken string) string {
		return packed(strings.Join(good[:10], "") + broken + strings.Join(good[10:], ""))
	}
	lines := strings.Split(good[0], "\n")
	short := "@short\n" + lines[1] + "\n+\nII\n"
	gap := "@gap\n" + lines[1] + "\n" + lines[3] + "\n"
	for name, c := range map[string]struct{ tool, content, want string }{
		"quality too short, seqkit": {"seqkit.stats", reads(short),
			"record 11, which begins at line 41: its sequence has 400 letters, but its first line of quality has 2"},
		"line missing, seqkit":        {"seqkit.stats", reads(gap), "record 11, which begins at line 41"},
		"garbage, seqkit":             {"seqkit.stats", reads("\x00\x01\xff garbage\n\n\n"), "no record follows record 10: line 41 begins"},
		"quality too short, minimap2": {"minimap2.map", reads(short), "record 11, which begins at line 41"},
		"line missing, minimap2":      {"minimap2.map", reads(gap), "record 11, which begins at line 41"},
		"garbage, minimap2":           {"minimap2.map", reads("garbage\n"), "no record follows record 10: line 41 begins"},
		"garbage at the end": {"minimap2.map", packed(strings.Join(good, "") + "garbage\n"),
			"no record follows record 20: line 81 begins"},
		"end missing, minimap2": {"minimap2.map", packed(strings.Join(good, "") + "@end\n" + lines[1] + "\n+\n"),
			"record 21, which begins at line 81: the file ends within its quality, after 0 of 400"},
	} {
		args := []string{"run", c.tool, "--input", "reads=" + s.file(strings.ReplaceAll(name, " ", "-")+".fastq.gz", c.content)}
		if c.tool == "minimap2.map" {
			args = append(args, "--input", "reference="+data("MT-human.fa.gz"), "--param", "preset=map-ont")
		}
		if f := s.fails(2, args...); f.Code != "IMPORT-FORMAT" || !strings.Contains(fmt.Sprintf("%+v", f), c.want) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// No rule checks a reference, so minimap2's own words end the run.
	for name, reference := range map[string]string{"a broken reference": good[0] + short, "a reference without sequences": "no bases\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.as(t)
			var a submitted
			s.ok(&a, "run", "minimap2.map", "--input", "reads="+s.file("good.fastq.gz", whole), "--param", "preset=map-ont",
				"--input", "reference="+s.file(strings.ReplaceAll(name, " ", "-")+".txt", reference))
			l := s.wait(a.RunID)
			s.endedBadly(l, "failed", "STDERR-FAILURE")
			if l.ExitCode == nil || *l.ExitCode != 0 {
				t.Errorf("%+v", l)
			}
			if l.Roles["alignments"] != "" {
				t.Errorf("an output is registered: %v", l.Roles)
			}
		})
	}
	// A large file is not inflated as it is imported; the pack has it checked before a job gets it.
	t.Run("a large file", func(t *testing.T) {
		t.Parallel()
		s := s.as(t)
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
		must(t, err)
		for range 65 << 20 / (1000 * len(good[0])) {
			w.Write([]byte(strings.Repeat(good[0], 1000)))
		}
		w.Write([]byte(strings.Repeat(good[0], 1000) + short + good[0]))
		must(t, w.Close())
		var a submitted
		r := s.cli("run", "seqkit.stats", "--input", "reads="+s.file("large.fastq.gz", b.String()), "--json")
		if r.code != 0 && r.code != 6 { // 6: it has ended already
			t.Fatal(r)
		}
		must(t, json.Unmarshal(r.stdout, &a))
		l := s.wait(a.RunID)
		if why := l.why(); l.State != "failed" || l.SlurmJobID != nil || !strings.Contains(why, "input_corrupt") || !strings.Contains(why,
			"its first line of quality has 2 characters") {
			t.Errorf("%+v", l)
		}
	})
	// An empty BAM is whole, and flagstat's numbers are right; the pack asks for reads.
	t.Run("no reads", func(t *testing.T) {
		t.Parallel()
		s := s.as(t)
		var a submitted
		s.ok(&a, "run", "samtools.flagstat", "--input", "bam="+s.file("empty.bam", emptyBAM))
		s.endedBadly(s.wait(a.RunID), "failed", "OUTPUT-EXPR")
	})
}

// emptyBAM has a header and no reads: a BGZF block, stored as it is, and the end marker.
var emptyBAM = func() string {
	text := "BAM\x01\x00\x00\x00\x00\x00\x00\x00\x00"
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Extra = []byte{'B', 'C', 2, 0, 0, 0}
	w.Write([]byte(text))
	w.Close()
	block := b.Bytes()
	block[16], block[17] = byte(len(block)-1), 0
	return string(block) + "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x06\x00\x42\x43\x02\x00\x1b\x00\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"
}()
