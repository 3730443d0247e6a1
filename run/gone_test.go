package run_test

import (
	"strings"
	"testing"
	"time"

	"slurmgate/run"
)

// A run whose workspace is gone before it is over, as in a ledger restored from a backup older than the removal, waits for a person: nobody
// claims to know whether it was executed, and no new attempt is opened by itself. Cancel resolves it.
func TestWorkspaceGone(t *testing.T) {
	for name, bring := range map[string]func(w *world, id string){
		"pending, and Slurm forgot it": func(w *world, id string) {
			w.until(id, in(run.Pending))
			w.with(func() { w.jobs = nil; delete(w.attempts, id+"/1") })
		},
		"running, and Slurm forgot it": func(w *world, id string) {
			w.with(func() { w.start(w.jobs[0]) })
			w.until(id, in(run.InJob))
			w.with(func() { w.jobs = nil; delete(w.attempts, id+"/1") })
		},
		"Slurm says it ended": func(w *world, id string) {
			w.until(id, in(run.Pending))
			w.with(func() { delete(w.attempts, id+"/1"); w.jobs[0].State, w.jobs[0].Class = "COMPLETED", run.ClassEnded })
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				l := w.life()
				a := l.submit(order())
				bring(w, a.RunID)
				time.Sleep(time.Hour)
				v, err := w.ledger.View(t.Context(), a.RunID)
				if err != nil || v.Run.Phase != run.NeedsOperator || v.Run.AttemptN != 1 || !strings.Contains(v.Run.Detail, "slurmgate cancel") {
					t.Fatalf("%s, attempt %d: %s %v", v.Run.Phase, v.Run.AttemptN, v.Run.Detail, err)
				}
				c, err := l.engine.Cancel(t.Context(), a.RunID, "")
				if err != nil || c.State != run.Cancelled || c.Executed != "maybe" || w.count("Send") != 1 {
					t.Errorf("%+v %v, %d sends", c, err, w.count("Send"))
				}
			})
		})
	}
}
