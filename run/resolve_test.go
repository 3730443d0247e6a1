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

// No answer and no job: the gateway takes the claim, so that the attempt can never execute, and policy's second attempt
// is sent. The first one's job, if it arrives after all, is cancelled, or refuses to run if it started immediately.
func TestVoidClaimAndLateJob(t *testing.T) {
	for _, starts := range []bool{false, true} {
		bubbleRun(t, fmt.Sprint("late job starts at once: ", starts), func(t *testing.T, w *world) {
			w.cfg.Attempts = 2
			w.send = sends(doubtLate, accept)
			a := w.life().submit(order())
			v := w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Pending })
			if !strings.Contains(string(w.attempt(a.RunID, 1).ctl["claim"]), "void") {
				t.Error("the claim of attempt 1 is not void, want the gateway's")
			}
			late := w.job(0)
			w.with(func() {
				late.late = false
				if starts {
					w.start(late)
				}
			})
			time.Sleep(time.Minute)
			w.with(func() {
				want := map[bool]string{false: "CANCELLED", true: "FAILED"}[starts]
				if late.State != want || w.attempt(a.RunID, 1).executions != 0 {
					t.Errorf("the late job is %s or was executed, want it cancelled or refused", late.State)
				}
				w.auto = true
			})
			v = w.ended(a.RunID, run.Succeeded, "ok")
			if v.Attempt.N != 2 || !slices.Contains(w.events(a.RunID), "new_attempt") {
				t.Errorf("the run ended in attempt %d with the events %q, want attempt 2 and new_attempt",
					v.Attempt.N, w.events(a.RunID))
			}
		})
	}
}

// No answer, nothing in the queue, but the job exists and took the claim first: the claim names it.
func TestClaimLostMeansAdopted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Attempts = 3
		w.send = sends(doubtLate)
		w.fault = func(op string, _ int) outcome {
			if op == "TakeClaim" && w.calls[op] == 1 {
				w.start(w.jobs[0]) // between the query of the queue and the gateway's claim
			}
			return outcome{}
		}
		_, a := w.submitted()
		v := w.until(a.RunID, in(run.InJob))
		if v.Submission.JobID != "100" || v.Attempt.StartedAt == nil {
			t.Errorf("the run is %+v, want started in job 100", v)
		}
		w.with(func() { w.jobs[0].late = false; w.finish(w.jobs[0]) })
		w.want(w.until(a.RunID, done), run.Succeeded, "ok")
		w.wantCount("Send", 1)
	})
}

// While an sbatch is still running nothing is decided, however often Slurm shows nothing.
func TestHeldSendIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(hangs)
		l, a := w.submitted()
		l.stop() // the gateway stops; sbatch continues
		w.with(func() { w.jobs[0].late = true })
		w.life()
		time.Sleep(10 * time.Minute)
		v := w.until(a.RunID, func(run.View) bool { return true })
		if v.Run.Phase != run.Unconfirmed || w.count("TakeClaim") != 0 {
			t.Errorf("the run whose send hangs is %s after %d claims, want %s and no claim",
				v.Run.Phase, w.count("TakeClaim"), run.Unconfirmed)
		}
		w.with(func() { clear(w.held); w.jobs[0].late = false; w.auto = true })
		w.want(w.until(a.RunID, done), run.Succeeded, "ok")
	})
}

// A failed or incomplete query is not an observation: nothing is decided from it.
func TestQueryErrorIsNoObservation(t *testing.T) {
	for name, broken := range map[string]string{"squeue": "Queue", "sacct": "Accounting"} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			on := true
			w.send = sends(doubtLate, accept)
			w.accounting = func() ([]run.Job, error) { return nil, nil }
			w.fault = failingWhile(&on, errTransient, broken)
			l, a := w.submitted()
			b := l.submit(order(cpus(2)))
			w.with(func() { w.jobs[1].forgot = true })
			time.Sleep(20 * time.Minute)
			for _, id := range []string{a.RunID, b.RunID} {
				if v := w.until(id, func(run.View) bool { return true }); done(v) || v.Attempt.MissedAt != nil {
					t.Errorf("while a query fails the run is %s: %s, want it not done and its job not missed",
						v.Run.Phase, v.Run.Reason)
				}
			}
			w.wantCount("TakeClaim", 0)
			if _, err := l.engine.Watched(); (err != nil) != (broken == "Queue") {
				t.Error(err)
			}
			w.with(func() { on = false })
			w.want(w.until(a.RunID, done), run.Failed, "absent")
			w.want(w.until(b.RunID, done), run.Failed, "absent")
		})
	}
}

