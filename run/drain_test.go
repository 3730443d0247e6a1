package run_test

import (
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// While a site is drained nothing is sent: a new run is refused with who, when and why, or waits; runs with a job
// continue to their end, and existing runs are replayed. The run that waited is sent when the site is resumed, also by
// a later gateway.
//
// proves OPS-03
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto = false
		l := w.life()
		before := l.submit(order())
		w.until(before.RunID, in(run.Pending))
		d := &run.Drain{Site: "main", Reason: "new disks", By: "user:root", Since: time.Now()}
		l.engine.SetDrain(d)
		other := order(func(p *plan.Params) { p.Spec.Resources.TimeLimitSeconds = 77 })
		w.input(other)
		_, err := l.engine.Submit(t.Context(), other)
		for _, part := range []string{"new disks", "user:root", "main"} {
			if fault.CodeOf(err) != run.Drained || fault.KindOf(err) != fault.Transport || !strings.Contains(err.Error(), part) {
				t.Errorf("an order during the drain is refused with %v, want Drained with %q in it", err, part)
			}
		}
		if err := l.engine.Ready(); fault.CodeOf(err) != run.Drained {
			t.Error(err)
		}
		if again := l.submit(order()); !again.Replayed || len(again.Warnings) == 0 || !strings.Contains(again.Warnings[0], "new disks") {
			t.Errorf("the order again is answered %+v, want the run with the drain as warning", again)
		}
		j := w.job(0)
		w.with(func() { w.start(j) })
		w.with(func() { w.finish(j) })
		if v := w.until(before.RunID, in(run.Done)); v.Run.State != run.Succeeded {
			t.Errorf("the run that had a job before the drain is %+v, want it succeeded", v.Run)
		}

		d.Queue = true
		l.engine.SetDrain(d)
		waits := l.submit(other)
		if waits.Phase != run.Deferred || waits.Reason == nil || !strings.Contains(*waits.Reason, "new disks") || w.count("Send") != 1 {
			t.Errorf("an order during a drain that queues is answered %+v after %d sends, want it deferred, without a send",
				waits, w.count("Send"))
		}
		l.stop()

		w.drain = d
		l = w.life()
		d.Queue = false
		if _, err := l.engine.Retry(t.Context(), waits.RunID, run.RetryOrder{After: 1}); fault.CodeOf(err) == "" {
			t.Error("a run that waits was retried")
		}
		w.wantCount("Send", 1)
		l.engine.SetDrain(nil)
		if v := w.until(waits.RunID, in(run.Pending)); v.Sends != 1 || l.engine.Ready() != nil {
			t.Errorf("after the drain the run is %+v and the engine %v, want one send and ready", v, l.engine.Ready())
		}
		l.stop()
	})
}
