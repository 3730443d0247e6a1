package run_test

import (
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// A job that Slurm cancels because the Prolog of its node failed was not cancelled by a person: another attempt goes to
// another node. Any other CANCELLED of a job whose script never started stays a cancel, with what Slurm shows.
func TestPrologFails(t *testing.T) {
	drained := func(why string, after time.Duration) func(*job) map[string]run.Unusable {
		return func(j *job) map[string]run.Unusable {
			return map[string]run.Unusable{"n1": {State: "drained", Why: why, Since: new(j.Ended.Add(after))}}
		}
	}
	fine := func(*job) map[string]run.Unusable { return nil }
	by := func(who string) func(*world, *job) {
		return func(w *world, j *job) {
			w.accounting = func() ([]run.Job, error) {
				rec := j.Job
				rec.By = who
				return []run.Job{rec}, nil
			}
		}
	}
	for name, c := range map[string]struct {
		nodes   func(*job) map[string]run.Unusable
		more    func(*world, *job)
		claimed bool // the script had started
		again   bool // policy allows another attempt
		ending  run.Ending
		says    string
	}{
		"another attempt":    {nodes: drained("Prolog error", 0), again: true, ending: run.EndedProlog},
		"without accounting": {nodes: drained("Prolog error", time.Second), ending: run.EndedProlog, says: "Prolog failed on node n1"},
		"by Slurm":           {nodes: drained("Prolog error", 0), more: by("0"), ending: run.EndedProlog, says: "Prolog error"},
		"accounting is away": {nodes: drained("Prolog error", 0), more: func(w *world, _ *job) {
			w.accounting = func() ([]run.Job, error) { return nil, errTransient }
		}, ending: run.EndedProlog, says: "Prolog error"},
		"time not known": {nodes: func(*job) map[string]run.Unusable {
			return map[string]run.Unusable{"n1": {State: "drained*", Why: "Prolog failed"}}
		}, ending: run.EndedProlog, says: "Prolog failed"},
		"by a person while the Prolog ran": {nodes: drained("Prolog error", 0), more: by("1001"), ending: run.EndedCancelled, says: "user 1001"},
		"the node is fine":                 {nodes: fine, ending: run.EndedCancelled, says: "node n1, which Slurm has not drained"},
		"drained for its disk":             {nodes: drained("disk errors", 0), ending: run.EndedCancelled, says: "(disk errors)"},
		"drained for another job's Prolog": {nodes: drained("Prolog error", time.Hour), ending: run.EndedCancelled,
			says: "not for a Prolog that failed for this job"},
		"the script had started": {nodes: drained("Prolog error", 0), claimed: true, ending: run.EndedCancelled,
			says: "not through slurmgate"},
		"cancelled through slurmgate first": {nodes: drained("Prolog error", 0), ending: run.EndedCancelled},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			if w.cfg.Attempts = 1; c.again {
				w.cfg.Attempts = 2
			}
			l, a := w.submitted()
			w.until(a.RunID, in(run.Pending))
			if name == "cancelled through slurmgate first" {
				l.cancelRun(a.RunID)
			}
			w.with(func() {
				j := w.jobs[0]
				now := time.Now()
				if j.Node, j.Started = "n1", &now; c.claimed {
					w.start(j)
				}
				w.end(j, "CANCELLED", 0)
				if w.unusable = c.nodes(j); c.more != nil {
					c.more(w, j)
				}
				w.auto = true
			})
			v := w.until(a.RunID, done)
			first, err := w.ledger.Attempts(t.Context(), a.RunID)
			if err != nil {
				t.Fatal(err)
			}
			if first[0].Ending != c.ending {
				t.Errorf("the attempt ended as %s, want %s", first[0].Ending, c.ending)
			}
			switch {
			case c.again:
				w.want(v, run.Succeeded, "ok")
				if avoid := v.Attempt.Avoid; len(avoid) != 1 || avoid[0].Node != "n1" || avoid[0].Fault != run.EndedProlog {
					t.Errorf("the second attempt avoids %v", avoid)
				}
			case (v.Run.State == run.Failed) != (c.ending == run.EndedProlog) || v.Run.AttemptN != 1 || !strings.Contains(v.Run.Detail, c.says):
				t.Errorf("after attempt %d the run is %s: %s; want %q", v.Run.AttemptN, v.Run.State, v.Run.Detail, c.says)
			}
		})
	}
}

// While Slurm does not answer whether the node is at fault, the run waits for a while with that reason; if Slurm cannot
// be queried for nodes, the run is cancelled. Slurm is queried once for all jobs that ended together.
func TestNodeOfCancelledJobUnknown(t *testing.T) {
	for _, what := range []string{"for a while", "silent", "never"} {
		never, silent := what == "never", what == "silent"
		bubble(t, func(t *testing.T, w *world) {
			w.cfg.Attempts = 1
			l := w.life()
			list, ids := several(3)
			l.submitEach(list, in(run.Pending))
			w.with(func() {
				if w.fault = failing(errTransient, "Unusable"); never {
					w.fault = failing(fault.New(fault.NotFound, "not_shown", "it is not shown"), "Unusable")
				}
				for _, j := range w.jobs {
					now := time.Now()
					j.Node, j.Started = "n1", &now
					w.end(j, "CANCELLED", 0)
				}
				w.unusable = map[string]run.Unusable{"n1": {State: "drained", Why: "Prolog error"}}
			})
			for _, id := range ids {
				if never {
					if v := w.until(id, done); v.Run.State != run.Cancelled || !strings.Contains(v.Run.Detail, "cannot be seen here") {
						t.Errorf("the run is %s: %s", v.Run.State, v.Run.Detail)
					}
					continue
				}
				w.until(id, func(v run.View) bool {
					return v.Run.Reason == "collecting_waits" && strings.Contains(v.Run.Detail, "whether its node n1 is at fault is not known")
				})
			}
			if never {
				return
			}
			if silent {
				for _, id := range ids {
					if v := w.until(id, done); v.Run.State != run.Cancelled || !strings.Contains(v.Run.Detail, "could not be asked") {
						t.Errorf("where Slurm never answers for the node the run is %s: %s", v.Run.State, v.Run.Detail)
					}
				}
				return
			}
			before := 0
			w.with(func() { w.fault, before = nil, w.calls["Unusable"] })
			w.wantAll(ids, run.Failed, "prolog_failed")
			if n := w.count("Unusable") - before; n != 1 {
				t.Errorf("Slurm was asked %d times for its nodes, want once", n)
			}
		})
	}
}
