package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const fasta = ">one comment\nACGTAC\nggtt\n>two\nTTTTTTTT\n"

// reads runs the command on fasta and returns its FASTQ lines.
func reads(t *testing.T, o options) []string {
	t.Helper()
	var out bytes.Buffer
	if err := run(&out, strings.NewReader(fasta), o); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestWindowsWrapAndStrandsAlternate(t *testing.T) {
	got := reads(t, options{n: 3, length: 4, stride: 4, every: 1 << 30, prefix: "r"})
	want := []string{
		"@r0001 1+", "ACGT", "+", "IIII",
		"@r0002 5-", "CCGT", "+", "IIII", // of ACGG
		"@r0003 9+", "TTAC", "+", "IIII", // round the end
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSubstitutionsAreMarkedAndRepeatable(t *testing.T) {
	o := options{n: 40, length: 10, stride: 10, every: 5, prefix: "r"}
	got := reads(t, o)
	if diff := cmp.Diff(got, reads(t, o)); diff != "" {
		t.Errorf("two runs differ\n%s", diff)
	}
	substituted := 0
	for i := 0; i < len(got); i += 4 {
		want := "ACGTACGGTT"
		if i/4%2 == 1 {
			want = "AACCGTACGT"
		}
		bases, quality := got[i+1], got[i+3]
		for j := range want {
			changed := bases[j] != want[j]
			if changed != (quality[j] == '+') {
				t.Fatalf("read %s: base %d and its quality disagree: %s %s", got[i], j, bases, quality)
			}
			if changed {
				substituted++
			}
		}
	}
	if substituted < 40 || substituted > 160 { // about 400/5
		t.Errorf("%d of 400 bases substituted, want about 80", substituted)
	}
}

func TestRefusals(t *testing.T) {
	good := options{n: 1, length: 4, stride: 1, every: 9}
	for _, tc := range []struct {
		name, fasta, want string
		o                 options
	}{
		{"no sequence", "", "no FASTA", good},
		{"not FASTA", "ACGT\n", "no FASTA", good},
		{"read longer than sequence", ">a\nACG\n", "reads of 4 bases from a sequence of 3", good},
		{"no reads", fasta, "must be positive", options{length: 4, stride: 1, every: 9}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := run(&bytes.Buffer{}, strings.NewReader(tc.fasta), tc.o)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}
