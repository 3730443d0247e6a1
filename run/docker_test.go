package run_test

import (
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
)

// A repeated call of a docker plan returns a run that succeeded, waits for one that is in flight, and executes a failed
// one again; never two at a time. proves ABI-17
func TestDockerReplay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto = true
		o := order()
		o.Params.Spec.Placement, o.Params.Docker = plan.Placement{}, true
		canonical, id, err := o.Identity()
		if err != nil || !strings.Contains(string(canonical), `"docker":{`) {
			t.Fatalf("the order's canonical form is %s %v, want docker in it", canonical, err)
		}
		l := w.life()
		first := l.submit(o)
		if first.RunID != id.RunID() || first.Replayed {
			t.Errorf("the first order is answered %+v, want a new run with its id", first)
		}
		w.until(first.RunID, done)
		again := l.submit(o)
		if !again.Replayed || again.State != run.Succeeded || w.count("Send") != 1 {
			t.Errorf("the order again is answered %+v after %d sends, want the run that succeeded and one send",
				again, w.count("Send"))
		}
	})
	bubble(t, func(t *testing.T, w *world) {
		o := order()
		o.Params.Spec.Placement, o.Params.Docker = plan.Placement{}, true
		l := w.life()
		a := l.submit(o)
		w.until(a.RunID, in(run.Pending))
		if b := l.submit(o); b.RunID != a.RunID || !b.Replayed || w.count("Send") != 1 {
			t.Errorf("the order again, while the run goes on, is answered %+v, want a replay of %s and one send", b, a.RunID)
		}
		l.cancelRun(a.RunID)
		w.until(a.RunID, done)
		w.with(func() { w.auto = true })
		c := l.submit(o)
		v := w.until(a.RunID, func(v run.View) bool { return done(v) && v.Run.AttemptN == 2 })
		if c.RunID != a.RunID || c.Replayed || v.Run.State != run.Succeeded || w.count("Send") != 2 {
			t.Errorf("the order after a cancel is answered %+v, %s after %d sends; want a second attempt that succeeds",
				c, v.Run.State, w.count("Send"))
		}
	})
}
