package run_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

func cpus(n int) func(*plan.Params) { return func(p *plan.Params) { p.Spec.Resources.CPUs = n } }

// Cancel in each phase: what it answers, and that the answer stays true.
func TestCancel(t *testing.T) {
	type setup struct {
		send     func(int) sendKind
		fault    func(string, int) outcome
		bring    func(w *world, id string) // brings the run into the phase
		after    func(w *world)            // what happens after the cancel was requested
		executed string
		state    run.State
		sends    int
	}
	broken := func(op string) func(string, int) outcome { return failing(errTransient, op) }
	for name, c := range map[string]setup{
		"staging": {fault: broken("StageInputs"), executed: "never", state: run.Cancelled},
		"deferred": {send: sends(deferSend), bring: func(w *world, id string) { w.until(id, in(run.Deferred)) },
			executed: "never", state: run.Cancelled, sends: 1},
		"submitting": {send: sends(hangs), bring: func(w *world, id string) { w.until(id, in(run.Submitting)) }, executed: "maybe",
			state: run.Queued, sends: 1},
		"unconfirmed": {send: sends(doubtNone), fault: broken("Queue"), bring: func(w *world, id string) {
			w.until(id, in(run.Unconfirmed))
		}, executed: "never", state: run.Cancelled, sends: 1},
		"unconfirmed, job exists": {send: sends(doubtLate), fault: broken("Queue"), bring: func(w *world, id string) {
			w.until(id, in(run.Unconfirmed))
		}, executed: "never", state: run.Cancelled, sends: 1},
		"unconfirmed, job runs": {send: sends(doubtLate), fault: broken("Queue"), bring: func(w *world, id string) {
			w.until(id, in(run.Unconfirmed))
			w.with(func() { w.start(w.jobs[0]); w.jobs[0].late = false })
		}, after: func(w *world) { w.fault = nil }, executed: "maybe", state: run.Running, sends: 1},
		"pending": {bring: func(w *world, id string) { w.until(id, in(run.Pending)) }, executed: "never", state: run.Cancelled, sends: 1},
		"pending, has just started": {bring: func(w *world, id string) {
			w.until(id, in(run.Pending))
			w.with(func() { w.start(w.jobs[0]) })
		}, executed: "finished", state: run.Cancelled, sends: 1},
		"running": {bring: (*world).startJob, executed: "maybe", state: run.Running, sends: 1},
		"staging, no intent": {fault: broken("Apply"), bring: func(w *world, _ string) {
			time.Sleep(time.Millisecond) // the tries of this moment have ended
			w.with(func() { w.fault = nil })
		}, executed: "never", state: run.Cancelled},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.send, w.fault = c.send, c.fault
			l, a := w.submitted()
			if c.bring != nil {
				c.bring(w, a.RunID)
			}
			got, err := l.engine.Cancel(t.Context(), a.RunID, "enough", run.Withdrawal{})
			if err != nil || got.Executed != c.executed || got.State != c.state || got.RunID != a.RunID || got.Message == "" {
				t.Errorf("the cancel is answered %+v %v, want that it executed %s, and %s", got, err, c.executed, c.state)
			}
			w.with(func() {
				clear(w.held)
				if c.after != nil {
					c.after(w)
				}
			})
			if name == "submitting" {
				l.stop()
				l = w.life()
			}
			v := w.ended(a.RunID, run.Cancelled, "cancelled")
			if w.count("Send") != c.sends || v.Run.CancelReason != "enough" || v.Run.CancelAt == nil {
				t.Errorf("after %d sends the run is %+v, want %d sends, and cancelled for \"enough\"",
					w.count("Send"), v.Run, c.sends)
			}
			again, err := l.engine.Cancel(t.Context(), a.RunID, "again", run.Withdrawal{})
			if err != nil || again.State != run.Cancelled || again.Executed == "maybe" {
				t.Errorf("the second cancel is answered %+v %v, want the run cancelled", again, err)
			}
			// No job that was sent before can execute any more.
			w.startAll()
		})
	}
}

