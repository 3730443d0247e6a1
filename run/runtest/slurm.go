// Package runtest is what every Slurm transport does, the real one and the fake that the tests of package run use: one suite for both,
// so that the fake promises nothing that Slurm does not keep.
//
// Nouns: a transport is a run.Submitter, run.Queue and run.Canceller with one Slurm behind them, and the run.Workspace its jobs
// work in; a kind says what becomes of a job that is sent.
package runtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Kind is what becomes of a job once it is sent.
type Kind string

// The kinds.
const (
	Waits  Kind = "waits"  // accepted, and never started
	Runs   Kind = "runs"   // started, and soon over with exit status 0
	Sleeps Kind = "sleeps" // started, and not over until it is cancelled
	Wrong  Kind = "wrong"  // never accepted, because of what it asks for
	NoRoom Kind = "noroom" // not accepted now, because of how many there are
)

// Transport is what the suite needs of one.
type Transport struct {
	run.Submitter
	run.Queue
	run.Canceller
	run.Workspace
	// Job makes an attempt that nobody has sent, its workspace and script in place.
	Job func(t *testing.T, k Kind) run.JobSpec
	// Slow makes every sbatch from now on take until release is called.
	Slow func(t *testing.T) (release func())
	// Until lets time pass until ok, and fails the test when that does not happen.
	Until func(t *testing.T, what string, ok func() bool)
	// Executions is how often the program of the job was started.
	Executions func(run.JobSpec) int
}

// Slurm is the suite. open makes a transport for one test.
func Slurm(t *testing.T, test func(t *testing.T, f func(*testing.T)), open func(t *testing.T) *Transport) {
	for name, f := range map[string]func(*testing.T, *Transport){
		"accepted": accepted, "sent once": sentOnce, "never sent": neverSent, "rejected": rejected, "deferred": deferred,
		"caller gives up": givenUp,
		"cancel":          cancelled, "cancel a running job": cancelledRunning, "end": ended, "void claim": voidClaim,
		"claim of a job": jobsClaim, "two sends of one attempt": twoSends,
		"patience": patience,
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T) { f(t, open(t)) })
		})
	}
}

// named is what the queue shows of the job's name.
func (x *Transport) named(t *testing.T, job run.JobSpec) []run.Job {
	t.Helper()
	jobs, err := x.Jobs(t.Context(), nil)
	if err != nil {
		t.Fatalf("squeue: %v", err)
	}
	return slices.DeleteFunc(jobs, func(j run.Job) bool { return j.Name != job.JobName })
}

// one is the only job of that name.
func (x *Transport) one(t *testing.T, job run.JobSpec) run.Job {
	t.Helper()
	list := x.named(t, job)
	if len(list) != 1 {
		t.Fatalf("%d jobs have the name %s", len(list), job.JobName)
	}
	return list[0]
}

// sent sends the job, which must be accepted, and sees to it that it does not stay.
func (x *Transport) sent(t *testing.T, job run.JobSpec, k int) string {
	t.Helper()
	res := x.Send(t.Context(), job, k)
	if res.Outcome != run.SendAccepted || res.JobID == "" || res.ExitCode == nil || *res.ExitCode != 0 || res.Code != "" {
		t.Fatalf("send %d: %+v", k, res)
	}
	t.Cleanup(func() {
		if err := x.Cancel(context.Background(), res.JobID, job.JobName); err != nil {
			t.Errorf("scancel: %v", err)
		}
	})
	return res.JobID
}

// receipt is what a send left, once its sbatch is gone.
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

func (x *Transport) class(t *testing.T, job run.JobSpec, c run.Class) (j run.Job) {
	t.Helper()
	x.Until(t, string(c), func() bool { j = x.one(t, job); return j.Class == c })
	return j
}

// A job that was accepted is in the queue, once, under the name and the id that the receipt has.
func accepted(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	if n := len(x.named(t, job)); n != 0 {
		t.Fatalf("%d jobs before anything was sent", n)
	}
	id := x.sent(t, job, 1)
	if res := x.receipt(t, job, 1); res.Outcome != run.SendAccepted || res.JobID != id {
		t.Errorf("the receipt says %+v", res)
	}
	j := x.one(t, job)
	if j.ID != id || j.Class != run.ClassPending || j.State != "PENDING" || j.Submitted == nil || j.Started != nil || j.Ended != nil ||
		j.ExitCode != nil || j.Cluster == "" {
		t.Errorf("%+v", j)
	}
	if x.Executions(job) != 0 {
		t.Error("it was started")
	}
}

