package run_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

// The usage of jobs is queried in bulk and rarely, and found by id and time of submission.
func TestUsageFromAccounting(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto, w.accounting = true, func() ([]run.Job, error) { return nil, nil }
		l := w.life()
		var tokens []string
		for i := range 6 {
			a := l.submit(order(placed("lab", "short", nil, i+1)))
			w.until(a.RunID, done)
			tokens = append(tokens, w.attempt(a.RunID, 1).token)
		}
		w.with(func() {
			for i, j := range w.jobs[:4] {
				other := j.Submitted.Add(-time.Hour) // the id was used before
				w.used = append(w.used, run.Usage{JobID: j.ID, Submitted: &other, ElapsedSeconds: 999}, run.Usage{JobID: j.ID, Submitted: j.Submitted,
					ElapsedSeconds: int64(i), CPUSeconds: 1.5, MaxRSSBytes: 1 << 20, AllocCPUs: 2})
			}
		})
		time.Sleep(20 * time.Minute)
		for i, token := range tokens {
			u, err := w.ledger.Used(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			var want *run.Usage
			if i < 4 {
				want = &run.Usage{ElapsedSeconds: int64(i), CPUSeconds: 1.5, MaxRSSBytes: 1 << 20, AllocCPUs: 2}
			}
			if d := cmp.Diff(want, u); d != "" {
				t.Errorf("the usage of the run %d differs (-want +got):\n%s", i, d)
			}
		}
		if n := w.count("Usage"); n < 1 || n > 5 {
			t.Errorf("usage was queried %d times in twenty minutes, want 1 to 5", n)
		}
		time.Sleep(2 * time.Hour) // jobs that accounting never knew are not queried for ever
		asked := w.count("Usage")
		time.Sleep(24 * time.Hour)
		w.wantCount("Usage", asked)
	})
}

// A run that ended for lack of memory or time has the limit of its attempt in its reason, and, once accounting was
// queried, how much memory its job used.
func TestLimitAndUseOfAnEnding(t *testing.T) {
	for name, c := range map[string]struct {
		state, exit  string
		used         int64
		reason, then string
	}{
		"memory": {"OUT_OF_MEMORY", "killed", 99 << 20, "out_of_memory: the job used more memory than its limit of 100 MiB",
			"; Slurm's accounting measured 99 MiB at most"},
		"memory that was not measured": {"OUT_OF_MEMORY", "killed", 0, "out_of_memory: the job used more memory than its limit of 100 MiB", ""},
		"the program's time":           {"FAILED", "time_limit", 1 << 20, "time_limit: the program reached its time limit of 60 s", ""},
		"Slurm's time": {"TIMEOUT", "", 1 << 20, "time_limit: Slurm says TIMEOUT; the program's own limit is 60 s",
			""},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.accounting = func() ([]run.Job, error) { return nil, nil }
			l := w.life()
			v := l.ended(nil, func(j *job, a *attempt) {
				if c.exit != "" {
					w.exitFile(j, 137, c.exit)
				}
				w.end(j, c.state, 137)
			})
			reason := func() string {
				a, err := l.engine.Get(t.Context(), v.Run.ID, 0)
				if err != nil || a.Reason == nil {
					t.Fatalf("Get of a run that ended gave no reason: %v", err)
				}
				return *a.Reason
			}
			if got := reason(); got != c.reason {
				t.Errorf("the reason is %q, want %q", got, c.reason)
			}
			w.with(func() {
				w.used = []run.Usage{{JobID: w.jobs[0].ID, Submitted: w.jobs[0].Submitted, ElapsedSeconds: 1, MaxRSSBytes: c.used}}
			})
			time.Sleep(20 * time.Minute)
			if got := reason(); got != c.reason+c.then {
				t.Errorf("after accounting was asked the reason is %q, want %q", got, c.reason+c.then)
			}
		})
	}
}
