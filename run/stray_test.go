package run_test

import (
	"fmt"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// A job that appears after its attempt was declared absent, when no run is open any more, is cancelled, also by the
// next gateway. Some time later Slurm is no longer queried.
func TestLateJobIsCancelled(t *testing.T) {
	for name, restart := range map[string]bool{"same gateway": false, "next gateway": true} {
		bubbleRun(t, name, func(t *testing.T, w *world) {
			w.send = sends(doubtLate)
			l, a := w.submitted()
			w.want(w.until(a.RunID, done), run.Failed, "absent")
			if restart {
				l.crash()
				time.Sleep(time.Minute)
				l = w.life()
			}
			time.Sleep(5 * time.Minute)
			w.with(func() { w.jobs[0].late = false })
			time.Sleep(time.Minute)
			if j := w.slurm(0); j.State != "CANCELLED" {
				t.Errorf("the late job is %s, want CANCELLED", j.State)
			}
			time.Sleep(15 * time.Minute)
			asked := w.count("Queue")
			time.Sleep(20 * time.Minute)
			w.wantCount("Queue", asked)
		})
	}
}

// A started job that Slurm forgot is given up no sooner than twice MessageTimeout. While that is unknown, it is not
// given up.
func TestLostAfterTwoTimeouts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.timeout = 3 * time.Minute
		silent := true
		w.fault = failingWhile(&silent, errTransient, "MessageTimeout")
		l, a := w.submitted()
		w.with(func() { w.start(w.jobs[0]); w.jobs[0].forgot = true })
		time.Sleep(10 * time.Minute)
		if v := w.until(a.RunID, func(run.View) bool { return true }); v.Run.State.Terminal() {
			t.Errorf("while MessageTimeout is unknown the run is %+v, want it open", v.Run)
		}
		w.with(func() { silent = false })
		w.want(w.until(a.RunID, done), run.Failed, "lost")

		began := time.Now()
		b := l.submit(order(placed("lab", "short", nil, 7)))
		w.with(func() { w.start(w.jobs[1]); w.jobs[1].forgot = true })
		w.want(w.until(b.RunID, done), run.Failed, "lost")
		if d := time.Since(began); d < 6*time.Minute {
			t.Errorf("given up after %s", d)
		}
	})
}

// If MessageTimeout cannot be queried, the default of slurm.conf counts: a forgotten job is given up.
func TestLostWithoutMessageTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.timeout = time.Hour // not shown to the gateway
		w.fault = failing(fault.New(fault.NotFound, "rest_not_shown", "slurmrestd does not show MessageTimeout"), "MessageTimeout")
		a := w.life().submit(order())
		began := time.Now()
		w.with(func() { w.start(w.jobs[0]); w.jobs[0].forgot = true })
		time.Sleep(10 * time.Minute)
		v := w.until(a.RunID, func(run.View) bool { return true })
		w.want(v, run.Failed, "lost")
		if d := v.Run.UpdatedAt.Sub(began); d < 2*run.DefaultMessageTimeout {
			t.Errorf("given up after %s", d)
		}
	})
}

// From any moment on the ledger refuses every write: nothing is sent without its intent (the world checks that),
// callers get an error, and the next gateway, with the disk repaired, brings the run to its end without a second
// execution.
func TestLedgerStops(t *testing.T) {
	stopped := outcome{skip: true, err: fault.New(fault.Transport, "ledger_stopped", "the disk failed")}
	for n := 1; ; n++ {
		reached := false
		bubbleRun(t, fmt.Sprint(n), func(t *testing.T, w *world) {
			broken, writes := true, 0
			w.fault = func(op string, _ int) outcome {
				if op == "Insert" || op == "Apply" || op == "ApplyAll" {
					if writes++; broken && writes >= n {
						reached = true
						return stopped
					}
				}
				return outcome{}
			}
			w.auto = true
			l := w.life()
			w.input(order())
			a, err := l.engine.Submit(t.Context(), order())
			if n == 1 {
				if fault.CodeOf(err) != "ledger_stopped" {
					t.Error(err)
				}
			} else if err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			l.stop()
			w.with(func() { broken = false })
			next := w.life()
			if n == 1 {
				a = next.submit(order())
			}
			w.want(w.until(a.RunID, done), run.Succeeded, "ok")
		})
		if !reached || t.Failed() {
			if n < 6 {
				t.Errorf("only %d writes were refused, want at least 6", n)
			}
			return
		}
	}
}
