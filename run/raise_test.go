package run_test

import (
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// endLatest ends the latest job of the world.
func (w *world) endLatest(state string, code int, reason string) {
	w.with(func() {
		j := w.jobs[len(w.jobs)-1]
		w.start(j)
		w.end(j, state, code)
		if reason != "" {
			w.exitFile(j, code, reason)
		}
	})
}

// A retry gives its attempt the memory and time that the caller asks for, which the ledger, the job and the answer
// have; the run, its params and its command line stay the same, and later attempts keep the resources.
func TestRaised(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Attempts = 9
		l, a := w.submitted()
		w.until(a.RunID, in(run.Pending))
		w.endLatest("FAILED", 1, "tool_failed")
		w.until(a.RunID, done)

		for name, more := range map[string]plan.MoreResources{
			"less memory than the plan": {MemMB: new(99)}, "less time than the plan": {TimeLimitSeconds: new(59)},
			"more than any plan": {MemMB: new(plan.MaxMemMB + 1)}, "no memory": {MemMB: new(0)},
		} {
			_, err := l.engine.Retry(t.Context(), a.RunID, run.RetryOrder{After: 1, More: more})
			if !fault.Is(err, fault.Validation) || len(fault.ProblemsOf(err)) == 0 {
				t.Errorf("Retry with %s gives %v, want a validation fault with problems", name, err)
			}
		}
		got, err := l.engine.Retry(t.Context(), a.RunID, run.RetryOrder{After: 1, Why: "more",
			More: plan.MoreResources{MemMB: new(400), TimeLimitSeconds: new(120)}})
		if err != nil || got.RunID != a.RunID || got.Attempt != 2 ||
			!slices.ContainsFunc(got.Warnings, func(s string) bool { return strings.Contains(s, "memory from 100 to 400 MiB") }) {
			t.Fatalf("the retry with more memory is answered %+v %v, want the second attempt and a warning of it", got, err)
		}
		v := w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Pending })
		want := plan.Resources{CPUs: 1, MemMB: 400, TimeLimitSeconds: 120}
		if v.Attempt.Resources == nil || *v.Attempt.Resources != want || w.job(1).spec.Spec.Resources != want ||
			!slices.Equal(w.job(1).spec.Spec.Execution.Command.Argv, w.job(0).spec.Spec.Execution.Command.Argv) {
			t.Errorf("the second attempt has %+v and its job %+v, want what was asked for and the same command",
				v.Attempt.Resources, w.job(1).spec.Spec)
		}
		w.endLatest("NODE_FAIL", 1, "") // policy opens attempt 3
		v = w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 3 && v.Run.Phase == run.Pending })
		if v.Attempt.Resources == nil || *v.Attempt.Resources != want || w.job(2).spec.Spec.Resources != want {
			t.Errorf("the third attempt has %+v and its job %+v, want what the second had", v.Attempt.Resources, w.job(2).spec.Spec)
		}
		w.endLatest("FAILED", 1, "tool_failed")
		w.until(a.RunID, done)
		less := run.RetryOrder{After: 3, More: plan.MoreResources{MemMB: new(100), TimeLimitSeconds: new(60)}}
		must(l.engine.Retry(t.Context(), a.RunID, less))
		if v = w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 4 }); v.Attempt.Resources != nil {
			t.Errorf("an attempt with the plan's own resources records %+v, want none beside the plan", v.Attempt.Resources)
		}
		l.wantSame(order(), a.RunID)
	})
}

// The pack's factor raises what an attempt had too little of, as far as the site has it; an amount that the caller
// names replaces it, and a failure of another kind raises nothing.
func TestRetryFactor(t *testing.T) {
	for name, c := range map[string]struct {
		state     string
		code      int
		reason    string
		most      int
		more      plan.MoreResources
		mem, time int
	}{
		"out of memory":           {"OUT_OF_MEMORY", 137, "killed", 0, plan.MoreResources{}, 300, 60},
		"killed":                  {"FAILED", 137, "killed", 0, plan.MoreResources{}, 300, 60},
		"bounded":                 {"OUT_OF_MEMORY", 137, "killed", 250, plan.MoreResources{}, 250, 60},
		"at the bound":            {"OUT_OF_MEMORY", 137, "killed", 100, plan.MoreResources{}, 100, 60},
		"its own amount":          {"OUT_OF_MEMORY", 137, "killed", 0, plan.MoreResources{MemMB: new(200)}, 200, 60},
		"time":                    {"FAILED", 124, "time_limit", 0, plan.MoreResources{}, 100, 180},
		"time by Slurm":           {"TIMEOUT", 0, "", 0, plan.MoreResources{}, 100, 180},
		"another failure":         {"FAILED", 1, "tool_failed", 0, plan.MoreResources{}, 100, 60},
		"time, and memory named":  {"FAILED", 124, "time_limit", 0, plan.MoreResources{MemMB: new(150)}, 150, 180},
		"another failure, bounds": {"FAILED", 1, "tool_failed", 50, plan.MoreResources{}, 100, 60},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.asked.factor, w.most = 3, c.most
			l, a := w.submitted()
			w.until(a.RunID, in(run.Pending))
			w.endLatest(c.state, c.code, c.reason)
			w.until(a.RunID, done)
			next, err := l.engine.NextResources(t.Context(), a.RunID, c.more)
			if _, e := l.engine.Retry(t.Context(), a.RunID, run.RetryOrder{After: 1, More: c.more}); err != nil || e != nil {
				t.Fatalf("NextResources gives %v and Retry %v, want no errors", err, e)
			}
			w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Pending })
			if r := w.job(1).spec.Spec.Resources; r.MemMB != c.mem || r.TimeLimitSeconds != c.time || r != next {
				t.Errorf("the retry asks for %+v, NextResources said %+v; want %d MB and %d s in both", r, next, c.mem, c.time)
			}
		})
	}
	bubbleRun(t, "more than there is", func(t *testing.T, w *world) {
		w.most = 250
		l, a := w.submitted()
		w.until(a.RunID, in(run.Pending))
		w.endLatest("OUT_OF_MEMORY", 137, "killed")
		w.until(a.RunID, done)
		_, err := l.engine.Retry(t.Context(), a.RunID, run.RetryOrder{After: 1, More: plan.MoreResources{MemMB: new(251)}})
		if p := fault.ProblemsOf(err); len(p) != 1 || p[0].Code != "RETRY-RESOURCES" || p[0].Rule != "the largest node: at most 250 MiB" {
			t.Errorf("Retry with more memory than there is gives %v, want RETRY-RESOURCES with the largest node", err)
		}
	})
}