// Rule 8: LOST needs the job's claim, no exit file, and two complete queries without the job, far enough apart.
func TestLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, a := w.submitted()
		w.with(func() { w.start(w.jobs[0]); w.attempt(a.RunID, 1).ctl["stderr"] = []byte("last words\n") })
		w.until(a.RunID, in(run.InJob))
		w.with(func() { w.jobs[0].forgot = true })
		v := w.until(a.RunID, func(v run.View) bool { return v.Attempt.MissedAt != nil })
		missed := time.Now()
		// The job is shown again: it was not missing.
		w.with(func() { w.jobs[0].forgot = false })
		w.until(a.RunID, func(v run.View) bool { return v.Attempt.MissedAt == nil })
		w.with(func() { w.jobs[0].forgot = true })
		v = w.until(a.RunID, func(v run.View) bool { return v.Attempt.MissedAt != nil })
		missed = *v.Attempt.MissedAt
		l.stop()
		w.life() // a restart in between changes nothing
		v = w.ended(a.RunID, run.Failed, "lost")
		if time.Since(missed) < time.Minute || v.Attempt.Ending != run.EndedLost || w.outputs(a.RunID)["stderr"] != "last words" {
			t.Errorf("%s after its job was missed the run ended as %s with %q, want %s after a minute or more, with its stderr",
				time.Since(missed), v.Attempt.Ending, w.outputs(a.RunID), run.EndedLost)
		}
	})
}

// A job that was missed by a clock a day ahead is missed again once the clock is right: its run does not wait a day for
// its end.
func TestLostByAClockThatWasAhead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ahead = 24 * time.Hour
		l, a := w.running()
		w.with(func() { w.jobs[0].forgot = true })
		w.until(a.RunID, func(v run.View) bool { return v.Attempt.MissedAt != nil })
		l.stop()
		w.ahead = 0
		w.life()
		right := time.Now()
		w.ended(a.RunID, run.Failed, "lost")
		if took := time.Since(right); took < w.cfg.AbsenceGap || took > time.Hour {
			t.Errorf("the run ended as lost %s after the clock was right, want after the gap of %s, and within an hour",
				took, w.cfg.AbsenceGap)
		}
	})
}

// A job that was renamed is neither lost nor absent while Slurm shows it under its id: no new attempt runs in parallel.
// It is collected when it ends, and followed again when it has its name back. Another job that was given the id does
// not count.
func TestRenamedJob(t *testing.T) {
	for name, c := range map[string]struct {
		then func(w *world, back *bool)
		want string
	}{
		"ends":      {func(w *world, _ *bool) { w.finish(w.jobs[0]) }, "ok"},
		"named":     {func(w *world, back *bool) { *back = true; w.auto = true }, "ok"},
		"gone":      {func(w *world, _ *bool) { w.jobs[0].forgot = true }, "lost"},
		"id reused": {func(w *world, _ *bool) { later := time.Now(); w.jobs[0].Submitted = &later }, "lost"},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			back := true
			w.queue = func(jobs []run.Job) []run.Job {
				if len(jobs) > 0 && !back {
					jobs[0].Name = "foo"
				}
				return jobs
			}
			a := w.life().submit(order())
			w.startJob(a.RunID)
			w.with(func() { back = false })
			time.Sleep(20 * time.Minute)
			v := w.until(a.RunID, func(v run.View) bool { return true })
			if v.Run.Phase != run.InJob || v.Run.Reason != "job_renamed" || !strings.Contains(v.Run.Detail,
				"scontrol update jobid=100 jobname="+v.Submission.JobName) {
				t.Fatalf("%s (%s: %s)", v.Run.Phase, v.Run.Reason, v.Run.Detail)
			}
			w.with(func() { c.then(w, &back) })
			v = w.until(a.RunID, done)
			if v.Run.Reason != c.want || len(w.jobs) != 1 {
				t.Errorf("%s (%s), %d jobs", v.Run.State, v.Run.Reason, len(w.jobs))
			}
		})
	}
}

