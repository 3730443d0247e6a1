package run_test

import (
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
)

// A repeated call of a docker plan is answered by a run that succeeded, waits for one that is under way, and executes anew what
// failed; never two at a time. proves ABI-17
func TestDockerReplay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto = true
		o := order()
		o.Params.Spec.Placement, o.Params.Docker = plan.Placement{}, true
		canonical, id, err := o.Identity()
		if err != nil || !strings.Contains(string(canonical), `"docker":{`) {
			t.Fatal(string(canonical), err)
		}
		l := w.life()
		first := l.submit(o)
		if first.RunID != id.RunID() || first.Replayed {
			t.Errorf("%+v", first)
		}
		w.until(first.RunID, done)
		again := l.submit(o)
		if !again.Replayed || again.State != run.Succeeded || w.count("Send") != 1 {
			t.Errorf("%+v, %d sends", again, w.count("Send"))
		}
	})
	bubble(t, func(t *testing.T, w *world) {
		o := order()
		o.Params.Spec.Placement, o.Params.Docker = plan.Placement{}, true
		l := w.life()
		a := l.submit(o)
		w.until(a.RunID, in(run.Pending))
		if b := l.submit(o); b.RunID != a.RunID || !b.Replayed || w.count("Send") != 1 {
			t.Errorf("while it is under way: %+v", b)
		}
		if _, err := l.engine.Cancel(t.Context(), a.RunID, ""); err != nil {
			t.Fatal(err)
		}
		w.until(a.RunID, done)
		w.with(func() { w.auto = true })
		c := l.submit(o)
		v := w.until(a.RunID, func(v run.View) bool { return done(v) && v.Run.AttemptN == 2 })
		if c.RunID != a.RunID || c.Replayed || v.Run.State != run.Succeeded || w.count("Send") != 2 {
			t.Errorf("after a cancel: %+v %s, %d sends", c, v.Run.State, w.count("Send"))
		}
	})
}
