package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/app"
)

// Lanes of a sample have their rows in the names of their files, also while only one of them has succeeded, and are one sample.
func TestCollectNamesLanes(t *testing.T) {
	row := func(n int, sample, state string) app.BatchRowDoc {
		r := app.BatchRowDoc{Row: n, Sample: sample, State: state}
		if state == "succeeded" {
			r.Outputs = []app.BatchOutput{{Role: "out", Name: "x.txt"}}
		}
		return r
	}
	for name, c := range map[string]struct {
		layout  string
		rows    []app.BatchRowDoc
		want    []string
		samples int
	}{
		"two lanes": {"{sample}/", []app.BatchRowDoc{row(2, "A", "succeeded"), row(3, "A", "succeeded"), row(4, "B", "succeeded")},
			[]string{"A/row-2.x.txt", "A/row-3.x.txt", "B/x.txt"}, 2},
		"one so far": {"{sample}/", []app.BatchRowDoc{row(2, "A", "succeeded"), row(3, "A", "running")}, []string{"A/row-2.x.txt"}, 1},
		"by row":     {"{sample}/{row}/", []app.BatchRowDoc{row(2, "A", "succeeded"), row(3, "A", "failed")}, []string{"A/2/x.txt"}, 1},
	} {
		files, err := batchCollectCmd{Layout: c.layout}.places("t.x", c.rows)
		if err != nil {
			t.Fatal(name, err)
		}
		var got []string
		for _, f := range files {
			got = append(got, f.Path)
		}
		if diff := cmp.Diff(c.want, got); diff != "" || samplesOf(files) != c.samples {
			t.Errorf("%s: %d samples, want %d; files (-want +got):\n%s", name, samplesOf(files), c.samples, diff)
		}
	}
}

// No cell of the manifest is a formula to a spreadsheet.
func TestManifestHasNoFormula(t *testing.T) {
	path := filepath.Join(t.TempDir(), manifestName)
	must(t, writeManifest(path, []collected{{Sample: "=cmd|' /C calc'!A0", Tool: "t.x", Role: "out", Path: "=cmd/x.txt"}}))
	data, err := os.ReadFile(path)
	must(t, err)
	for line := range strings.Lines(string(data)) {
		for cell := range strings.SplitSeq(strings.TrimSpace(line), "\t") {
			if strings.HasPrefix(strings.Trim(cell, `"`), "=") {
				t.Errorf("the manifest has the cell %s, which a spreadsheet takes for a formula", cell)
			}
		}
	}
}