// The time between the two queries is that between squeue's answers: an sacct that takes minutes, or a gateway that was
// stopped in between, does not count.
func TestLostNotBySlowness(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		asked := 0
		w.accounting = func() ([]run.Job, error) { // called with the world locked
			if asked++; asked == 2 {
				w.mu.Unlock()
				time.Sleep(10 * time.Minute)
				w.mu.Lock()
				w.jobs[0].forgot = false // the controller shows the job now
			}
			return nil, nil
		}
		_, a := w.running()
		w.with(func() { w.jobs[0].forgot = true })
		time.Sleep(20 * time.Minute)
		v := w.until(a.RunID, func(v run.View) bool { return done(v) || v.Run.Phase == run.InJob })
		if done(v) || v.Attempt.MissedAt != nil || asked < 2 {
			t.Errorf("%s (%s), missed %v, accounting asked %d times", v.Run.State, v.Run.Reason, v.Attempt.MissedAt, asked)
		}
	})
}

// slurmctld was started without its jobs, and accounting closed their records: that ends nothing. The job may still run
// to its end, and its files count; otherwise rule 8 decides.
func TestClosedInAccounting(t *testing.T) {
	for _, ends := range []bool{true, false} {
		bubbleRun(t, fmt.Sprint("ends: ", ends), func(t *testing.T, w *world) {
			_, a := w.running()
			w.with(func() {
				j := w.jobs[0]
				j.forgot = true
				rec := j.Job
				rec.State, rec.Class, rec.Closed = "CANCELLED", run.ClassEnded, true
				w.accounting = func() ([]run.Job, error) { return []run.Job{rec}, nil }
			})
			w.until(a.RunID, func(v run.View) bool { return v.Attempt.MissedAt != nil })
			if ends {
				w.with(func() { w.finish(w.jobs[0]) })
				w.want(w.until(a.RunID, done), run.Succeeded, "ok")
			} else {
				w.want(w.until(a.RunID, done), run.Failed, "lost")
			}
		})
	}
}

// Gone from the queue after it was stopped: only Slurm knows why, and accounting is queried.
func TestPurgedAndStopped(t *testing.T) {
	for name, c := range map[string]struct {
		accounted string
		cancel    bool
		state     run.State
		reason    string
	}{
		"out of memory":     {"OUT_OF_MEMORY", false, run.Failed, "out_of_memory"},
		"time":              {"TIMEOUT", false, run.Failed, "time_limit"},
		"no accounting":     {"", false, run.Failed, "tool_failed"},
		"ours, unaccounted": {"", true, run.Cancelled, "cancelled"},
		"accounting lags":   {"RUNNING", false, run.Failed, "tool_failed"},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			l, a := w.running()
			synctest.Wait() // the query that saw the job has ended: the next one comes after the cancel
			w.with(func() {
				j := w.jobs[0]
				w.exitFile(j, 137, "killed")
				j.forgot = true
				if c.accounted == "" {
					return
				}
				rec := j.Job
				if rec.State = c.accounted; rec.State != "RUNNING" {
					rec.Class = run.ClassEnded
				}
				w.accounting = func() ([]run.Job, error) { return []run.Job{rec}, nil }
			})
			if c.cancel {
				l.cancelRun(a.RunID)
			}
			w.want(w.until(a.RunID, done), c.state, c.reason)
		})
	}
}

// slurmctld forgot the job and gave its id to another: that one is not the run's, is never cancelled, and the run's job
// is found absent.
func TestReusedID(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		bubbleRun(t, fmt.Sprint("cancel: ", cancel), func(t *testing.T, w *world) {
			w.send = sends(lostAnswer)
			l, a := w.submitted()
			other := w.job(1)
			w.with(func() { w.start(other) })
			if cancel {
				l.wantCancel(a.RunID, "", "never")
				w.want(w.until(a.RunID, done), run.Cancelled, "cancelled")
			} else {
				w.want(w.until(a.RunID, done), run.Failed, "absent")
			}
			if j := w.slurm(1); j.ID != "100" || j.State != "RUNNING" {
				t.Errorf("the other run's job is %+v, want 100 still running", j)
			}
		})
	}
}

