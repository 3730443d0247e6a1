// Package runtest has one suite for each port of package run, which every implementation passes, real or fake: so the
// fake of package run's tests behaves as the sites do, and a new transport or workspace is right once it passes.
//
//	Renderer    renderer.go
//	Submitter   submitter.go      these four need jobs that run: a [Transport]
//	Queue       queue.go
//	Accounting  accounting.go
//	Canceller   canceller.go
//	arrays      array.go
//	Workspace   workspace.go
//	Images      images.go
package runtest

import (
	"context"
	"slices"
	"testing"

	"slurmgate/run"
)

// Kind is how a job ends once it is sent.
type Kind string

// The kinds.
const (
	Waits  Kind = "waits"  // accepted, and never started; without a queue it is started, and runs until it is cancelled
	Runs   Kind = "runs"   // started, and soon ended with exit status 0
	Sleeps Kind = "sleeps" // started, and runs until it is cancelled
	Wrong  Kind = "wrong"  // never accepted, because of what it asks for
	NoRoom Kind = "noroom" // not accepted now, because of how many there are
)

// Transport is what the suites need of a transport that runs jobs.
type Transport struct {
	run.Submitter
	run.Queue
	run.Accounting
	run.Canceller
	run.Workspace
	// RenderArray is that of [run.Renderer]. Not needed without a queue.
	RenderArray func(run.JobSpec) ([]byte, error)
	// Job makes an attempt that was not sent, with its workspace and script in place.
	Job func(t *testing.T, k Kind) run.JobSpec
	// Slow makes every sbatch from now on run until release is called. Not needed without a queue.
	Slow func(t *testing.T) (release func())
	// Rename gives a job, or a task, another name in Slurm. Not needed without a queue.
	Rename func(t *testing.T, id, name string)
	// Until lets time pass until ok returns true, and fails the test if it never does.
	Until func(t *testing.T, what string, ok func() bool)
	// Executions returns how often the program of the job was started.
	Executions func(run.JobSpec) int
	// Room is the scope of a refusal for lack of room.
	Room run.Scope

	queued bool
	posted bool
}

// Setup makes transports for tests.
type Setup struct {
	// Test runs one test, for instance in a bubble with its own time.
	Test func(t *testing.T, f func(*testing.T))
	// Open makes a transport for one test.
	Open func(t *testing.T) *Transport
	// Direct: there is no queue. Jobs are processes that start immediately or not at all, and are shown while they run;
	// a send has no sbatch.
	Direct bool
	// Posted: a send is a request, so there is no sbatch whose exit status could be seen.
	Posted bool
}

// tests are the tests of one port.
type tests []struct {
	name   string
	queued bool // only with a queue
	f      func(*testing.T, *Transport)
}

func (list tests) run(t *testing.T, s Setup) {
	for _, c := range list {
		if c.queued && s.Direct {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s.Test(t, func(t *testing.T) {
				x := s.Open(t)
				x.queued, x.posted = !s.Direct, s.Posted
				c.f(t, x)
			})
		})
	}
}

// named returns the jobs that the queue shows under the job's name.
func (x *Transport) named(t *testing.T, job run.JobSpec) []run.Job {
	t.Helper()
	jobs, err := x.Jobs(t.Context(), nil)
	if err != nil {
		t.Fatalf("squeue: %v", err)
	}
	return slices.DeleteFunc(jobs, func(j run.Job) bool { return j.Name != job.JobName })
}

// one returns the only job of that name.
func (x *Transport) one(t *testing.T, job run.JobSpec) run.Job {
	t.Helper()
	list := x.named(t, job)
	if len(list) != 1 {
		t.Fatalf("%d jobs have the name %s", len(list), job.JobName)
	}
	return list[0]
}

// sent sends the job, which must be accepted, and cancels it after the test.
func (x *Transport) sent(t *testing.T, job run.JobSpec, k int) string {
	t.Helper()
	res := x.Send(t.Context(), job, k)
	if res.Outcome != run.SendAccepted || res.JobID == "" || !x.exited(res, func(status int) bool { return status == 0 }) || res.Code != "" {
		t.Fatalf("send %d: %+v", k, res)
	}
	t.Cleanup(func() {
		if err := x.Cancel(context.Background(), res.JobID, job.JobName, ""); err != nil {
			t.Errorf("scancel: %v", err)
		}
	})
	return res.JobID
}

// exited reports whether a send's sbatch ended with such a status; without an sbatch, no status may be shown.
func (x *Transport) exited(res run.SendResult, such func(status int) bool) bool {
	if x.posted {
		return res.ExitCode == nil
	}
	return !x.queued || res.ExitCode != nil && such(*res.ExitCode)
}

// receipt returns what a send left, once its sbatch has ended.
func (x *Transport) receipt(t *testing.T, job run.JobSpec, k int) (res run.SendResult) {
	t.Helper()
	x.Until(t, "end of sbatch", func() bool {
		var held bool
		if res, held = x.Receipt(t.Context(), job, k); held && res.Outcome != run.SendDoubt {
			t.Fatalf("a send that is not over says %+v", res)
		}
		return !held
	})
	return res
}

// started waits until the job runs.
func (x *Transport) started(t *testing.T, job run.JobSpec) (j run.Job) {
	t.Helper()
	x.Until(t, "start of the job", func() bool { j = x.one(t, job); return j.Class == run.ClassRunning })
	return j
}

// over waits until the job has ended. Without a queue the job is then no longer shown.
func (x *Transport) over(t *testing.T, job run.JobSpec) (j run.Job) {
	t.Helper()
	x.Until(t, "end of the job", func() bool {
		list := x.named(t, job)
		if len(list) == 1 {
			j = list[0]
		}
		return len(list) == 0 && !x.queued || len(list) == 1 && j.Class == run.ClassEnded
	})
	return j
}

// alive fails the test unless the job waits or runs.
func (x *Transport) alive(t *testing.T, job run.JobSpec) {
	t.Helper()
	want := run.ClassPending
	if !x.queued {
		want = run.ClassRunning
	}
	if j := x.one(t, job); j.Class != want {
		t.Errorf("%+v, want a job that is %s", j, want)
	}
}

func (x *Transport) exit(t *testing.T, job run.JobSpec) run.Exit {
	t.Helper()
	data, err := run.ReadControl(t.Context(), x, job.RunID, job.N, run.ExitFile, 4096, false)
	if err != nil {
		t.Fatal(err)
	}
	e, err := run.ParseExit(data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}
