package run

import (
	"strconv"
	"strings"
	"testing"

	"slurmgate/secrets"
)

func TestLooksWrong(t *testing.T) {
	for line, want := range map[string]bool{
		"[E::bgzf_read_block] Failed to read BGZF block data":                      true,
		"[W::bam_hdr_read] EOF marker is absent. The input is probably truncated":  true,
		"[ERRO] reads.fastq.gz: fastx: bad fastq format":                           true,
		"[WARNING] failed to parse the first FASTA/FASTQ record. Continue anyway.": true,
		"Traceback (most recent call last):":                                       true,
		"Segmentation fault (core dumped)":                                         true,
		"Error in read.table: no lines":                                            true,
		"Exception in thread main":                                                 true,
		"0 errors, but one fatal":                                                  true,
		"[M::worker_pipeline::0.003*2.60] mapped 8 sequences":                      false,
		"0 errors":                         false,
		"finished without errors":          false,
		"Error rate: 0.01":                 false,
		"sequencing error profile written": false,
		"errors: 0":                        false,
		"mean 4.2, standard error 0.3":     false,
		"cutadapt --error-rate 0.1 --max-expected-errors=2": false,
		"No. of allowed errors: 1":                          false,
		"reading terrors.txt":                               false,
	} {
		if got := looksWrong(line); got != want {
			t.Errorf("looksWrong(%q) = %v, want %v", line, got, want)
		}
	}
}

// Whatever a program prints, the warning about it is short, printable and on one line.
func FuzzStderr(f *testing.F) {
	for _, s := range []string{"error\n", "\x1b[31mERRO\x1b[0m\xff", "0 errors\r--error-rate=1", "no error: failed to\u2028",
		strings.Repeat("error \u00e9", 99)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		failure, warnings := judgeStderr([]byte(text), nil, secrets.Default())
		if failure != "" || len(warnings) > 1 {
			t.Errorf("judgeStderr(%q) = %q, %q, want no failure and at most one warning", text, failure, warnings)
		}
		for _, w := range warnings {
			if len(w) > 3000 || strings.ContainsFunc(w, func(c rune) bool { return !strconv.IsGraphic(c) }) {
				t.Errorf("the warning is %q, want at most 3000 bytes of graphic characters", w)
			}
		}
	})
}
