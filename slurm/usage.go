package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// usageFields lists sacct's fields of what a job used. Memory is in the records of its steps, which have the job's id
// with a suffix. No field holds a text that a user wrote, so the answer can be read line by line.
const usageFields = "JobID,Submit,ElapsedRaw,TotalCPU,MaxRSS,AllocCPUS"

// Usage returns what ended jobs of this user, submitted since a time, used; run.Accounting has the contract. It costs one RPC
// to slurmdbd for any number of jobs.
func (c *CLI) Usage(ctx context.Context, since time.Time, of ...run.JobKey) ([]run.Usage, error) {
	if c.cfg.AllUsers {
		return c.usageOf(ctx, since, of)
	}
	out, err := c.ask(ctx, rpcAccounting, answered, "sacct",
		"--duplicates", "--array", "--parsable2", "--noheader", "--user="+c.cfg.User, "--starttime="+sacctTime(since),
		"--format="+usageFields)
	if err != nil {
		return nil, notKept(out, err)
	}
	list, err := c.usages(string(out.Stdout), false)
	c.heardWith(out, list, of)
	return list, err
}

// heardWith records as harmless what sacct prints on standard error if its answer has all the requested jobs.
func (c *CLI) heardWith(out Output, list []run.Usage, of []run.JobKey) {
	has := func(k run.JobKey) bool {
		return slices.ContainsFunc(list, func(u run.Usage) bool { return u.JobID == k.ID })
	}
	if len(of) == 0 || slices.ContainsFunc(of, func(k run.JobKey) bool { return !has(k) }) {
		return
	}
	for _, j := range c.unexplained("sacct", out) {
		c.Harmless(j.Why)
	}
}

// usages parses an answer; owners means that the user is the last column.
func (c *CLI) usages(text string, owners bool) ([]run.Usage, error) {
	u, err := parseUsage(text, owners)
	if err != nil {
		return nil, fault.Wrap(fault.Transport, "half_answer", "the answer of sacct is incomplete", err)
	}
	c.reportUnread("sacct", u.unread, u.why, u.example)
	return u.list, nil
}

// usages collects the usage of jobs from an answer, line by line: a job's own record, then those of its steps.
type usages struct {
	list    []run.Usage
	unread  int    // lines that could not be read
	why     string // of the first of them
	example string // its text
	owners  bool   // the user is the last column
}

// parseUsage parses the lines. It leaves out a job if its own line or one of its steps' cannot be read.
func parseUsage(text string, owners bool) (u usages, err error) {
	u.owners = owners
	if text != "" && !strings.HasSuffix(text, "\n") {
		return u, errors.New("the answer breaks off")
	}
	for line := range strings.Lines(text) {
		if err := u.line(strings.TrimSuffix(line, "\n")); err != nil {
			if u.unread++; u.unread == 1 {
				u.why, u.example = err.Error(), fault.Clip(line)
			}
			u.drop(line)
		}
	}
	if u.unread > 0 && len(u.list) == 0 {
		return u, fmt.Errorf("%s in %s", u.why, u.example)
	}
	return u, nil
}

// drop removes the last job if line is one of its steps that cannot be read: its figures would be too small.
func (u *usages) drop(line string) {
	id, _, _ := strings.Cut(line, "|")
	id, _, step := strings.Cut(id, ".")
	if n := len(u.list); step && n > 0 && u.list[n-1].JobID == id {
		u.list = u.list[:n-1]
	}
}

func (u *usages) line(line string) error {
	f, want := strings.Split(line, "|"), 6
	if u.owners {
		want++
	}
	if len(f) != want {
		return fmt.Errorf("%d fields instead of %d", len(f), want)
	}
	id, step, isStep := strings.Cut(f[0], ".")
	rss, err := parseBytes(f[4])
	if err != nil {
		return err
	}
	if isStep {
		if n := len(u.list); step != "extern" && n > 0 && u.list[n-1].JobID == id && rss > 0 {
			u.list[n-1].MaxRSSBytes = max(u.list[n-1].MaxRSSBytes, rss)
		}
		return nil
	}
	job, err := parseJobUsage(id, f)
	if err == nil {
		if u.owners {
			job.User = f[6]
		}
		u.list = append(u.list, job)
	}
	return err
}

func parseJobUsage(id string, f []string) (u run.Usage, err error) {
	id = strings.Split(id, "+")[0]
	if _, _, err = parseID(id); err != nil {
		return u, err
	}
	u.JobID = id
	if u.Submitted, err = parseTime(f[1]); err != nil {
		return u, err
	}
	if u.ElapsedSeconds, err = strconv.ParseInt(f[2], 10, 64); err != nil || u.ElapsedSeconds < 0 {
		return u, fmt.Errorf("no elapsed time")
	}
	if u.CPUSeconds, err = parseCPUTime(f[3]); err != nil {
		return u, err
	}
	if u.AllocCPUs, err = strconv.Atoi(f[5]); err != nil || u.AllocCPUs < 0 {
		return u, fmt.Errorf("no number of CPUs")
	}
	return u, nil
}

// parseBytes parses 12345K, 1.5G, 0 and an empty text (sacct(1): K, M, G, T, P are powers of 1024).
func parseBytes(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	unit := int64(1)
	if i := strings.IndexByte("KMGTP", s[len(s)-1]); i >= 0 {
		s, unit = s[:len(s)-1], 1<<(10*(i+1))
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n < 1<<52/float64(unit)*1024) {
		return 0, fmt.Errorf("no size")
	}
	return int64(n * float64(unit)), nil
}

// parseCPUTime parses [days-][hours:]minutes:seconds[.milliseconds] (sacct(1), TotalCPU).
func parseCPUTime(s string) (sum float64, err error) {
	if s == "" {
		return 0, nil
	}
	days, rest, ok := strings.Cut(s, "-")
	if !ok {
		days, rest = "0", s
	}
	parts := strings.Split(rest, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return 0, fmt.Errorf("no CPU time")
	}
	for i, unit := range []float64{86400, 3600, 60, 1} {
		n, err := strconv.ParseFloat(append([]string{days}, parts...)[i], 64)
		if err != nil || !(n >= 0 && n < 1e6) {
			return 0, fmt.Errorf("no CPU time")
		}
		sum += n * unit
	}
	return sum, nil
}
