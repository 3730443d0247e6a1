package run_test

import (
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Outputs that take long to read, of many runs of one project, delay neither what is sent nor what another project
// collects.
func TestCollectsLeaveRoom(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const long = 600
		w.auto = true
		w.storing = func(size int) time.Duration {
			if size == long {
				return 10 * time.Minute
			}
			return 0
		}
		l := w.life()
		other := plan.ProjectID("other")
		of := func(project string, n int) run.Order {
			return order(func(p *plan.Params) { p.ProjectID, p.Spec.Resources.TimeLimitSeconds = project, 60+n })
		}
		var mine []string
		for n := range 8 {
			id := l.submit(of(project, n)).RunID
			w.with(func() { w.attempt(id, 1).out["out/t.tsv"] = strings.Repeat("x", long) })
			mine = append(mine, id)
		}
		w.untilAll(mine, in(run.Collecting))
		a := l.submit(of(other, 100))
		began := time.Now()
		w.until(a.RunID, done)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("another project's run took %s, want a minute at most", took)
		}
		w.wantAll(mine, run.Succeeded, "ok")
	})
}

// The detail that a job's outputs cause is bounded.
func TestDetailIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto = true
		w.contracts[packHash] = fault.New(fault.Validation, "OUTPUT-SCHEMA", strings.Repeat("wrong ", 100_000))
		v := w.until(w.life().submit(order()).RunID, done)
		if n := len(v.Run.Detail); v.Run.State != run.Failed || n < 1000 || n > 9<<10 {
			t.Errorf("the run is %s with a detail of %d bytes, want it failed, with 1000 to 9216 bytes", v.Run.State, n)
		}
	})
}
