package run_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// A caller with too many waiting calls: a read that asks for another wait is refused, with advice; a change takes place
// and is answered immediately with what is known.
func TestRefusedWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.waits = func(context.Context) (func(), bool) { return nil, false }
		l := w.life()
		start := time.Now()
		a := l.submit(order())
		if a.RunID == "" || a.Replayed || time.Since(start) != 0 {
			t.Errorf("the order is answered %+v after %s, want at once a new run", a, time.Since(start))
		}
		if _, err := l.engine.Get(t.Context(), a.RunID, time.Minute); fault.CodeOf(err) != "too_many_waits" || fault.RetryOf(err) == 0 ||
			!fault.KindOf(err).Retryable() {
			t.Error(err)
		}
		must(l.engine.Get(t.Context(), a.RunID, 0))
		l.cancelRun(a.RunID)
		w.until(a.RunID, done)
		if _, err := l.engine.Collect(t.Context(), a.RunID, time.Minute); err != nil {
			t.Error("a run that is over needs no wait:", err)
		}
		if b, err := l.engine.Retry(t.Context(), a.RunID, run.RetryOrder{After: 1}); err != nil || b.State == run.Cancelled {
			t.Errorf("the retry is answered %+v %v, want the run under way", b, err)
		}
		w.until(a.RunID, in(run.Pending))
	})
}

// Every wait ends with a resume: after the run's change, after the time, and when the client leaves.
func TestWaitsResume(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var waiting, waited atomic.Int64
		w.waits = func(context.Context) (func(), bool) {
			waiting.Add(1)
			return func() { waiting.Add(-1); waited.Add(1) }, true
		}
		l, a := w.submitted()
		before := waited.Load()
		gone, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		for _, ctx := range []context.Context{t.Context(), gone} {
			must(l.engine.Get(ctx, a.RunID, 5*time.Second))
		}
		if before == 0 || waited.Load() != before+2 || waiting.Load() != 0 {
			t.Errorf("there were %d waits before two Gets, %d after, and %d did not end, want some, two more and 0",
				before, waited.Load(), waiting.Load())
		}
	})
}

// A project may have so many unfinished runs. One more is refused, with advice; a repeated request still finds its run,
// and another project is not affected.
func TestOpenRunsPerProject(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.OpenRuns = 2
		l := w.life()
		request := func(project string, n int) run.Order {
			return order(func(p *plan.Params) {
				p.ProjectID = project
				p.Spec.Execution.Command.Argv = append(p.Spec.Execution.Command.Argv, fmt.Sprint(n))
			})
		}
		first := l.submit(request("proj_a", 0))
		l.submit(request("proj_a", 1))
		if _, err := l.engine.Submit(t.Context(), request("proj_a", 2)); fault.CodeOf(err) != "too_many_runs" || fault.RetryOf(err) == 0 {
			t.Error(err)
		}
		l.wantSame(request("proj_a", 0), first.RunID)
		l.submit(request("proj_b", 2))
		l.cancelRun(first.RunID)
		w.until(first.RunID, done)
		l.submit(request("proj_a", 2))
		if _, err := l.engine.Retry(t.Context(), first.RunID, run.RetryOrder{After: 1}); fault.CodeOf(err) != "too_many_runs" {
			t.Error("a retry opens a run too:", err)
		}
		if err := l.engine.Settled(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A gateway that stops answers the waiting calls with what is known, as if their time were up. proves OPS-01
func TestStopEndsWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, a := w.submitted()
		w.until(a.RunID, in(run.Pending))
		began := time.Now()
		time.AfterFunc(time.Second, l.engine.EndWaits)
		for range 2 { // one that waits, and one that comes later
			v, err := l.engine.Get(t.Context(), a.RunID, time.Minute)
			if took := time.Since(began); err != nil || v.Phase != run.Pending || took != time.Second {
				t.Errorf("Get gives %+v after %s: %v; want the pending run when the waits end, after 1s", v, took, err)
			}
		}
	})
}
