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

// placed changes the order's place; other seconds make it another run.
func placed(account, partition string, qos *string, seconds int) func(*plan.Params) {
	return func(p *plan.Params) {
		p.Spec.Placement.Account, p.Spec.Placement.Partition, p.Spec.Placement.QOS = account, partition, qos
		p.Spec.Resources.TimeLimitSeconds = seconds
	}
}

// What keeps one run from Slurm keeps the others of the same kind back, and no others.
func TestPauseScopes(t *testing.T) {
	high := "high"
	cases := map[run.Scope]struct{ held, free func(*plan.Params) }{
		run.ScopePartition: {placed("other", "short", nil, 2), placed("lab", "long", nil, 3)},
		run.ScopeAccount:   {placed("lab", "long", &high, 2), placed("other", "short", nil, 3)},
		run.ScopeQOS:       {placed("lab", "long", nil, 2), placed("lab", "short", &high, 3)},
		run.ScopeSite:      {placed("other", "long", &high, 2), nil},
		run.ScopeRun:       {nil, placed("lab", "short", nil, 3)},
	}
	for scope, c := range cases {
		t.Run(string(scope)+" pauses", func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.auto = true
				room := false
				w.deferred.Scope = scope
				w.send = func(n int) sendKind {
					if n == 1 || !room && n > 2 {
						return deferSend
					}
					return accept
				}
				l := w.life()
				first := l.submit(order())
				if first.Phase != run.Deferred {
					t.Fatalf("%+v", first)
				}
				var held run.SubmitAnswer
				if c.held != nil {
					if held = l.submit(order(c.held)); held.Phase != run.Deferred || !strings.HasPrefix(*held.Reason, "QOSMaxSubmitJobPerUserLimit") ||
						w.count("Send") != 1 {
						t.Errorf("held: %+v after %d sends", held, w.count("Send"))
					}
					if v := w.until(held.RunID, in(run.Deferred)); v.Sends != 0 {
						t.Errorf("%d sends of a run that was kept back", v.Sends)
					}
				}
				if c.free != nil {
					if free := l.submit(order(c.free)); free.Phase != run.Pending {
						t.Errorf("free: %+v", free)
					}
				}
				w.with(func() { room = true })
				for _, id := range []string{first.RunID, held.RunID} {
					if id != "" {
						w.want(w.until(id, done), run.Succeeded, "ok")
					}
				}
			})
		})
	}
}

// A hundred runs that wait for the same cost one send in each pause, not a hundred; the pauses grow up to the ceiling.
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
			t.Errorf("%d sends in two minutes without room", n)
		}
		w.with(func() { room = true })
		for _, id := range ids {
			w.want(w.until(id, done), run.Succeeded, "ok")
		}
	})
}

// A filesystem that is away, or full, keeps every new run back, and readiness says so: until a run is staged, or none waits for it any
// more.
func TestReadyWithoutDisk(t *testing.T) {
	for _, code := range []string{"runs_dir_unavailable", "disk_full"} {
		for _, cancel := range []bool{false, true} {
			t.Run(fmt.Sprint(code, " cancel ", cancel), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					l := w.life()
					w.with(func() {
						w.fault = func(op string, _ int) outcome {
							if op == "StageInputs" {
								return outcome{skip: true, err: fault.New(fault.Transport, code, "away").WithNext("mount it")}
							}
							return outcome{}
						}
					})
					a := l.submit(order())
					w.until(a.RunID, func(v run.View) bool { return v.Run.Reason == "staging_waits" })
					time.Sleep(time.Hour)
					if err := l.engine.Ready(); fault.CodeOf(err) != code || strings.Count(err.Error(), "Next: ") != 1 {
						t.Errorf("ready: %v", err)
					}
					if cancel {
						if _, err := l.engine.Cancel(t.Context(), a.RunID, ""); err != nil {
							t.Fatal(err)
						}
						time.Sleep(2 * w.cfg.Ceiling)
					} else {
						w.with(func() { w.fault = nil })
						w.until(a.RunID, in(run.Pending))
					}
					if err := l.engine.Ready(); err != nil {
						t.Errorf("not ready: %v", err)
					}
				})
			})
		}
	}
}

// A controller that is reached again ends the pause of the site at once, whatever was left of it.
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
		l.submit(order(placed("lab", "short", nil, 9))) // it keeps the watcher asking
		w.with(func() { down = true })
		waits := l.submit(order())
		if waits.Phase != run.Deferred || !strings.HasPrefix(*waits.Reason, run.Unreachable) {
			t.Fatalf("%+v", waits)
		}
		if err := l.engine.Ready(); fault.CodeOf(err) != run.Unreachable {
			t.Errorf("ready: %v", err)
		}
		w.with(func() { down = false })
		began := time.Now()
		w.until(waits.RunID, in(run.Pending))
		if d := time.Since(began); d > 5*time.Minute {
			t.Errorf("sent %s after Slurm was there again", d)
		}
		if err := l.engine.Ready(); err != nil {
			t.Errorf("not ready: %v", err)
		}
	})
}
