package cli

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/app"
)

// The CSV of a month has one form whatever the names are: no cell is a formula to a spreadsheet, and what is not known is empty, not 0.
//
// proves OPS-03
func TestUsageCSV(t *testing.T) {
	text := func(s string) *string { return &s }
	h, m := 1.5, int64(7)
	var out strings.Builder
	u := app.UsageMonth{Month: "2026-11", Zone: "Europe/Berlin", By: []string{"caller", "project"}, Rows: []app.UsageRow{
		{Caller: text(`=HYPERLINK("http://x","y")`), Project: text("a,b\n\"c"), Runs: 2, Attempts: 3, Succeeded: 1, Failed: 2, CPUHours: &h,
			AllocatedCPUHours: &h, MaxMemoryBytes: &m, OutputBytes: 9},
		{Caller: text("@x"), Project: text("-1+2"), Unmeasured: 1}, {Caller: text("\tx"), Project: nil}}}
	must(t, writeUsage(&out, u))
	got, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	want := [][]string{
		{"month", "zone", "caller", "project", "runs", "jobs", "succeeded", "failed", "cancelled", "cpu_hours", "allocated_cpu_hours",
			"max_memory_bytes", "input_bytes", "output_bytes", "unmeasured"},
		{"2026-11", "Europe/Berlin", `'=HYPERLINK("http://x","y")`, "a,b\n\"c", "2", "3", "1", "2", "0", "1.5000", "1.5000", "7", "0", "9", "0"},
		{"2026-11", "Europe/Berlin", "'@x", "'-1+2", "0", "0", "0", "0", "0", "", "", "", "0", "0", "1"},
		{"2026-11", "Europe/Berlin", "'\tx", "", "0", "0", "0", "0", "0", "", "", "", "0", "0", "0"}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Error(err, d)
	}
}

// The line after the table reports what the caller keeps, and may keep.
func TestStoredLine(t *testing.T) {
	most := int64(5 << 20)
	for want, s := range map[string]app.StoredUse{
		"you keep 3 MiB in 7 artifacts, in all projects":                   {Artifacts: 7, Bytes: 3<<20 + 5},
		"you keep 3 MiB in 7 artifacts, in all projects, of at most 5 MiB": {Artifacts: 7, Bytes: 3 << 20, MaxBytes: &most},
	} {
		if got := storedLine(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