// Two jobs of one name, as sbatch's own retry can create: one executes, and its id and its files count, whatever the
// receipt said.
func TestTwoJobsOfOneName(t *testing.T) {
	for name, c := range map[string]struct {
		kind   sendKind
		winner int
	}{"doubt, first wins": {doubtJob, 0}, "doubt, second wins": {doubtJob, 1}, "receipt for the first, second wins": {accept, 1}} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.cfg.Attempts = 3
			w.send = sends(c.kind)
			var twin *job
			w.fault = func(op string, _ int) outcome {
				if op == "Queue" && twin == nil {
					twin = w.submit(w.jobs[0].spec)
					w.start(w.jobs[c.winner])
					w.start(w.jobs[1-c.winner])
				}
				return outcome{}
			}
			a := w.life().submit(order())
			winner := fmt.Sprint(100 + c.winner)
			w.until(a.RunID, func(v run.View) bool { return v.Run.Phase == run.InJob && v.Submission.JobID == winner })
			w.with(func() { w.finish(w.jobs[c.winner]) })
			v := w.ended(a.RunID, run.Succeeded, "ok")
			if v.Submission.JobID != winner || v.Attempt.N != 1 {
				t.Errorf("the run is in %+v, want in the winner's job, the first attempt", v.Submission)
			}
		})
	}
}

// Two pending jobs of one name: the second is cancelled, the first continues.
func TestTwoPendingJobs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(doubtJob)
		w.fault = func(op string, _ int) outcome {
			if op == "Queue" && w.calls[op] == 1 {
				w.submit(w.jobs[0].spec)
			}
			return outcome{}
		}
		a := w.life().submit(order())
		w.until(a.RunID, func(run.View) bool { return w.count("Queue") > 0 && w.slurm(1).Class == run.ClassEnded })
		w.with(func() { w.jobs[1].forgot = true; w.auto = true })
		v := w.ended(a.RunID, run.Succeeded, "ok")
		if v.Submission.JobID != "100" {
			t.Errorf("the run has the job %s, want the first, 100", v.Submission.JobID)
		}
	})
}

// All jobs of the name ended before their scripts started: none executed, and none can.
func TestTwoJobsNeitherStarted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(doubtJob)
		w.fault = func(op string, _ int) outcome {
			if op == "Queue" && w.calls[op] == 1 {
				w.submit(w.jobs[0].spec)
				w.end(w.jobs[0], "CANCELLED", 0)
				w.end(w.jobs[1], "CANCELLED", 0)
			}
			return outcome{}
		}
		a := w.life().submit(order())
		w.want(w.until(a.RunID, done), run.Failed, "absent")
	})
}

// Another gateway of the same user may have a run of the same id: its jobs are left alone.
func TestForeignJobsAreLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, a := w.submitted()
		v := w.until(a.RunID, in(run.Pending))
		w.with(func() {
			j := w.submit(w.jobs[0].spec)
			j.Name, j.foreign = run.JobName(v.Run.ID, 1, "ffffffffffffffff"), true
			k := w.submit(w.jobs[0].spec)
			k.Name, k.foreign = "sg-hand-made", true
		})
		time.Sleep(5 * time.Minute)
		if w.slurm(1).Class != run.ClassPending || w.slurm(2).Class != run.ClassPending || w.count("Cancel") != 0 {
			t.Error("a job of another gateway was cancelled, want it left alone")
		}
	})
}

// A state this version does not know is reported, and decides nothing.
func TestUnknownState(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(doubtJob)
		odd := true
		w.queue = func(jobs []run.Job) []run.Job {
			for i := range jobs {
				if odd {
					jobs[i].State, jobs[i].Class = "DREAMING", run.ClassUnknown
				}
			}
			return jobs
		}
		a := w.life().submit(order())
		v := w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "unknown_slurm_state" })
		if v.Run.Phase != run.Pending || v.Run.Detail != "DREAMING" || v.Submission.JobID != "100" {
			t.Errorf("the run is %+v, want pending with the state that Slurm said", v.Run)
		}
		w.with(func() { odd, w.auto = false, true })
		w.want(w.until(a.RunID, done), run.Succeeded, "ok")
	})
}

