package run_test

import (
	"sync/atomic"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// What policy allowed when a run was made it may not allow when the run is sent: it is asked again before anything is
// put in place, before each send, and before a new attempt. proves ARC-06
func TestPolicyAtTheBoundary(t *testing.T) {
	denied := fault.New(fault.Policy, "POLICY-CPUS", "policy slurm.max_cpus: at most 1")
	for name, c := range map[string]struct {
		send  func(int) sendKind
		deny  func(w *world, asked int64) bool
		sends int
	}{
		"before staging":      {nil, func(*world, int64) bool { return true }, 0},
		"before another send": {sends(deferSend), func(w *world, _ int64) bool { return w.count("Send") == 2 }, 2},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.send, w.auto = c.send, true
			var asked atomic.Int64
			w.allowed = func(tool string, p plan.Params) error {
				if tool == "" || p.Spec.Resources.CPUs == 0 {
					t.Errorf("policy is asked about the tool %q with %+v, want a tool and its CPUs", tool, p.Spec)
				}
				if c.deny(w, asked.Add(1)) {
					return denied
				}
				return nil
			}
			l, a := w.submitted()
			v := w.ended(a.RunID, run.Failed, "POLICY-CPUS")
			if w.count("Send") != c.sends || v.Attempt.Ending != run.EndedStaging {
				t.Errorf("the denied run was sent %d times and ended as %s, want %d sends and %s",
					w.count("Send"), v.Attempt.Ending, c.sends, run.EndedStaging)
			}
			if _, err := l.engine.Retry(t.Context(), a.RunID, run.RetryOrder{After: 1, Why: "again"}); !fault.Is(err, fault.Policy) {
				t.Error(err)
			}
			if v, err := w.ledger.View(t.Context(), a.RunID); err != nil || v.Run.AttemptN != 1 || w.count("Send") != c.sends {
				t.Errorf("after the denied retry the run is in attempt %d %v with %d sends, want attempt 1 and %d sends",
					v.Run.AttemptN, err, w.count("Send"), c.sends)
			}
		})
	}
}
