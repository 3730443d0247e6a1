package run_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// impostor creates a job of bob's under the name of alice's.
func (w *world) impostor(name string, class run.Class, state string) *job {
	now := time.Now()
	j := &job{foreign: true, Job: run.Job{Cluster: "c1", ID: fmt.Sprint(500 + len(w.jobs)), Name: name, User: "bob",
		State: state, Class: class,
		Why: "Priority", Submitted: &now}}
	if class == run.ClassEnded {
		j.Ended, j.ExitCode = &now, new(0)
	}
	w.jobs = append(w.jobs, j)
	return j
}

var impostors = map[string]struct {
	class run.Class
	state string
}{"queued": {run.ClassPending, "PENDING"}, "running": {run.ClassRunning, "RUNNING"}, "ended": {run.ClassEnded, "COMPLETED"},
	"unreadable": {run.ClassUnread, ""}}

// A job of bob's under the name of alice's run is ignored, whatever happens to hers: it is never followed, never
// adopted, never cancelled, and counted once.
//
// proves SITE-08
func TestAnothersJobOfOurName(t *testing.T) {
	for name, c := range impostors {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			l := w.life()
			a := l.submit(as("alice"))
			w.until(a.RunID, in(run.Pending))
			var his *job
			w.with(func() { his = w.impostor(w.jobs[0].Name, c.class, c.state) })
			time.Sleep(time.Minute)
			if v := w.until(a.RunID, in(run.Pending)); v.Submission.JobID != "100" || v.Attempt.MissedAt != nil ||
				v.Run.Reason != "waiting_in_slurm" {
				t.Errorf("the run is %+v, want waiting in its own job", v)
			}
			w.startJob(a.RunID)
			w.with(func() { w.finish(w.jobs[0]) })
			w.want(w.until(a.RunID, done), run.Succeeded, "ok")
			before := his.Job
			time.Sleep(time.Minute)
			w.with(func() {
				if len(w.cancels) != 0 || his.State != before.State {
					t.Errorf("bob's job was cancelled by %v or is now %+v, want it left alone", w.cancels, his.Job)
				}
			})
			if n := l.engine.Forged(); n > 1 || n == 0 && c.class != run.ClassUnread {
				t.Errorf("Forged() = %d, want 1 (0 for an unreadable record)", n)
			}
		})
	}
}

// If Slurm has no job of alice's, bob's job does not count as hers: the claim is taken, the attempt ends as absent, and
// bob's job is left alone afterwards too.
//
// proves SITE-08
func TestAnothersJobIsNoReceipt(t *testing.T) {
	for name, c := range impostors {
		for _, recorded := range []bool{false, true} {
			bubbleRun(t, fmt.Sprintf("%s, in accounting alone %t", name, recorded), func(t *testing.T, w *world) {
				var his *job
				w.send = sends(doubtNone)
				w.accounting = func() ([]run.Job, error) {
					if his == nil || !recorded {
						return nil, nil
					}
					return []run.Job{his.Job}, nil
				}
				l := w.life()
				w.queue = func(list []run.Job) []run.Job {
					if his == nil {
						if v, err := w.ledger.List(t.Context(), ledgerAll); err == nil && len(v.Runs) == 1 {
							view, err := w.ledger.View(t.Context(), v.Runs[0].ID)
							if err != nil {
								t.Error(err)
							}
							his = w.impostor(view.Submission.JobName, c.class, c.state)
							his.forgot = recorded
						}
					}
					return list
				}
				a := l.submit(as("alice"))
				v := w.ended(a.RunID, run.Failed, "absent")
				if v.Submission.JobID != "" || v.Attempt.StartedAt != nil {
					t.Errorf("the run is %+v, want without a job", v)
				}
				time.Sleep(time.Minute)
				w.with(func() {
					if len(w.cancels) != 0 {
						t.Errorf("scancel was called for %v, want bob's job left alone", w.cancels)
					}
				})
			})
		}
	}
}

// Bob's job cannot be adopted as alice's.
//
// proves SITE-08
func TestAnothersJobIsNotAdopted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(doubtNone)
		w.fault = failing(errTransient, "TakeClaim")
		l := w.life()
		a := l.submit(as("alice"))
		v := w.until(a.RunID, in(run.Unconfirmed))
		var id string
		w.with(func() { id = w.impostor(v.Submission.JobName, run.ClassPending, "PENDING").ID })
		if _, err := l.engine.Adopt(t.Context(), a.RunID, id); fault.CodeOf(err) != "job_not_ours" {
			t.Error(err)
		}
		if v := w.until(a.RunID, in(run.Unconfirmed)); v.Submission.JobID != "" {
			t.Errorf("the run has the job of %+v, want none before it is settled", v.Submission)
		}
	})
}

