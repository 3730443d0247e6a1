package run_test

import (
	"fmt"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// asAnother returns the i-th order executed as a user, called by that user.
func asAnother(user string, i int) run.Order {
	o := order(func(p *plan.Params) {
		p.ExecutedAs, p.Spec.Execution.Command.Env = user, map[string]string{"N": fmt.Sprint(i)}
	})
	o.Asking.Principal = run.Principal{Name: "user:" + user, ID: "prn_" + user}
	return o
}

// One user's host that never answers, whatever the operation, delays no other user: not the workers, the sends, the
// collects, the cancels, nor the watcher.
//
// proves SITE-08
func TestAUserWhoHangs(t *testing.T) {
	t.Run("alone", func(t *testing.T) { aUserHangs(t, run.Arrays{}) })
	t.Run("in arrays", func(t *testing.T) { aUserHangs(t, run.Arrays{Min: 12, Linger: 3 * time.Second}) })
}

func aUserHangs(t *testing.T, arrays run.Arrays) {
	for _, op := range []string{"StageInputs", "OpenAttempt", "Send", "ReadControl", "TakeClaim", "Cancel"} {
		bubbleRun(t, op, func(t *testing.T, w *world) {
			w.cfg.SubmitWait, w.cfg.Arrays = time.Nanosecond, arrays
			if op == "TakeClaim" { // called by the watcher for runs in doubt
				w.forge = func(run.JobSpec) run.SendResult { return run.SendResult{Outcome: run.SendDoubt} }
			}
			w.hangs = map[string]string{op: "alice"}
			l := w.life()
			var hers []string
			for i := range 12 {
				hers = append(hers, l.submit(asAnother("alice", i)).RunID)
			}
			if op == "ReadControl" || op == "Cancel" {
				w.untilAll(hers, in(run.Pending))
				w.with(func() {
					for _, j := range w.jobs {
						w.start(j)
						if op == "ReadControl" {
							w.finish(j)
						}
					}
				})
			}
			if op == "Cancel" {
				for _, id := range hers {
					w.until(id, in(run.InJob))
					l.cancelRun(id)
				}
			}
			time.Sleep(time.Minute) // everything that can hang hangs now
			w.with(func() { w.forge, w.auto = nil, op != "Cancel" })
			began := time.Now()
			his := l.submit(asAnother("bob", 0)).RunID
			if op == "Cancel" {
				w.until(his, in(run.Pending))
				w.with(func() { w.start(w.jobs[len(w.jobs)-1]) })
				w.until(his, in(run.InJob))
				l.cancelRun(his)
				w.want(w.until(his, done), run.Cancelled, "cancelled")
			} else {
				w.want(w.until(his, done), run.Succeeded, "ok")
			}
			if d := time.Since(began); d > time.Minute {
				t.Errorf("bob's run took %s", d)
			}
		})
	}
}

// Many users whose hosts never answer delay no other user either.
//
// proves SITE-08
func TestManyUsersWhoHang(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.SubmitWait, w.auto = time.Nanosecond, true
		w.hanging = func(op, user string) bool { return user != "bob" && (op == "StageInputs" || op == "Send") }
		l := w.life()
		for i := range 40 {
			l.submit(asAnother(string(rune('a'+i%20))+"user", i))
		}
		time.Sleep(10 * time.Minute)
		began := time.Now()
		w.want(w.until(l.submit(asAnother("bob", 0)).RunID, done), run.Succeeded, "ok")
		if d := time.Since(began); d > time.Minute {
			t.Errorf("bob's run took %s", d)
		}
	})
}

