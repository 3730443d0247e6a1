package run_test

import (
	"fmt"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

// The fake of these tests, held to the suite that the real transport is held to (slurm.TestClusterConformance).
func TestFakeConformance(t *testing.T) {
	var w *world
	runtest.Slurm(t, func(t *testing.T, f func(*testing.T)) {
		bubble(t, func(t *testing.T, world *world) {
			w = world
			f(t)
		})
	}, func(*testing.T) *runtest.Transport { return transport(w) })
}

// transport is the fake without a gateway: time passes by looking at the queue.
func transport(w *world) *runtest.Transport {
	l := w.life()
	w.auto, w.deferred.Scope = true, run.ScopeQOS
	n := 0
	return &runtest.Transport{Submitter: l, Queue: l, Canceller: l, Workspace: l,
		Job: func(t *testing.T, k runtest.Kind) run.JobSpec {
			n++
			token := fmt.Sprintf("%032x", n)
			id := plan.Identity{ToolName: "suite", ParamsHash: token}.RunID()
			if err := l.OpenAttempt(t.Context(), id, 1, token); err != nil {
				t.Fatal(err)
			}
			w.kinds[token] = k
			return run.JobSpec{RunID: id, N: 1, Token: token, JobName: run.JobName(id, 1, token)}
		},
		Slow: func(*testing.T) func() {
			w.with(func() { w.slow = true })
			return func() { w.with(func() { w.slow = false; clear(w.held) }) }
		},
		Until: func(t *testing.T, what string, ok func() bool) {
			t.Helper()
			for range 100 {
				if ok() {
					return
				}
				time.Sleep(time.Second)
			}
			t.Fatalf("no %s", what)
		},
		Executions: func(job run.JobSpec) int { return w.attempt(job.RunID, job.N).executions },
	}
}
