package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// placed changes the order's placement; other seconds make it another run.
func placed(account, partition string, qos *string, seconds int) func(*plan.Params) {
	return func(p *plan.Params) {
		p.Spec.Placement.Account, p.Spec.Placement.Partition, p.Spec.Placement.QOS = account, partition, qos
		p.Spec.Resources.TimeLimitSeconds = seconds
	}
}

// A hundred runs that wait for the same reason cost one send in each pause, not a hundred; the pauses grow up to the
// ceiling.
func TestPauseCostsOneSend(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto, w.cfg.SendsAtOnce, w.cfg.Workers = true, 1, 4
		room := false
		w.deferred = run.SendResult{Code: "EAGAIN", Scope: run.ScopeSite}
		w.send = func(int) sendKind {
			if room {
				return accept
			}
			return deferSend
		}
		l := w.life()
		ids := make([]string, 100)
		for i := range ids {
			ids[i] = l.submit(order(placed("lab", "short", nil, i+1))).RunID
		}
		time.Sleep(2 * time.Minute)
		// 2, 4, 8 and then 10 s for about two minutes.
		if n := w.count("Send"); n < 8 || n > 16 {
			t.Errorf("there were %d sends in two minutes without room, want 8 to 16", n)
		}
		w.with(func() { room = true })
		w.wantAll(ids, run.Succeeded, "ok")
	})
}

// A filesystem that is unavailable, or full, delays every new run, and readiness says so: until a run is staged, or
// none waits for it any more.
func TestReadyWithoutDisk(t *testing.T) {
	for _, code := range []string{"runs_dir_unavailable", "disk_full"} {
		for _, cancel := range []bool{false, true} {
			bubbleRun(t, fmt.Sprint(code, " cancel ", cancel), func(t *testing.T, w *world) {
				l := w.life()
				w.with(func() {
					w.fault = failing(fault.New(fault.Transport, code, "away").WithNext("mount it"), "StageInputs")
				})
				a := l.submit(order())
				w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "staging_waits" })
				time.Sleep(20 * time.Minute)
				if err := l.engine.Ready(); fault.CodeOf(err) != code || strings.Count(err.Error(), "Next: ") != 1 {
					t.Errorf("ready: %v", err)
				}
				if cancel {
					l.cancelRun(a.RunID)
					time.Sleep(2 * w.cfg.Ceiling)
				} else {
					w.with(func() { w.fault = nil })
					w.until(a.RunID, in(run.Pending))
				}
				if err := l.engine.Ready(); err != nil {
					t.Errorf("not ready: %v", err)
				}
			})
		}
	}
}

// When a controller is reached again the pause of the site ends immediately, however long it had left.
func TestPauseEndsWhenReached(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cfg.Ceiling, w.cfg.DeferBackoff = time.Hour, 30*time.Minute
		down := false
		w.deferred = run.SendResult{Code: run.Unreachable, Scope: run.ScopeSite}
		w.send = func(int) sendKind {
			if down {
				return deferSend
			}
			return accept
		}
		l := w.life()
		l.submit(order(placed("lab", "short", nil, 9))) // it keeps the watcher querying
		w.with(func() { down = true })
		waits := l.submit(order())
		if waits.Phase != run.Deferred || !strings.HasPrefix(*waits.Reason, run.Unreachable) {
			t.Fatalf("the next run is %+v, want deferred as Slurm does not answer", waits)
		}
		if err := l.engine.Ready(); fault.CodeOf(err) != run.Unreachable {
			t.Errorf("ready: %v", err)
		}
		w.with(func() { down = false })
		began := time.Now()
		w.until(waits.RunID, in(run.Pending))
		if d := time.Since(began); d > 5*time.Minute {
			t.Errorf("the run was sent %s after Slurm was reached again, want five minutes at most", d)
		}
		if err := l.engine.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
	})
}