// A reason from a user's side why Slurm does not accept a job pauses only that user's runs.
//
// proves SITE-08
func TestForgedPressure(t *testing.T) {
	for _, scope := range []run.Scope{run.ScopeSite, run.ScopePartition, run.ScopeAccount, run.ScopeQOS, run.ScopeRun} {
		for _, kind := range []run.SendOutcome{run.SendDeferred, run.SendNotRun, run.SendRejected} {
			bubbleRun(t, string(kind)+" "+string(scope), func(t *testing.T, w *world) {
				w.auto = true
				l := w.life()
				w.forge = func(run.JobSpec) run.SendResult {
					return run.SendResult{Outcome: kind, Code: "slurm_unreachable", Scope: scope, Text: "so she says"}
				}
				alice := l.submit(asAnother("alice", 0))
				w.with(func() { w.forge = nil })
				if err := l.engine.Ready(); err != nil {
					t.Errorf("alice's word makes the site unready: %v", err)
				}
				l.wantPhase(asAnother("bob", 1), run.Pending)
				if kind == run.SendRejected {
					w.want(w.until(alice.RunID, done), run.Failed, "rejected")
					return
				}
				if again := l.submit(asAnother("alice", 2)); (again.Phase == run.Deferred) != (scope != run.ScopeRun) {
					t.Errorf("alice's next run is answered %+v, want it to wait: %v", again, scope != run.ScopeRun)
				}
				w.want(w.until(alice.RunID, done), run.Succeeded, "ok")
			})
		}
	}
}

// A user's full disk is not the site's.
//
// proves SITE-08
func TestAUsersDisk(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		l := w.life()
		w.fault = failing(fault.New(fault.Transport, "disk_full", "the quota is full"), "StageInputs")
		a := l.submit(as("alice"))
		v := w.until(a.RunID, func(v run.View) bool { return v.Run.Reason != "" })
		if err := l.engine.Ready(); err != nil || v.Run.Phase != run.Staging {
			t.Errorf("while alice's disk is full Ready gives %v and her run is %+v, want no error and %s",
				err, v.Run, run.Staging)
		}
	})
}

// A run of a user whose side claims for ever that sbatch still runs ends as absent, before and after a restart of the
// gateway; a run of the gateway's own user waits.
//
// proves SITE-08
func TestEndlesslyHeld(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			w.send = sends(hangs)
			w.cfg.SubmitWait = time.Second
			l := w.life()
			hers, own := l.submit(as("alice")), l.submit(as(""))
			w.with(func() { // nothing was sent: her side's answer is false
				for _, j := range w.jobs {
					j.forgot = true
				}
			})
			if restarted {
				l.stop()
				l = w.life()
			}
			time.Sleep(time.Hour)
			if !restarted { // a send that hangs ends with its gateway
				l.stop()
				w.life()
			}
			w.want(w.until(hers.RunID, done), run.Failed, "absent")
			if v := w.until(own.RunID, func(run.View) bool { return true }); v.Run.State.Terminal() {
				t.Errorf("his run is %+v, want not over", v.Run)
			}
		})
	}
}

// Two users' runs that are ready together and equal in everything else are an array of each: the jobs of an array have
// one owner, and so have the calls that cancel them. A pause of one user's runs does not hold the other's.
//
// proves MANY-02 SITE-08
func TestArraysOfUsers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		inArrays(w, 4)
		w.cfg.OwnUser = "gateway"
		w.drain = &run.Drain{Queue: true}
		l := w.life()
		runs := map[string][]string{}
		for i := range 4 {
			for _, user := range []string{"alice", "bob"} {
				runs[user] = append(runs[user], l.submit(asAnother(user, i)).RunID)
			}
		}
		for _, ids := range runs {
			w.untilAll(ids, in(run.Deferred))
		}
		l.engine.SetDrain(nil)
		arrays := map[string]string{}
		for user, ids := range runs {
			for _, id := range ids {
				v := w.until(id, in(run.Pending))
				if owner, ok := arrays[v.Submission.Array]; ok && owner != user || v.Submission.Array == "" {
					t.Errorf("%s's run is in the array %q of %s", user, v.Submission.Array, owner)
				}
				arrays[v.Submission.Array] = user
			}
		}
		if len(arrays) != 2 {
			t.Errorf("the arrays and their users are %v, want one array each of two users", arrays)
		}
		for _, id := range runs["alice"] {
			l.cancelRun(id)
			w.want(w.until(id, done), run.Cancelled, "cancelled")
		}
		time.Sleep(10 * time.Second)
		w.with(func() {
			for _, j := range w.jobs {
				if (j.Class == run.ClassEnded) != (j.User == "alice") || arrays[j.Name] != j.User {
					t.Errorf("%s's %s of %s is %s", j.User, j.ID, j.Name, j.State)
				}
			}
			if len(w.cancels) > 3 {
				t.Errorf("asked %q", w.cancels)
			}
			w.auto = true
		})
		w.wantAll(runs["bob"], run.Succeeded, "ok")
	})
}
