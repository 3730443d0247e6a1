package cli

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"slurmgate/app"
)

// Usage is the verb that adds up a month.
type Usage struct {
	app.UsageArgs
	Format string `help:"Form of the output: table, or csv for spreadsheets and scripts." enum:"table,csv" default:"table" placeholder:"FORMAT"`
}

// Run adds up.
func (c Usage) Run(ctx context.Context, a *Shell) error {
	c.By = strings.ReplaceAll(c.By, " ", "")
	return ask(ctx, a, "usage.month", c.UsageArgs, func(w io.Writer, u app.UsageMonth) {
		if c.Format == "csv" {
			_ = writeUsage(w, u) // the reader has closed the pipe and needs no more
			return
		}
		fmt.Fprintf(w, "jobs that ended in %s (%s)\n", u.Month, u.Zone)
		list(w, strings.Join(append(append([]string{}, u.By...), usageColumns...), "|"), u.Rows, func(r app.UsageRow) []string {
			return append(keysOf(u, r, "unknown"), figuresOf(r, "-")...)
		})
		fmt.Fprintln(w, storedLine(u.Stored))
	})
}

// storedLine returns a sentence about what the caller keeps.
func storedLine(s app.StoredUse) string {
	line := fmt.Sprintf("you keep %d MiB in %d artifacts, in all projects", s.Bytes>>20, s.Artifacts)
	if s.MaxBytes != nil {
		line += fmt.Sprintf(", of at most %d MiB", *s.MaxBytes>>20)
	}
	return line
}

// usageColumns are the columns after those of the grouping.
var usageColumns = []string{"runs", "jobs", "succeeded", "failed", "cancelled", "cpu_hours", "allocated_cpu_hours", "max_memory_bytes",
	"input_bytes", "output_bytes", "unmeasured"}

// writeUsage writes a month as CSV (RFC 4180). What is not known is an empty cell.
func writeUsage(w io.Writer, u app.UsageMonth) error {
	out := csv.NewWriter(w)
	head := append(append([]string{"month", "zone"}, u.By...), usageColumns...)
	if err := out.Write(head); err != nil {
		return err
	}
	for _, r := range u.Rows {
		line := []string{u.Month, cell(u.Zone)}
		for _, key := range keysOf(u, r, "") {
			line = append(line, cell(key))
		}
		if err := out.Write(append(line, figuresOf(r, "")...)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell returns a text that no spreadsheet takes for a formula.
func cell(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n", rune(s[0])) {
		return "'" + s
	}
	return s
}

func keysOf(u app.UsageMonth, r app.UsageRow, unknown string) (out []string) {
	all := map[string]*string{"project": r.Project, "account": r.Account, "caller": r.Caller, "tool": r.Tool}
	for _, name := range u.By {
		if text := all[name]; text != nil {
			out = append(out, *text)
		} else {
			out = append(out, unknown)
		}
	}
	return out
}

func figuresOf(r app.UsageRow, unknown string) []string {
	hours := func(h *float64) string {
		if h == nil {
			return unknown
		}
		return strconv.FormatFloat(*h, 'f', 4, 64)
	}
	memory := unknown
	if r.MaxMemoryBytes != nil {
		memory = strconv.FormatInt(*r.MaxMemoryBytes, 10)
	}
	out := []string{}
	for _, n := range []int64{r.Runs, r.Attempts, r.Succeeded, r.Failed, r.Cancelled} {
		out = append(out, strconv.FormatInt(n, 10))
	}
	out = append(out, hours(r.CPUHours), hours(r.AllocatedCPUHours), memory)
	for _, n := range []int64{r.InputBytes, r.OutputBytes, r.Unmeasured} {
		out = append(out, strconv.FormatInt(n, 10))
	}
	return out
}
