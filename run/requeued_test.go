package run_test

import (
	"strings"
	"testing"

	"slurmgate/run"
)

// A job that Slurm stops and queues again after its script took the claim can never execute: the run does not wait for
// it. The files of the first start decide how the attempt ended.
func TestRequeuedJobCannotExecute(t *testing.T) {
	for name, c := range map[string]struct {
		left  func(w *world, j *job) // files of the first start
		state run.State
		want  string
	}{
		"nothing left":             {func(*world, *job) {}, run.Failed, "preempted"},
		"stopped":                  {func(w *world, j *job) { w.exitFile(j, 143, "terminated") }, run.Failed, "preempted"},
		"the program had failed":   {func(w *world, j *job) { w.exitFile(j, 3, "tool_failed") }, run.Failed, "tool_failed"},
		"the program had ended":    {func(w *world, j *job) { w.finish(j) }, run.Succeeded, "ok"},
		"its script did not start": {nil, run.Queued, "waiting_in_slurm"},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			a := w.life().submit(order())
			w.until(a.RunID, in(run.Pending))
			w.with(func() {
				j := w.jobs[0]
				if c.left != nil {
					w.start(j)
					c.left(w, j)
				}
				j.State, j.Class, j.Why, j.Restarts, j.Started, j.Ended, j.ExitCode = "PENDING", run.ClassPending, "BeginTime", 1, nil, nil, nil
			})
			if c.left == nil { // its claim is free, so the next start executes it
				w.until(a.RunID, func(v run.View) bool { return v.Run.Detail == "BeginTime" })
				w.with(func() { w.jobs[0].Restarts = 0; w.auto = true })
				w.want(w.until(a.RunID, done), run.Succeeded, "ok")
				return
			}
			v := w.ended(a.RunID, c.state, c.want)
			if c.want == "preempted" && !strings.Contains(v.Run.Detail, "queued it again") {
				t.Errorf("the detail is %q, want it to say that Slurm queued the job again", v.Run.Detail)
			}
			w.with(func() {
				if s := w.jobs[0].State; s != "CANCELLED" {
					t.Errorf("the job that cannot execute is %s in Slurm, want CANCELLED", s)
				}
			})
		})
	}
}

// A run's reason is that Slurm has suspended its job, until the job has resumed.
func TestSuspendedJobIsNamed(t *testing.T) {
	for _, state := range []string{"SUSPENDED", "STOPPED"} {
		bubble(t, func(t *testing.T, w *world) {
			a := w.life().submit(order())
			w.with(func() { w.start(w.jobs[0]); w.jobs[0].State = state })
			w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == run.InJob && v.Run.Reason == run.Suspended })
			w.with(func() { w.jobs[0].State = "RUNNING" })
			w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == run.InJob && v.Run.Reason == "" })
		})
	}
}

// A run whose job waits for something that time does not resolve has that reason, and offers the cancel first, until
// the job is changed.
func TestPendingForGood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a := w.life().submit(order())
		w.with(func() { w.jobs[0].Why = "QOSMaxCpuPerJobLimit" })
		v := w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == run.NeverStarts })
		if next := run.NextSteps(v); next[0].Verb != "slurm.job.cancel" {
			t.Errorf("the first next step of a run that never starts is %s, want slurm.job.cancel", next[0].Verb)
		}
		w.with(func() { w.jobs[0].Why = "Resources" })
		w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "waiting_in_slurm" && v.Run.Detail == "Resources" })
	})
}
