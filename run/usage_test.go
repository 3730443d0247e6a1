package run_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

// What jobs used is asked for in bulk and seldom, and found by id and time of submission.
func TestUsageFromAccounting(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto, w.accounting = true, func() ([]run.Job, error) { return nil, nil }
		l := w.life()
		var tokens []string
		for i := range 30 {
			a := l.submit(order(placed("lab", "short", nil, i+1)))
			w.until(a.RunID, done)
			tokens = append(tokens, w.attempt(a.RunID, 1).token)
		}
		w.with(func() {
			for i, j := range w.jobs[:20] {
				other := j.Submitted.Add(-time.Hour) // the id was used before
				w.used = append(w.used, run.Usage{JobID: j.ID, Submitted: &other, ElapsedSeconds: 999}, run.Usage{JobID: j.ID, Submitted: j.Submitted,
					ElapsedSeconds: int64(i), CPUSeconds: 1.5, MaxRSSBytes: 1 << 20, AllocCPUs: 2})
			}
		})
		time.Sleep(20 * time.Minute)
		for i, token := range tokens {
			u, err := w.ledger.Usage(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			var want *run.Usage
			if i < 20 {
				want = &run.Usage{ElapsedSeconds: int64(i), CPUSeconds: 1.5, MaxRSSBytes: 1 << 20, AllocCPUs: 2}
			}
			if d := cmp.Diff(want, u); d != "" {
				t.Errorf("%d: %s", i, d)
			}
		}
		if n := w.count("Usage"); n < 1 || n > 5 {
			t.Errorf("%d queries in twenty minutes", n)
		}
		time.Sleep(2 * time.Hour) // those that accounting never knew are not asked about for ever
		asked := w.count("Usage")
		time.Sleep(24 * time.Hour)
		if n := w.count("Usage"); n != asked {
			t.Errorf("%d more queries in a day without jobs", n-asked)
		}
	})
}