// A second Send of one number, by whomever, starts no sbatch and says what the first proved.
func sentOnce(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	id := x.sent(t, job, 1)
	if res := x.Send(t.Context(), job, 1); res.Outcome != run.SendAccepted || res.JobID != id {
		t.Errorf("%+v", res)
	}
	x.one(t, job)
}

// A send that was never begun proves nothing.
func neverSent(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	if res, held := x.Receipt(t.Context(), job, 1); held || res.Outcome != run.SendDoubt || res.JobID != "" {
		t.Errorf("%+v %v", res, held)
	}
}

// A refusal for good has Slurm's name of the reason, then and later, and no job that could run.
func rejected(t *testing.T, x *Transport) {
	refused(t, x, Wrong, run.SendRejected, run.ScopeRun)
}

// Without room the reason says whom it concerns besides.
func deferred(t *testing.T, x *Transport) {
	refused(t, x, NoRoom, run.SendDeferred, run.ScopeQOS)
}

func refused(t *testing.T, x *Transport, k Kind, want run.SendOutcome, scope run.Scope) {
	job := x.Job(t, k)
	res := x.Send(t.Context(), job, 1)
	if res.Outcome != want || res.Scope != scope || res.Code == "" || res.Text == "" || res.JobID != "" || res.ExitCode == nil ||
		*res.ExitCode == 0 {
		t.Errorf("%+v", res)
	}
	if again := x.receipt(t, job, 1); again.Outcome != want || again.Code != res.Code || again.Scope != scope {
		t.Errorf("the receipt says otherwise: %+v", again)
	}
	for _, j := range x.named(t, job) {
		if j.Class != run.ClassEnded {
			t.Errorf("there is a job: %+v", j)
		}
	}
}

// Whoever stops waiting leaves sbatch alone: it is held, then its receipt tells. Meanwhile the send cannot be begun again.
func givenUp(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	release := x.Slow(t)
	ctx, stop := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer stop()
	if res := x.Send(ctx, job, 1); res.Outcome != run.SendDoubt || res.Code != "send_held" {
		t.Errorf("%+v", res)
	}
	if res, held := x.Receipt(t.Context(), job, 1); !held || res.Outcome != run.SendDoubt {
		t.Errorf("%+v %v", res, held)
	}
	if res := x.Send(t.Context(), job, 1); res.Outcome != run.SendDoubt || res.Code != "send_held" {
		t.Errorf("begun again: %+v", res)
	}
	release()
	res := x.receipt(t, job, 1)
	if res.Outcome != run.SendAccepted {
		t.Fatalf("%+v", res)
	}
	if j := x.one(t, job); j.ID != res.JobID {
		t.Errorf("%+v", j)
	}
	if err := x.Cancel(t.Context(), res.JobID, job.JobName); err != nil {
		t.Error(err)
	}
}

// Only id and name together cancel; what is not there is no error.
func cancelled(t *testing.T, x *Transport) {
	job, other := x.Job(t, Waits), x.Job(t, Waits)
	id, otherID := x.sent(t, job, 1), x.sent(t, other, 1)
	for _, c := range []struct{ id, name string }{{id, other.JobName}, {otherID, job.JobName}, {"2147483", job.JobName}} {
		if err := x.Cancel(t.Context(), c.id, c.name); err != nil {
			t.Errorf("cancel %s %s: %v", c.id, c.name, err)
		}
	}
	for _, o := range []run.JobSpec{job, other} {
		if j := x.one(t, o); j.Class != run.ClassPending {
			t.Errorf("cancelled by another's id or name: %+v", j)
		}
	}
	for range 2 {
		if err := x.Cancel(t.Context(), id, job.JobName); err != nil {
			t.Error(err)
		}
	}
	if j := x.class(t, job, run.ClassEnded); j.State != "CANCELLED" || x.Executions(job) != 0 {
		t.Errorf("%+v", j)
	}
	if j := x.one(t, other); j.Class != run.ClassPending {
		t.Errorf("%+v", j)
	}
}