// A run whose outputs are being collected has executed; a cancel comes too late and does no harm.
func TestCancelTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		slow := true
		w.fault = failingWhile(&slow, errTransient, "OpenOutput")
		w.auto = true
		l, a := w.submitted()
		w.until(a.RunID, in(run.Collecting))
		got, err := l.engine.Cancel(t.Context(), a.RunID, "", run.Withdrawal{})
		if err != nil || got.State != run.Running || got.Phase != run.Collecting {
			t.Errorf("a cancel of a run whose job ended is answered %+v %v, want that it is collected", got, err)
		}
		w.with(func() { slow = false })
		w.want(w.until(a.RunID, done), run.Succeeded, "ok")
		l.wantCancel(a.RunID, run.Succeeded, "finished")
		w.wantCount("Cancel", 0)
	})
}

// While Slurm cannot be reached the cancel is recorded, the run's reason names it, and it is carried out once Slurm
// answers.
func TestCancelUnreachable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l, a := w.running()
		w.with(func() {
			w.fault = failing(errTransient, "Cancel", "Queue")
		})
		got, err := l.engine.Cancel(t.Context(), a.RunID, "enough", run.Withdrawal{})
		if err != nil || got.Executed != "maybe" || got.State != run.Running || !strings.HasPrefix(got.Message, run.Cancelling) {
			t.Errorf("where scancel fails a cancel is answered %+v %v, want that it is asked for", got, err)
		}
		time.Sleep(time.Minute)
		asked := w.count("Cancel")
		if v := must(w.ledger.View(t.Context(), a.RunID)); !strings.Contains(v.Run.Detail, "could not be cancelled") &&
			!strings.Contains(v.Run.Detail, "does not answer") {
			t.Errorf("the run says %+v, want that its job could not be cancelled", v.Run)
		}
		time.Sleep(10 * time.Minute)
		w.wantCount("Cancel", asked)
		l.stop()
		w.with(func() { w.fault = nil })
		w.life()
		w.ended(a.RunID, run.Cancelled, "cancelled")
		if w.slurm(0).State != "CANCELLED" {
			t.Errorf("the job of the cancelled run is %s, want CANCELLED", w.slurm(0).State)
		}
	})
}

// A cancel that arrives while sbatch runs loses neither the receipt nor the rejection.
func TestCancelDuringSend(t *testing.T) {
	for name, c := range map[string]struct {
		kind   sendKind
		state  run.State
		reason string
	}{"accepted": {accept, run.Cancelled, "cancelled"}, "rejected": {reject, run.Failed, "rejected"}, "deferred": {deferSend, run.Cancelled,
		"cancelled"}, "not run": {notRun, run.Cancelled, "cancelled"}, "doubt": {doubtJob, run.Cancelled, "cancelled"}} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.send = sends(c.kind)
			asked := false
			w.fault = func(op string, _ int) outcome {
				if op == "Send" && !asked {
					asked = true
					for _, open := range must(w.ledger.Index(w.cfg.Site).Waiting(t.Context(), "", 0, run.Submitting)) {
						v, now := must(w.ledger.View(t.Context(), open.RunID)), time.Now()
						v.Run.CancelAt, v.Run.CancelReason = &now, "enough"
						must(w.ledger.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.cancel_asked", Data: map[string]any{}}}))
					}
				}
				return outcome{}
			}
			a := w.life().submit(order())
			v := w.ended(a.RunID, c.state, c.reason)
			sends := must(w.ledger.Sends(t.Context(), v.Submission.Token))
			want := map[sendKind]run.SendOutcome{accept: run.SendAccepted, reject: run.SendRejected, deferSend: run.SendDeferred,
				notRun: run.SendNotRun, doubtJob: run.SendDoubt}[c.kind]
			if len(sends) != 1 || sends[0].Outcome != want {
				t.Errorf("the sends are %+v, want one with the outcome of its kind", sends)
			}
		})
	}
}

