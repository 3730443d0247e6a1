package run_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// The cap is checked in the transaction that opens the attempt: however many runs are requested together, no more are
// accepted than the cap allows, also by a gateway that starts in between. A run that was accepted is answered whatever
// the cap; a refused one leaves nothing stored.
//
// proves OPS-03
func TestCapsHold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto = true
		w.cfg.Ceiling = time.Hour // the test takes a day
		w.admit = func(s run.Share, project, caller run.Spent) error {
			if s.Caller == "prn_busy" && caller.RunsToday > 5 || project.RunsToday > 8 {
				return fault.New(fault.Policy, "cap_reached", "no more today")
			}
			return nil
		}
		l := w.life()
		ask := func(l *life, caller string, n int) (run.SubmitAnswer, error) {
			o := of("", caller, n)
			w.input(o)
			return l.engine.Submit(t.Context(), o)
		}
		var accepted atomic.Int32
		var wg sync.WaitGroup
		for n := range 20 {
			wg.Go(func() {
				if _, err := ask(l, "busy", n); err == nil {
					accepted.Add(1)
				} else if fault.CodeOf(err) != "cap_reached" {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := accepted.Load(); n != 5 {
			t.Errorf("%d runs were accepted, want 5", n)
		}
		time.Sleep(time.Minute)
		l.crash()
		l = w.life()
		refused, replayed := 0, 0
		for n := range 20 {
			switch a, err := ask(l, "busy", n); {
			case err != nil:
				refused++
			case a.Replayed:
				replayed++
			}
		}
		if refused != 15 || replayed != 5 {
			t.Errorf("after a restart %d runs were refused and %d replayed, want 15 and 5", refused, replayed)
		}
		for n := range 4 {
			if _, err := ask(l, "other", n); (err == nil) != (n < 3) {
				t.Errorf("run %d of the project's last three: %v", n, err)
			}
		}
		page, err := w.ledger.List(t.Context(), ledgerAll)
		if err != nil || page.Total.N != 8 {
			t.Errorf("the ledger has %d runs (%v), want 8", page.Total.N, err)
		}
		time.Sleep(24 * time.Hour)
		if _, err := ask(l, "busy", 19); err != nil {
			t.Errorf("Submit on the next day = %v, want no error", err)
		}
	})
}

// A retry is another attempt: beyond the cap it is refused like a new run, and changes nothing.
func TestCapsAndRetries(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(reject)
		most := int64(1)
		w.admit = func(_ run.Share, project, _ run.Spent) error {
			if project.RunsToday > most {
				return fault.New(fault.Policy, "cap_reached", "no more today")
			}
			return nil
		}
		l := w.life()
		id := l.submit(of("", "a", 1)).RunID
		w.until(id, done)
		if _, err := l.engine.Retry(t.Context(), id, run.RetryOrder{After: 1}); fault.CodeOf(err) != "cap_reached" {
			t.Error(err)
		}
		if v := w.until(id, done); v.Run.AttemptN != 1 || v.Run.State != run.Failed {
			t.Errorf("the run is %+v, want failed in its only attempt", v.Run)
		}
		most = 2
		if a, err := l.engine.Retry(t.Context(), id, run.RetryOrder{After: 1}); err != nil || a.Attempt != 2 {
			t.Errorf("Retry under a cap of two gives %+v %v, want attempt 2", a, err)
		}
	})
}