// A running job that is cancelled leaves its exit file, and it says so.
func cancelledRunning(t *testing.T, x *Transport) {
	job := x.Job(t, Sleeps)
	id := x.sent(t, job, 1)
	x.class(t, job, run.ClassRunning)
	x.Until(t, "start of the program", func() bool { return x.Executions(job) == 1 })
	if err := x.Cancel(t.Context(), id, job.JobName); err != nil {
		t.Error(err)
	}
	if j := x.class(t, job, run.ClassEnded); j.State != "CANCELLED" {
		t.Errorf("%+v", j)
	}
	if e := x.exit(t, job); e.Code == 0 || e.Reason != "terminated" || e.Holder.Job != id {
		t.Errorf("%+v", e)
	}
}

func (x *Transport) exit(t *testing.T, job run.JobSpec) run.Exit {
	t.Helper()
	data, err := x.ReadControl(t.Context(), job.RunID, job.N, run.ExitFile, 4096, false)
	if err != nil {
		t.Fatal(err)
	}
	e, err := run.ParseExit(data)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A job that ended well is shown as ended with its exit code; it has the claim, an exit file and a manifest.
func ended(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	id := x.sent(t, job, 1)
	j := x.class(t, job, run.ClassEnded)
	if j.ID != id || j.State != "COMPLETED" || j.ExitCode == nil || *j.ExitCode != 0 || j.Started == nil ||
		j.Ended == nil || j.Node == "" || x.Executions(job) != 1 {
		t.Errorf("%+v, executed %d times", j, x.Executions(job))
	}
	if e := x.exit(t, job); e.Code != 0 || e.Reason != "ok" || e.Holder.Job != id || e.Node != j.Node {
		t.Errorf("%+v", e)
	}
	data, err := x.ReadControl(t.Context(), job.RunID, job.N, run.ManifestFile, 1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := run.ParseManifest(data); err != nil || m.Holder.Job != id {
		t.Errorf("%+v %v", m, err)
	}
}

// Behind the gateway's claim nothing executes, however late the job comes.
func voidClaim(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	void := run.VoidClaim(job.Token)
	for range 2 {
		if got, err := x.TakeClaim(t.Context(), job.RunID, job.N, void); err != nil || string(got) != string(void) {
			t.Fatalf("%q %v", got, err)
		}
	}
	x.sent(t, job, 1)
	if j := x.class(t, job, run.ClassEnded); j.State != "FAILED" || j.ExitCode == nil || *j.ExitCode != run.ExitClaimNotOurs ||
		x.Executions(job) != 0 {
		t.Errorf("%+v, executed %d times", j, x.Executions(job))
	}
	if _, err := x.ReadControl(t.Context(), job.RunID, job.N, run.ExitFile, 4096, false); !fault.Is(err, fault.NotFound) {
		t.Errorf("an exit file of a job that did not execute: %v", err)
	}
}

// Once a job has the claim nobody else gets it, and it names the job.
func jobsClaim(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	id := x.sent(t, job, 1)
	j := x.class(t, job, run.ClassEnded)
	got, err := x.TakeClaim(t.Context(), job.RunID, job.N, run.VoidClaim(job.Token))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := run.ParseClaim(got); err != nil || c.Void || c.Holder.Job != id || c.Token != job.Token || c.Node != j.Node {
		t.Errorf("%q %v", got, err)
	}
}

// Two jobs of one attempt are shown both, and one of them executes.
func twoSends(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	ids := []string{x.sent(t, job, 1), x.sent(t, job, 2)}
	var list []run.Job
	x.Until(t, "end of both jobs", func() bool {
		list = x.named(t, job)
		return len(list) == 2 && list[0].Class == run.ClassEnded && list[1].Class == run.ClassEnded
	})
	codes := map[int]int{}
	for _, j := range list {
		if !slices.Contains(ids, j.ID) || j.ExitCode == nil {
			t.Fatalf("%+v", j)
		}
		codes[*j.ExitCode]++
	}
	if x.Executions(job) != 1 || codes[0] != 1 || codes[run.ExitClaimNotOurs] != 1 {
		t.Errorf("executed %d times; exit codes %v", x.Executions(job), codes)
	}
}

// Slurm says how long it waits for itself.
func patience(t *testing.T, x *Transport) {
	if d, err := x.MessageTimeout(t.Context()); err != nil || d < time.Second || d > time.Hour {
		t.Errorf("%s %v", d, err)
	}
}
