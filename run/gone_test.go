package run_test

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// A run whose workspace disappears before the run ends, as in a ledger restored from a backup older than the removal,
// waits for a person: it is unknown whether it was executed, and no new attempt is opened automatically. Cancel
// resolves it.
func TestWorkspaceGone(t *testing.T) {
	for name, bring := range map[string]func(w *world, id string){
		"pending, and Slurm forgot it": func(w *world, id string) {
			w.until(id, in(run.Pending))
			w.with(func() { w.jobs = nil; delete(w.attempts, id+"/1") })
		},
		"running, and Slurm forgot it": func(w *world, id string) {
			w.startJob(id)
			w.with(func() { w.jobs = nil; delete(w.attempts, id+"/1") })
		},
		"Slurm says it ended": func(w *world, id string) {
			w.until(id, in(run.Pending))
			w.with(func() { delete(w.attempts, id+"/1"); w.jobs[0].State, w.jobs[0].Class = "COMPLETED", run.ClassEnded })
		},
	} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			l, a := w.submitted()
			bring(w, a.RunID)
			time.Sleep(20 * time.Minute)
			v, err := w.ledger.View(t.Context(), a.RunID)
			if err != nil || v.Run.Phase != run.NeedsOperator || v.Run.AttemptN != 1 || !hasStep(v, "slurm.job.cancel") {
				t.Fatalf("%s, attempt %d: %s %v", v.Run.Phase, v.Run.AttemptN, v.Run.Detail, err)
			}
			if _, err := l.engine.DeclareAbsent(t.Context(), a.RunID, ""); !fault.Is(err, fault.Conflict) || !strings.HasSuffix(err.Error(),
				"Next: slurm.job.cancel run_id="+a.RunID) {
				t.Error(err)
			}
			l.wantCancel(a.RunID, run.Cancelled, "maybe")
			w.wantCount("Send", 1)
		})
	}
}

// A run whose job has ended and whose files cannot be read reports that once and names what helps; when they can be
// read again it continues by itself, and a cancel ends it.
func TestFilesCannotBeRead(t *testing.T) {
	unreadable := fault.New(fault.Transport, "filesystem", "the control folder cannot be opened: permission denied")
	for name, c := range map[string]struct {
		op     string
		ended  bool // otherwise Slurm forgets the job
		reason string
	}{"exit": {"ReadControl", true, "collecting_waits"}, "output": {"OpenOutput", true, "collecting_waits"}, "store": {"Put", true,
		"collecting_waits"}, "claim": {"TakeClaim", false, "claim_waits"}} {
		for _, cancel := range []bool{false, true} {
			bubbleRun(t, fmt.Sprint(name, " cancel ", cancel), func(t *testing.T, w *world) {
				l, a := w.submitted()
				w.until(a.RunID, in(run.Pending))
				w.with(func() {
					w.fault = failing(unreadable, c.op)
					if !c.ended {
						w.jobs[0].forgot = true
						return
					}
					w.start(w.jobs[0])
					w.finish(w.jobs[0])
				})
				v := w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == c.reason })
				if !strings.Contains(v.Run.Detail, "permission denied. Next: ") || !hasStep(v, "slurm.job.cancel") {
					t.Errorf("the run says %q, want permission denied and the step slurm.job.cancel", v.Run.Detail)
				}
				time.Sleep(20 * time.Minute)
				waits := 0
				for _, e := range w.events(a.RunID) {
					if e == "waits" {
						waits++
					}
				}
				if waits != 1 {
					t.Errorf("the reason was recorded %d times, want once", waits)
				}
				switch {
				case cancel && c.ended:
					l.wantCancel(a.RunID, run.Cancelled, "maybe")
					return
				case cancel: // nothing is certain without the claim
					if got, err := l.engine.Cancel(t.Context(), a.RunID, "", run.Withdrawal{}); err == nil || !strings.Contains(err.Error(), "Next: ") {
						t.Errorf("the cancel is answered %+v %v, want an error with what to do next", got, err)
					}
				}
				w.with(func() { w.fault = nil })
				v = w.until(a.RunID, done)
				switch {
				case c.ended:
					w.want(v, run.Succeeded, "ok")
				case cancel:
					w.want(v, run.Cancelled, "absent")
				default:
					w.want(v, run.Failed, "absent")
				}
			})
		}
	}
}

// A run that waits for room and whose folder is removed meanwhile gets a new folder: nothing was accepted that could
// have used the old one.
func TestFolderGoneWhileDeferred(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = sends(deferSend, accept)
		w.auto = true
		_, a := w.submitted()
		w.until(a.RunID, in(run.Deferred))
		w.with(func() { delete(w.attempts, a.RunID+"/1") })
		v := w.ended(a.RunID, run.Succeeded, "ok")
		if v.Attempt.N != 1 || w.count("Send") != 3 {
			t.Errorf("the run ended in attempt %d after %d sends, want 1 and 3", v.Attempt.N, w.count("Send"))
		}
	})
}

// The reason why a run waits is recorded once, although the error of each try has a different temporary name.
func TestWaitsOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.fault = func(op string, n int) outcome {
			if op == "OpenAttempt" {
				return outcome{skip: true, err: fault.New(fault.Transport, "disk_full",
					"mkdir .a1.0123456789abcdef0123456789abcdef."+strings.ToLower(rand.Text())+": no space left on device")}
			}
			return outcome{}
		}
		a := w.life().submit(order())
		time.Sleep(20 * time.Minute)
		v := w.until(a.RunID, in(run.Staging))
		if n := len(w.events(a.RunID)); n != 2 || v.Run.Reason != "staging_waits" ||
			!regexp.MustCompile(`\.a1\.0123456789abcdef0123456789abcdef\.[a-z2-7]{26}: no space left`).MatchString(v.Run.Detail) {
			t.Errorf("%d events, %s: %s", n, v.Run.Reason, v.Run.Detail)
		}
	})
}