// The job id in alice's receipt is a hint: with another's job id, or one of no job, the run follows the job that Slurm
// shows under its name and her user; without one, it is absent. Other users' runs and jobs are left alone.
//
// proves SITE-08
func TestForgedReceipts(t *testing.T) {
	for name, c := range map[string]struct {
		id     string
		exists bool
		state  run.State
		reason string
	}{
		"bob's job":                {"100", true, run.Succeeded, "ok"},
		"bob's job, none of hers":  {"100", false, run.Failed, "absent"},
		"no such job":              {"999", true, run.Succeeded, "ok"},
		"no such job, none at all": {"999", false, run.Failed, "absent"},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			l := w.life()
			bob := l.submit(as("bob"))
			if *bob.SlurmJobID != "100" {
				t.Fatalf("the job of bob's run is %s, want 100", *bob.SlurmJobID)
			}
			w.forge = func(spec run.JobSpec) run.SendResult {
				if c.exists {
					w.submit(spec)
				}
				return run.SendResult{Outcome: run.SendAccepted, JobID: c.id, Cluster: "c1"}
			}
			alice := l.submit(as("alice"))
			if c.exists {
				v := w.until(alice.RunID, func(v run.View) bool { return v.Run.Reason == "waiting_in_slurm" })
				if v.Submission.JobID != "101" {
					t.Errorf("the run follows job %s, want 101", v.Submission.JobID)
				}
				w.with(func() { w.start(w.jobs[1]); w.finish(w.jobs[1]) })
			}
			w.want(w.until(alice.RunID, done), c.state, c.reason)
			if v := w.until(bob.RunID, in(run.Pending)); v.Submission.JobID != "100" {
				t.Errorf("bob's run is %+v, want waiting in job 100", v)
			}
			w.with(func() {
				if slices.ContainsFunc(w.cancels, func(id string) bool { return id == "100" }) && w.jobs[0].Class != run.ClassPending {
					t.Error("bob's job was cancelled")
				}
				w.start(w.jobs[0])
				w.finish(w.jobs[0])
			})
			w.want(w.until(bob.RunID, done), run.Succeeded, "ok")
		})
	}
}

// If nothing can be done as the user any more the claim cannot be taken: the run's reason and next steps say so, cancel
// does not pretend, and an operator ends it once Slurm shows no job of it. A job that appears later is left alone, and
// no run is made of it.
//
// proves SITE-08
func TestUserIsGone(t *testing.T) {
	for _, code := range []string{"user_refused", "login_refused", "signer_away", "ssh_unreachable", "disk_full"} {
		bubbleRun(t, code, func(t *testing.T, w *world) {
			w.send = sends(doubtLate)
			w.cfg.Attempts = 3
			w.fault = failing(fault.New(fault.Transport, code, "alice has left"), "TakeClaim")
			l := w.life()
			id := l.submit(as("alice")).RunID
			v := w.until(id, func(v run.View) bool { return v.Run.Reason == "claim_waits" })
			if !strings.Contains(v.Run.Detail, "alice has left") || !strings.Contains(v.Run.Detail, "declare-absent") ||
				!hasStep(v, "slurm.job.absent") {
				t.Errorf("the run says %q with the steps %+v, want the fault, declare-absent and slurm.job.absent",
					v.Run.Detail, run.NextSteps(v))
			}
			if a, err := l.engine.Cancel(t.Context(), id, "", run.Withdrawal{}); err == nil && a.State.Terminal() {
				t.Errorf("a cancel that cannot read the claim is answered %+v, want the run still open", a)
			}
			synctest.Wait() // otherwise the cancel in flight may end the job, which then is absent
			w.with(func() { w.jobs[0].late = false })
			if _, err := l.engine.DeclareAbsent(t.Context(), id, "she left"); fault.CodeOf(err) != "job_exists" {
				t.Errorf("declared absent while Slurm shows the job: %v", err)
			}
			w.with(func() { w.jobs[0].late = true })
			must(l.engine.DeclareAbsent(t.Context(), id, "she left"))
			v = w.ended(id, run.Cancelled, "declared_absent")
			if v.Attempt.N != 1 || !strings.Contains(v.Run.Detail, "she left") {
				t.Errorf("the run is %+v, want the first attempt with what the operator said", v)
			}
			w.with(func() { w.jobs[0].late = false; w.start(w.jobs[0]) })
			time.Sleep(5 * time.Minute)
			w.want(w.until(id, done), run.Cancelled, "declared_absent")
		})
	}
}

// A user who may not be logged in while a run is staged ends no run: the run names the reason, and continues when the
// user may log in again.
func TestUserIsRefusedForAWhile(t *testing.T) {
	for _, err := range []error{fault.New(fault.Policy, "user_refused", "no certificate for alice"),
		fault.New(fault.Transport, "signer_away", "no signer"), fault.New(fault.Transport, "login_refused", "alice is locked")} {
		bubbleRun(t, fault.CodeOf(err), func(t *testing.T, w *world) {
			refused := true
			w.fault = failingWhile(&refused, err, "StageInputs", "OpenAttempt", "TakeClaim")
			l := w.life()
			id := l.submit(as("alice")).RunID
			v := w.until(id, func(v run.View) bool { return v.Run.Reason == fault.CodeOf(err) })
			if v.Run.Phase != run.Staging || v.Run.Detail != fault.Prose(err) {
				t.Errorf("the run of a refused user is %s: %q, want %s: %q",
					v.Run.Phase, v.Run.Detail, run.Staging, fault.Prose(err))
			}
			w.with(func() { refused = false })
			w.until(id, func(v run.View) bool { return v.Run.Phase == run.Pending })
		})
	}
}