// Sixty waiting runs are cancelled as fast as their claims are taken. Slurm, whose scancel is slow, is asked about each
// job once, and the watcher continues meanwhile.
func TestCancelMany(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		var ids []string
		for i := range 60 {
			a := l.submit(order(cpus(i + 1)))
			w.until(a.RunID, in(run.Pending))
			ids = append(ids, a.RunID)
		}
		running := l.submit(order(cpus(99))).RunID
		w.until(running, in(run.Pending))
		w.with(func() { w.start(w.jobs[60]); w.scancel = 10 * time.Second })
		w.until(running, in(run.InJob))
		began, looks := time.Now(), w.count("Queue")
		for _, id := range append(ids, running) {
			got, err := l.engine.Cancel(t.Context(), id, "enough", run.Withdrawal{})
			if err != nil || id != running && (got.State != run.Cancelled || got.Executed != "never") {
				t.Errorf("the cancel is answered %+v %v, want cancelled, never executed", got, err)
			}
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("61 cancels took %s, want 0s", d)
		}
		if v := must(w.ledger.View(t.Context(), running)); v.Run.State != run.Running || v.Run.Reason != run.Cancelling || v.Run.Detail == "" {
			t.Errorf("the run in a job is %+v, want running with the cancel as its reason", v.Run)
		}
		time.Sleep(time.Minute)
		if n := w.count("Queue") - looks; n < 5 {
			t.Errorf("the watcher queried the queue %d times in a minute of cancels, want at least 5", n)
		}
		w.want(w.until(running, done), run.Cancelled, "cancelled")
		w.with(func() {
			slices.Sort(w.cancels)
			if len(w.cancels) != 61 || len(slices.Compact(w.cancels)) != 61 {
				t.Errorf("scancel was called for %d jobs (%v), want 61 different ones", len(w.cancels), w.cancels)
			}
			for _, j := range w.jobs {
				if j.State != "CANCELLED" {
					t.Errorf("job %s is %s, want CANCELLED", j.ID, j.State)
				}
			}
		})
	})
}

// A claim that cannot be taken when the cancel is requested is taken as soon as possible.
func TestCancelClaimLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		away := true
		w.fault = failingWhile(&away, fault.New(fault.Transport, "filesystem", "stale file handle"), "TakeClaim")
		w.deaf = true // so that only the claim can end the run
		l := w.life()
		id := l.submit(order()).RunID
		w.until(id, in(run.Pending))
		if _, err := l.engine.Cancel(t.Context(), id, "enough", run.Withdrawal{}); fault.CodeOf(err) != "filesystem" {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if v := must(w.ledger.View(t.Context(), id)); v.Run.State != run.Queued || v.Run.Reason == "" {
			t.Errorf("the run is %+v, want queued with a reason", v.Run)
		}
		w.with(func() { away = false })
		w.ended(id, run.Cancelled, "cancelled")
		if got := must(l.engine.Cancel(t.Context(), id, "", run.Withdrawal{})); got.Executed != "never" {
			t.Errorf("the cancel of a cancelled run is answered %+v, want that it was never executed", got)
		}
	})
}

// A gateway that is stopped first asks Slurm to cancel the jobs of the cancels that it has accepted.
func TestSettledAsksSlurm(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.scancel = 10 * time.Second
		l := w.life()
		id := l.submit(order()).RunID
		w.until(id, in(run.Pending))
		must(l.engine.Cancel(t.Context(), id, "enough", run.Withdrawal{}))
		if err := l.engine.Settled(t.Context()); err != nil || w.slurm(0).State != "CANCELLED" {
			t.Errorf("Settled after the cancel gives %v with the job %s, want no error and CANCELLED", err, w.slurm(0).State)
		}
	})
}

