package slurm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

// Records as sacct prints them: a job that ended before the first sample, one with steps, one whose id was used before,
// an array task, a heterogeneous component.
func TestParseUsage(t *testing.T) {
	got, err := parseUsage("1|1795248044|0|00:00.003||2\n1.batch|1795248044|0|00:00.003||2\n"+
		"2|1795248050|3725|01:02:05||2\n2.batch|1795248050|3725|01:02:05|1536K|2\n2.extern|1795248050|3725|00:00:00|9G|2\n2.0|1795248050|10|00:01.500|2M|2\n"+
		"2|1795250000|5|1-00:00:01|0|1\n3_4|1795248044|1|00:00:00||1\n7+0|Unknown|0|00:00:00||1\n", false)
	must(t, err)
	want := []run.Usage{
		{JobID: "1", Submitted: at(1795248044), CPUSeconds: 0.003, AllocCPUs: 2},
		{JobID: "2", Submitted: at(1795248050), ElapsedSeconds: 3725, CPUSeconds: 3725, MaxRSSBytes: 2 << 20, AllocCPUs: 2},
		{JobID: "2", Submitted: at(1795250000), ElapsedSeconds: 5, CPUSeconds: 86401, AllocCPUs: 1},
		{JobID: "3_4", Submitted: at(1795248044), ElapsedSeconds: 1, AllocCPUs: 1},
		{JobID: "7", AllocCPUs: 1},
	}
	if d := cmp.Diff(want, got.list); d != "" {
		t.Errorf("the usage differs (-want +got):\n%s", d)
	}
	for _, bad := range []string{"1|1|1|00:00|", "1|1|1|00:00||1", "1|1|1|00:00||1|\n", "x|1|1|00:00||1\n", "1|1|x|00:00||1\n",
		"1|1|1|0||1\n", "1|1|1|00:00|5X|1\n", "1|1|1|00:00|-5K|1\n",
		"1|1|1|00:00||\n", "1|1|1|NaN:00||1\n", "1|1|-1|00:00||1\n", "1|1|1|00:00||-1\n", "1|1|1|00:00|NaN|1\n", "1|1|1|00:00|1e300P|1\n"} {
		if got, err := parseUsage(bad, false); err == nil {
			t.Errorf("parseUsage(%q) gives %d jobs, want an error", bad, len(got.list))
		}
		if !strings.HasSuffix(bad, "\n") {
			continue
		}
		// With other records around it, an unreadable one concerns one job.
		got, err := parseUsage("8|1|7|00:00||1\n8.batch|1|7|00:00|2K|1\n"+bad+"9|1|7|00:00||1\n", false)
		want := []run.Usage{{JobID: "8", Submitted: at(1), ElapsedSeconds: 7, AllocCPUs: 1, MaxRSSBytes: 2048},
			{JobID: "9", Submitted: at(1), ElapsedSeconds: 7, AllocCPUs: 1}}
		if d := cmp.Diff(want, got.list); d != "" || err != nil || got.unread != 1 || got.why == "" || got.example == "" {
			t.Errorf("parseUsage with %q has %d lines unread (%q), error %v; want one with its reason and no difference (-want +got):\n%s",
				bad, got.unread, got.why, err, d)
		}
	}
	// Without the figure of a step the job's own figure would be too small.
	got, err = parseUsage("8|1|7|00:00||1\n8.batch|1|7|00:00|much|1\n9|1|7|00:00||1\n", false)
	if err != nil || len(got.list) != 1 || got.list[0].JobID != "9" || got.unread != 1 {
		t.Errorf("parseUsage gives %d jobs and %d lines unread, %v; want job 9 alone and one line unread", len(got.list), got.unread, err)
	}
}

// One query, in UTC, for this user alone.
func TestUsageAsks(t *testing.T) {
	c, r := fakeCLI(t)
	r.answer("sacct --dup", Output{Stdout: []byte("1|1795248044|0|00:00.003||2\n")})
	list, err := c.Usage(t.Context(), time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC))
	if err != nil || len(list) != 1 {
		t.Errorf("Usage gives %d jobs, %v, want one", len(list), err)
	}
	if args := r.last(); !slices.Contains(args.Args, "--starttime=2026-11-21T06:00:00") || !slices.Contains(args.Args, "--user=lab") ||
		!slices.Contains(args.Env, "TZ=UTC") {
		t.Errorf("sacct was called with %q and the environment %q, want the start in UTC and the user lab",
			args.Args, args.Env)
	}
}

func FuzzParseUsage(f *testing.F) {
	f.Add("2|1795248050|3725|01:02:05||2\n2.batch|1795248050|3725|01:02:05|1536K|2\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseUsage(text, false)
		for _, u := range got.list {
			if err == nil && (u.ElapsedSeconds < 0 || u.CPUSeconds < 0 || u.MaxRSSBytes < 0 || u.AllocCPUs < 0) {
				t.Errorf("parseUsage gives %d s, %g CPU s, %d bytes and %d CPUs, want no negative number",
					u.ElapsedSeconds, u.CPUSeconds, u.MaxRSSBytes, u.AllocCPUs)
			}
		}
	})
}
