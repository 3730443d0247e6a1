package run_test

import (
	"slices"
	"strings"
	"testing"

	"slurmgate/plan"
	"slurmgate/run"
)

// hangFirst makes the first sends hang before Slurm has their jobs.
func (w *world) hangFirst(most int) {
	w.hung = map[string]bool{}
	w.send = func(n int) sendKind {
		if n <= most {
			return hangs
		}
		return accept
	}
}

// An sbatch that hangs delays only its own run. The run, the site and the gateway's readiness name the process, and the
// run can be declared absent, which the claim decides.
func TestHungSendHoldsOnlyItsRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.SendsAtOnce, w.cfg.SubmitWait, w.auto = 1, 0, true
		w.cfg.Attempts = 1
		w.hangFirst(1)
		s, _ := gateway(t, w.site("cluster", open))
		first := submit(t, s, w, on("cluster", false))
		w.until(first.RunID, in(run.Submitting))
		second := submit(t, s, w, on("cluster", false, func(p *plan.Params) {
			p.Spec.Execution.Command.Env = map[string]string{"N": "2"}
		}))
		w.want(w.until(second.RunID, done), run.Succeeded, "ok")
		v := w.until(first.RunID, func(v run.View) bool { return v.Run.Reason == run.SendHeld })
		if v.Run.Phase != run.Unconfirmed || !strings.Contains(v.Run.Detail, "process 7") {
			t.Errorf("the run whose sbatch hangs is %s: %s; want it unconfirmed with the process", v.Run.Phase, v.Reason())
		}
		st, _ := s.State("cluster")
		for what, err := range map[string]error{"the site": st.Problem, "readiness": s.Ready()} {
			if err == nil || !strings.Contains(err.Error(), "process 7") || !strings.Contains(err.Error(), first.RunID) {
				t.Errorf("%s says %v, want the process and the run", what, err)
			}
		}
		must(s.DeclareAbsent(t.Context(), first.RunID, "it hangs"))
		w.want(w.until(first.RunID, done), run.Failed, "declared_absent")
		w.with(func() { clear(w.held) })
		w.until(first.RunID, func(run.View) bool { st, _ := s.State("cluster"); return st.Problem == nil })
		if err := s.Ready(); err != nil {
			t.Errorf("when the sbatch has ended, readiness says %v", err)
		}
	})
}

// Runs that could join an array whose sbatch hangs are sent without it.
func TestHungArrayHoldsOnlyItsRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 2)
		w.auto = true
		w.hangFirst(1)
		w.drain = &run.Drain{Queue: true}
		l := w.life()
		list, ids := several(6)
		l.submitEach(list[:2], in(run.Deferred))
		l.engine.SetDrain(nil)
		w.untilAll(ids[:2], in(run.Submitting))
		l.submitAll(list[2:])
		w.wantAll(ids[2:], run.Succeeded, "ok")
		for _, id := range ids[:2] {
			v := w.until(id, func(v run.View) bool { return v.Run.Reason == run.SendHeld })
			if v.Run.Phase != run.Unconfirmed || v.Submission.Array == "" {
				t.Errorf("a run of the array %q that hangs is %s, want unconfirmed", v.Submission.Array, v.Run.Phase)
			}
		}
	})
}

// When so many sends hang that more would only hang too, further runs wait with that reason, until one ends.
func TestHungSendsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.SendsAtOnce, w.cfg.SubmitWait = 4, 0
		w.hangFirst(100)
		l := w.life()
		list, ids := several(12)
		l.submitAll(list)
		in := map[string]int{} // runs by reason
		w.until(ids[11], func(run.View) bool {
			clear(in)
			for _, id := range ids {
				if v, err := w.ledger.View(t.Context(), id); err == nil {
					in[v.Run.Reason]++
				}
			}
			return in[run.SendHeld]+in[run.SendsHang] == len(ids)
		})
		if most := 8 + w.cfg.SendsAtOnce - 1; in[run.SendHeld] < 8 || in[run.SendHeld] > most {
			t.Errorf("%d sends hang, want at least 8 and at most %d", in[run.SendHeld], most)
		}
		w.with(func() {
			w.hangFirst(0) // Slurm has all jobs now
			w.auto = true
			clear(w.held)
		})
		w.wantAll(ids, run.Succeeded, "ok")
	})
}

// A send that hangs as one user delays no other user's sends.
func TestHungSendsOfUser(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.SendsAtOnce, w.cfg.SubmitWait, w.auto = 1, 0, true
		w.cfg.OwnUser = "gateway"
		w.hangFirst(100)
		l := w.life()
		var hers []string
		for i := range 12 {
			hers = append(hers, l.submit(asAnother("alice", i)).RunID)
		}
		w.until(hers[0], func(run.View) bool {
			return slices.ContainsFunc(hers, func(id string) bool {
				v, err := w.ledger.View(t.Context(), id)
				return err == nil && v.Run.Reason == run.SendsHang
			})
		})
		w.with(func() { w.send = nil })
		w.want(w.until(l.submit(order()).RunID, done), run.Succeeded, "ok")
	})
}