// Cancelled while a second attempt waits: the first may have executed, and the answer does not deny it.
func TestCancelSecondAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Attempts = 2
		w.send = sends(accept, deferSend, deferSend)
		l, a := w.submitted()
		w.with(func() { w.start(w.jobs[0]); w.end(w.jobs[0], "NODE_FAIL", 1) })
		w.until(a.RunID, func(v run.View) bool { return v.Run.AttemptN == 2 && v.Run.Phase == run.Deferred })
		l.wantCancel(a.RunID, run.Cancelled, "maybe")
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A ledger restored from a backup may show nothing as sent while a job of the attempt is about to start, runs, or has
// ended: the holder of the claim decides. docs/model found it.
func TestCancelAfterRestore(t *testing.T) {
	for name, c := range map[string]struct {
		claim    string // in the attempt's folder; TOKEN is replaced by the attempt's token
		executed string
		phase    run.Phase
	}{
		"job waits": {"", "never", run.Done}, "job runs": {"slurmgate-claim 1 job=77 task=- restart=0 token=TOKEN node=n1\n", "maybe", run.InJob},
		"another attempt": {"slurmgate-claim 1 job=77 task=- restart=0 token=0123456789abcdef0123456789abcdef node=n1\n", "maybe", run.Done},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.send = sends(deferSend)
			l := w.life()
			id := l.submit(order()).RunID
			token := w.until(id, in(run.Deferred)).Submission.Token
			a := w.attempt(id, 1)
			if c.claim != "" {
				w.with(func() { a.ctl[run.ClaimFile] = []byte(strings.ReplaceAll(c.claim, "TOKEN", token)) })
			}
			got := must(l.engine.Cancel(t.Context(), id, "", run.Withdrawal{}))
			if got.Executed != c.executed || got.Phase != c.phase {
				t.Errorf("the cancel is answered %+v, want the phase and execution of its row", got)
			}
			w.with(func() {
				if a.ctl[run.ClaimFile] == nil {
					t.Error("the claim is free, want it taken: a job that starts now would execute")
				}
			})
			w.send = nil
			w.until(id, done)
		})
	}
}

// A run whose attempt can no longer be sent ends in the same way: a ledger that was restored may lack its job.
func TestUnsentAfterRestore(t *testing.T) {
	for name, c := range map[string]struct {
		claim string
		is    func(run.View) bool
	}{
		"job waits": {"", func(v run.View) bool { return v.Run.Phase == run.Done && v.Attempt.Ending == run.EndedStaging }},
		"job runs": {"slurmgate-claim 1 job=77 task=- restart=0 token=TOKEN node=n1\n",
			func(v run.View) bool { return v.Run.Phase == run.InJob && v.Submission.JobID == "77" }},
		"another attempt": {"slurmgate-claim 1 job=77 task=- restart=0 token=0123456789abcdef0123456789abcdef node=n1\n",
			func(v run.View) bool { return v.Run.Phase == run.Done && v.Run.Reason == string(run.AheadOfLedger) }},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			var denied atomic.Bool
			w.allowed = func(string, plan.Params) error {
				if denied.Load() {
					return fault.New(fault.Validation, "denied", "no longer allowed")
				}
				return nil
			}
			w.send = sends(deferSend)
			l := w.life()
			id := l.submit(order()).RunID
			token := w.until(id, in(run.Deferred)).Submission.Token
			a := w.attempt(id, 1)
			w.with(func() {
				if c.claim != "" {
					a.ctl[run.ClaimFile] = []byte(strings.ReplaceAll(c.claim, "TOKEN", token))
				}
			})
			denied.Store(true)
			w.until(id, c.is)
			w.with(func() {
				if a.ctl[run.ClaimFile] == nil {
					t.Error("the claim is free, want it taken: a job that starts now would execute")
				}
			})
		})
	}
}
