package runtest

import (
	"context"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Jobs runs the suites of all ports that need jobs.
func Jobs(t *testing.T, s Setup) {
	t.Run("submitter", func(t *testing.T) { Submitter(t, s) })
	t.Run("queue", func(t *testing.T) { Queue(t, s) })
	t.Run("accounting", func(t *testing.T) { Accounting(t, s) })
	t.Run("canceller", func(t *testing.T) { Canceller(t, s) })
	t.Run("arrays", func(t *testing.T) { Arrays(t, s) })
}

// Submitter runs the suite of [run.Submitter], and of the jobs' claims.
func Submitter(t *testing.T, s Setup) {
	tests{
		{"accepted", true, accepted}, {"sent once", false, sentOnce}, {"never sent", false, neverSent}, {"rejected", true, rejected},
		{"deferred", false, deferred}, {"caller gives up", true, givenUp}, {"end", false, ended}, {"void claim", false, voidClaim},
		{"claim of a job", false, jobsClaim}, {"two sends of one attempt", false, twoSends},
	}.run(t, s)
}

// A job that was accepted is in the queue, once, under its name and the id in the receipt.
func accepted(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	if n := len(x.named(t, job)); n != 0 {
		t.Fatalf("%d jobs before anything was sent", n)
	}
	id := x.sent(t, job, 1)
	if res := x.receipt(t, job, 1); res.Outcome != run.SendAccepted || res.JobID != id {
		t.Errorf("the receipt says %+v", res)
	}
	if j := x.one(t, job); j.ID != id || j.Cluster == "" {
		t.Errorf("the queue shows %+v, want the job that was sent and its cluster", j)
	}
	if x.Executions(job) != 0 {
		t.Error("it was started")
	}
}

// A second Send of one number, from any process, starts no sbatch and returns what the first proved.
func sentOnce(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	id := x.sent(t, job, 1)
	x.receipt(t, job, 1) // its sbatch has ended
	var res run.SendResult
	x.Until(t, "free lock", func() bool { // another child of this process holds it from its fork to its exec
		res = x.Send(t.Context(), job, 1)
		return res.Code != run.SendHeld
	})
	if res.Outcome != run.SendAccepted || res.JobID != id {
		t.Errorf("the send again ended as %+v, want accepted as before", res)
	}
	if res := x.receipt(t, job, 1); res.Outcome != run.SendAccepted || res.JobID != id {
		t.Errorf("the receipt says %+v", res)
	}
	x.one(t, job)
}

// A send that was never begun proves nothing, or that nothing was started.
func neverSent(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	want := run.SendDoubt
	if !x.queued {
		want = run.SendNotRun
	}
	if res, held := x.Receipt(t.Context(), job, 1); held || res.Outcome != want || res.JobID != "" {
		t.Errorf("the receipt is %+v, held %v; want the refusal and not held", res, held)
	}
}

// A refusal for good has Slurm's code of the reason, then and later, and no job that could run.
func rejected(t *testing.T, x *Transport) {
	refused(t, x, Wrong, run.SendRejected, run.ScopeRun)
}

// Without room the result has the scope that the reason applies to.
func deferred(t *testing.T, x *Transport) {
	refused(t, x, NoRoom, run.SendDeferred, x.Room)
}

func refused(t *testing.T, x *Transport, k Kind, want run.SendOutcome, scope run.Scope) {
	job := x.Job(t, k)
	res := x.Send(t.Context(), job, 1)
	if res.Outcome != want || res.Scope != scope || res.Code == "" || res.Text == "" || res.JobID != "" ||
		!x.exited(res, func(status int) bool { return status != 0 }) {
		t.Errorf("the send ended as %+v, want refused with scope, code and words", res)
	}
	switch again := x.receipt(t, job, 1); {
	case !x.queued && again.Outcome == run.SendNotRun: // there was no sbatch that could leave a receipt
	case again.Outcome != want || again.Code != res.Code || again.Scope != scope:
		t.Errorf("the receipt says otherwise: %+v", again)
	}
	for _, j := range x.named(t, job) {
		if j.Class != run.ClassEnded {
			t.Errorf("there is a job: %+v", j)
		}
	}
}

// A caller that stops waiting leaves sbatch running: it is held, then its receipt has the result. Meanwhile the send
// cannot be begun again.
func givenUp(t *testing.T, x *Transport) {
	job := x.Job(t, Waits)
	release := x.Slow(t)
	k, res := 0, run.SendResult{Outcome: run.SendNotRun}
	for within := 500 * time.Millisecond; res.Outcome == run.SendNotRun && within < time.Minute; within *= 2 { // until sbatch begins in it
		k++
		ctx, stop := context.WithTimeout(t.Context(), within)
		res = x.Send(ctx, job, k)
		stop()
	}
	if res.Outcome != run.SendDoubt || res.Code != "send_held" {
		t.Errorf("the send that takes too long ended as %+v, want doubt, held", res)
	}
	if res, held := x.Receipt(t.Context(), job, k); !held || res.Outcome != run.SendDoubt {
		t.Errorf("the receipt is %+v, held %v; want doubt, held", res, held)
	}
	if res := x.Send(t.Context(), job, k); res.Outcome != run.SendDoubt || res.Code != "send_held" {
		t.Errorf("begun again: %+v", res)
	}
	release()
	res = x.receipt(t, job, k)
	if res.Outcome != run.SendAccepted {
		t.Fatalf("the receipt is %+v, want accepted", res)
	}
	if j := x.one(t, job); j.ID != res.JobID {
		t.Errorf("the queue shows %+v, want the job of the receipt", j)
	}
	if err := x.Cancel(t.Context(), res.JobID, job.JobName, ""); err != nil {
		t.Error(err)
	}
}

// A job that succeeded has the claim, an exit file and a manifest, all from one execution.
func ended(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	id := x.sent(t, job, 1)
	x.over(t, job)
	if n := x.Executions(job); n != 1 {
		t.Errorf("executed %d times", n)
	}
	e := x.exit(t, job)
	if e.Code != 0 || e.Reason != "ok" || e.Holder.Job != id || e.Node == "" {
		t.Errorf("the exit is %+v, want 0 of its own job on a node", e)
	}
	data, err := run.ReadControl(t.Context(), x, job.RunID, job.N, run.ManifestFile, 1<<20, false)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := run.ParseManifest(data); err != nil || m.Holder != e.Holder {
		t.Errorf("the manifest is %+v %v, want one of the same job as the exit", m, err)
	}
}

// Once the gateway has the claim no job executes, however late it comes.
func voidClaim(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	void := run.VoidClaim(job.Token)
	for range 2 {
		if got, err := x.TakeClaim(t.Context(), job.RunID, job.N, void); err != nil || string(got) != string(void) {
			t.Fatalf("%q %v", got, err)
		}
	}
	x.sent(t, job, 1)
	j := x.over(t, job)
	if x.Executions(job) != 0 || x.queued && (j.State != "FAILED" || j.ExitCode == nil || *j.ExitCode != run.ExitClaimNotOurs) {
		t.Errorf("%+v, executed %d times", j, x.Executions(job))
	}
	if _, err := run.ReadControl(t.Context(), x, job.RunID, job.N, run.ExitFile, 4096, false); !fault.Is(err, fault.NotFound) {
		t.Errorf("an exit file of a job that did not execute: %v", err)
	}
}

// Once a job has the claim no other taker gets it, and it names the job.
func jobsClaim(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	id := x.sent(t, job, 1)
	x.over(t, job)
	got, err := x.TakeClaim(t.Context(), job.RunID, job.N, run.VoidClaim(job.Token))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := run.ParseClaim(got); err != nil || c.Void || c.Holder.Job != id || c.Token != job.Token || c.Node == "" {
		t.Errorf("%q %v", got, err)
	}
}

// Of two jobs of one attempt one executes.
func twoSends(t *testing.T, x *Transport) {
	job := x.Job(t, Runs)
	ids := []string{x.sent(t, job, 1), x.sent(t, job, 2)}
	if ids[0] == ids[1] {
		t.Errorf("both jobs have the id %s", ids[0])
	}
	x.Until(t, "end of both jobs", func() bool {
		list := x.named(t, job)
		for _, j := range list {
			if j.Class != run.ClassEnded {
				return false
			}
		}
		return len(list) == 2 || !x.queued
	})
	codes := map[int]int{}
	for _, j := range x.named(t, job) {
		if j.ExitCode == nil || j.ID != ids[0] && j.ID != ids[1] {
			t.Fatalf("the record is %+v, want one of the two jobs with its exit code", j)
		}
		codes[*j.ExitCode]++
	}
	if x.Executions(job) != 1 || x.queued && (codes[0] != 1 || codes[run.ExitClaimNotOurs] != 1) {
		t.Errorf("executed %d times; exit codes %v", x.Executions(job), codes)
	}
}