// A claim that is another submission's, or an invalid one, stops the run; the verb that the run names ends it.
func TestForeignClaim(t *testing.T) {
	for _, claim := range []string{"slurmgate-claim 1 job=7 task=- restart=0 token=eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee node=n1\n", "garbage",
		"slurmgate-claim 1 void token=eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee\n"} {
		bubbleRun(t, claim, func(t *testing.T, w *world) {
			w.cfg.Attempts = 2
			w.send = sends(doubtNone)
			w.fault = func(op string, _ int) outcome {
				if op == "Send" {
					for _, a := range w.attempts {
						a.ctl["claim"] = []byte(claim)
					}
				}
				return outcome{}
			}
			l, a := w.submitted()
			v := w.until(a.RunID, in(run.NeedsOperator))
			if !hasStep(v, "slurm.job.cancel") {
				t.Errorf("the run with a foreign claim says %q, want the step slurm.job.cancel", v.Run.Detail)
			}
			if _, err := l.engine.DeclareAbsent(t.Context(), a.RunID, ""); !fault.Is(err, fault.Conflict) || !strings.HasSuffix(err.Error(),
				"Next: slurm.job.cancel run_id="+a.RunID) {
				t.Error(err)
			}
			l.wantCancel(a.RunID, run.Cancelled, "")
		})
	}
}

// A run that gets another job records all that Slurm shows of that one, and drops what was known of the former.
func TestAnotherJob(t *testing.T) {
	for name, found := range map[string]func(t *testing.T, w *world, l *life, id string){
		"the claim names it, Slurm shows it": func(_ *testing.T, w *world, _ *life, _ string) {
			w.with(func() { w.start(w.jobs[1]); w.jobs[0].forgot = true })
		},
		"the claim names it, Slurm shows it later": func(t *testing.T, w *world, _ *life, id string) {
			w.with(func() { w.start(w.jobs[1]); w.jobs[1].late = true; w.end(w.jobs[0], "FAILED", 90) })
			v := w.until(id, func(v run.View) bool { return v.Submission.JobID == "101" })
			if s := v.Submission; s.SubmittedAt != nil || s.SLUID != "" {
				t.Errorf("the submission of a job that Slurm has not shown is %+v, want no submit time and no SLUID", s)
			}
			w.with(func() { w.jobs[1].late = false })
		},
		"a person names it": func(t *testing.T, w *world, l *life, id string) {
			w.with(func() {
				w.attempt(id, 1).ctl["claim"] = []byte("slurmgate-claim 1 void token=" + strings.Repeat("f", 32) + "\n")
				w.start(w.jobs[0])
				w.jobs[1].late = true
			})
			w.until(id, in(run.NeedsOperator))
			w.with(func() {
				delete(w.attempt(id, 1).ctl, "claim")
				w.jobs[1].late = false
			})
			if s, err := l.engine.Adopt(t.Context(), id, "101"); err != nil || s.State != run.Queued {
				t.Fatalf("the adoption of job 101 is answered %+v %v, want queued", s, err)
			}
			w.with(func() { w.start(w.jobs[1]) })
		},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			l := w.life()
			id := l.submit(order()).RunID
			w.with(func() { w.jobs[0].SLUID = "s100" })
			w.until(id, func(v run.View) bool { return v.Submission.SLUID == "s100" })
			time.Sleep(time.Hour)
			w.with(func() { w.submit(w.jobs[0].spec).SLUID = "s101" })
			found(t, w, l, id)
			v := w.until(id, func(v run.View) bool { return v.Submission.SLUID == "s101" && v.Run.Phase == run.InJob })
			j := w.slurm(1)
			if s := v.Submission; s.JobID != "101" || s.SubmittedAt == nil || !s.SubmittedAt.Equal(j.Submitted.Truncate(time.Microsecond)) {
				t.Errorf("the submission is %+v, want job 101 with the submit time %s", s, j.Submitted)
			}
			w.with(func() { w.finish(w.jobs[1]) })
			w.want(w.until(id, done), run.Succeeded, "ok")
		})
	}
}
