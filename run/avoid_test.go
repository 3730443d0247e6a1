package run_test

import (
	"strings"
	"testing"
	"time"

	"slurmgate/run"
)

// An attempt that failed by a node's fault ends with the fault's name, and the next one does not use that node; the
// run's answers name it.
func TestNodeAtFaultIsAvoided(t *testing.T) {
	for name, c := range map[string]struct {
		reason string // in the exit file; empty: absent
		claim  bool
		code   int
		signal int
		state  string
		ending run.Ending
		avoids bool
	}{
		"no image":                  {"image_missing", true, 91, 0, "FAILED", run.EndedImageMissing, true},
		"no user namespaces":        {"no_user_namespaces", true, 1, 0, "FAILED", run.EndedNoUserNS, true},
		"output file":               {"", false, 0, 53, "FAILED", run.EndedControl, true},
		"another filesystem":        {"", false, 95, 0, "FAILED", run.EndedRunsDirGone, true},
		"broke down while it wrote": {"", true, 94, 0, "FAILED", run.EndedControl, true},
		"unknown, before the claim": {"", false, 1, 0, "FAILED", run.EndedBootFail, true},
		"Slurm sees to that node":   {"", false, 0, 0, "NODE_FAIL", run.EndedNodeFail, false},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.cfg.Attempts = 2
			l, a := w.submitted()
			w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == run.Pending })
			w.with(func() {
				j := w.jobs[0]
				w.start(j)
				if !c.claim {
					at := w.attempt(a.RunID, 1)
					delete(at.ctl, "claim")
					at.executions = 0
				}
				if c.reason != "" {
					w.exitFile(j, c.code, c.reason)
				}
				w.end(j, c.state, c.code)
				j.Signal = c.signal
			})
			v := w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Pending })
			var exclude []string
			w.with(func() { exclude = w.jobs[1].spec.Exclude })
			if (len(exclude) == 1 && exclude[0] == "n1") != c.avoids || len(v.Attempt.Avoid) != len(exclude) {
				t.Fatalf("the second attempt excludes %v and avoids %+v, want n1 in both: %v", exclude, v.Attempt.Avoid, c.avoids)
			}
			if c.avoids {
				if n := v.Attempt.Avoid[0]; n.Node != "n1" || n.Fault != c.ending || n.Attempt != 1 {
					t.Errorf("the attempt avoids %+v, want n1 for how attempt 1 ended", n)
				}
				got, err := l.engine.Get(t.Context(), a.RunID, 0)
				if err != nil || len(got.Warnings) == 0 || !strings.Contains(strings.Join(got.Warnings, "\n"),
					"does not use node n1, where attempt 1 ended as "+
						string(c.ending)) {
					t.Errorf("the warnings are %+v, want one that names n1", got.Warnings)
				}
			}
			w.with(func() {
				w.start(w.jobs[1])
				w.finish(w.jobs[1])
			})
			w.want(w.until(a.RunID, done), run.Succeeded, "ok")
		})
	}
}

// If Slurm has no other node for the job, the run ends with the fault's name, and a retry tries the node again.
func TestNoOtherNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Attempts = 2
		w.send = sends(accept, rejectNodes, accept)
		l, a := w.submitted()
		w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == run.Pending })
		w.with(func() {
			w.start(w.jobs[0])
			w.exitFile(w.jobs[0], 91, "image_missing")
			w.end(w.jobs[0], "FAILED", 91)
		})
		v := w.until(a.RunID, done)
		if v.Run.State != run.Failed || v.Run.Reason != "image_missing" || v.Attempt.Ending != run.EndedRejected || v.Attempt.N != 2 ||
			!strings.Contains(v.Run.Detail, "n1") || !strings.Contains(v.Run.Detail, "no other node") {
			t.Fatalf("the run is %+v\nafter the attempt %+v\nwant it failed, image_missing on n1, and no other node to try",
				v.Run, v.Attempt)
		}
		must(l.engine.Retry(t.Context(), a.RunID, run.RetryOrder{After: 2}))
		v = w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 3 && v.Run.Phase == run.Pending })
		if len(v.Attempt.Avoid) != 0 {
			t.Errorf("the third attempt avoids %+v, want no node", v.Attempt.Avoid)
		}
	})
}

// The list of nodes is bounded, in number and in time, and a name that a job's files could have forged is not passed to
// Slurm.
func TestAvoidIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 22, 15, 0, 0, 0, time.UTC)
	a := run.Attempt{Ending: run.EndedImageMissing}
	for n := range 20 {
		a.N, a.Node = n+1, "node"+string(rune('a'+n))
		a.Avoid = run.AvoidAfter(a, now)
	}
	if len(a.Avoid) != 8 || a.Avoid[7].Node != "nodet" || a.Avoid[0].Node != "nodem" {
		t.Errorf("eight of nine nodes are kept as %+v, want from nodem to nodet", a.Avoid)
	}
	a.Ending = run.EndedPreempted
	if got := run.AvoidAfter(a, now.Add(25*time.Hour)); len(got) != 0 {
		t.Errorf("a day later %+v is avoided, want nothing", got)
	}
	for _, name := range []string{"", "n1,n2", "n[1-9]", "-w", "n1 n2", "../x"} {
		if got := run.AvoidAfter(run.Attempt{Ending: run.EndedImageMissing, Node: name}, now); len(got) != 0 {
			t.Errorf("after a failure on the node %q the run avoids %+v, want nothing", name, got)
		}
	}
}
