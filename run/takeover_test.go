package run_test

import (
	"testing"

	"slurmgate/run"
)

// After a restore, a run that the ledger does not know and whose workspace has a whole result is collected, not
// computed again. Without the whole manifest, or if the program failed, a person decides as before.
func TestRestoredLedgerCollectsWhatIsWhole(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(a *attempt)
		taken  bool
	}{
		"whole":           {func(*attempt) {}, true},
		"no manifest":     {func(a *attempt) { delete(a.ctl, run.ManifestFile) }, false},
		"no exit record":  {func(a *attempt) { delete(a.ctl, run.ExitFile) }, false},
		"half a manifest": {func(a *attempt) { a.ctl[run.ManifestFile] = a.ctl[run.ManifestFile][:30] }, false},
		"another job's claim": {func(a *attempt) {
			a.ctl[run.ClaimFile] = []byte("slurmgate-claim 1 job=77 task=- restart=0 token=x node=n1\n")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var left *attempt
			var id string
			bubble(t, func(t *testing.T, w *world) {
				w.auto = true
				l := w.life()
				id = l.submit(order()).RunID
				w.want(w.until(id, done), run.Succeeded, "ok")
				left = w.attempts[id+"/1"]
			})
			bubble(t, func(t *testing.T, w *world) { // with a ledger that does not have the run
				c.damage(left)
				w.attempts[id+"/1"] = left
				_, a := w.submitted()
				if c.taken {
					v := w.ended(a.RunID, run.Succeeded, "ok")
					outputs, err := w.ledger.Outputs(t.Context(), id)
					if err != nil || v.Attempt.Token != left.token || len(outputs) == 0 {
						t.Errorf("the run has the token %s and %d outputs (%v), want the workspace's token %s and its outputs", v.Attempt.Token,
							len(outputs), err, left.token)
					}
				} else if a.State != run.Blocked || a.Phase != run.AheadOfLedger {
					t.Errorf("the run is %s (%s), want it blocked as %s", a.State, a.Phase, run.AheadOfLedger)
				}
				w.wantCount("Send", 0)
			})
		})
	}
}
