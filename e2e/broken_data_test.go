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

// packed compresses text with gzip.
func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// fastq returns n reads of 400 bases each.
func fastq(n int) (records []string) {
	bases := strings.Repeat("ACGTTGCA", 50)
	for i := range n {
		records = append(records, fmt.Sprintf("@r%d\n%s\n+\n%s\n", i, bases, strings.Repeat("I", len(bases))))
	}
	return records
}

// Broken reads do not become a success, although the programs exit 0: files that are cut or have a broken record are
// refused at import, and a program's message about other broken data ends the run.
//
// proves ABI-15
// short: success is proven
func TestBrokenData(t *testing.T) {
	t.Parallel()
	s := newSite(t, "genomics")
	s.serve()
	good := fastq(20)
	whole := packed(strings.Join(good, ""))
	bam := value(os.ReadFile(host(data("aln.bam"))))(t)
	s.refused(2, "IMPORT-FORMAT", "run", "samtools.flagstat", "--input", "bam="+s.file("cut.bam", string(bam[:9999])))
	lines := strings.Split(good[0], "\n")
	short := "@short\n" + lines[1] + "\n+\nII\n"
	// No rule checks a reference, so minimap2's own words end the run.
	for name, reference := range map[string]string{"a broken reference": good[0] + short, "a reference without sequences": "no bases\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s.as(t)
			var a submitted
			s.ok(&a, "run", "minimap2.map", "--input", "reads="+s.file("good.fastq.gz", whole), "--param", "preset=map-ont",
				"--input", "reference="+s.file(strings.ReplaceAll(name, " ", "-")+".txt", reference))
			l := s.wait(a.RunID)
			s.endedBadly(l, "failed", "STDERR-FAILURE", "rejected:alignments")
			if l.ExitCode == nil || *l.ExitCode != 0 {
				t.Errorf("minimap2 on %s ended with the status %v, want 0", name, l.ExitCode)
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
		w := value(gzip.NewWriterLevel(&b, gzip.NoCompression))(t)
		for range 65 << 20 / (1000 * len(good[0])) {
			w.Write([]byte(strings.Repeat(good[0], 1000)))
		}
		w.Write([]byte(strings.Repeat(good[0], 1000) + short + good[0]))
		must(t, w.Close())
		var a submitted
		r := s.cli("run", "seqkit.stats", "--input", "reads="+s.file("large.fastq.gz", b.String()), "--json")
		if r.code != 0 && r.code != 6 { // 6: it has ended already
			t.Fatalf("%v, want exit 0, or 6 where the run has ended", r)
		}
		must(t, json.Unmarshal(r.stdout, &a))
		l := s.wait(a.RunID)
		if why := l.why(); l.State != "failed" || l.SlurmJobID != nil || !strings.Contains(why, "input_corrupt") || !strings.Contains(why,
			"its first line of quality has 2 characters") {
			t.Errorf("on a large broken file %v, want it failed as input_corrupt, without a job", l)
		}
	})
	// An empty BAM is whole, and flagstat's numbers are right; the pack asks for reads.
	t.Run("no reads", func(t *testing.T) {
		t.Parallel()
		s := s.as(t)
		var a submitted
		s.ok(&a, "run", "samtools.flagstat", "--input", "bam="+s.file("empty.bam", emptyBAM))
		s.endedBadly(s.wait(a.RunID), "failed", "OUTPUT-EXPR", "rejected:report")
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
