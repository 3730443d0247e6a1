package run_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// harm is what befalls the n-th operation that the gateway does to anything outside it.
type harm struct {
	name string
	outcome
}

// To die before an operation is to die after the one before it.
var harms = []harm{
	{"dies", outcome{kill: true}},
	{"fails", outcome{skip: true, err: errTransient}},
	{"takes effect and reports an error", outcome{err: errTransient}},
}

// Every operation on every port is harmed in every way, one at a time: the run ends well all the same, the
// program is executed exactly once, and the caller who asks again gets the same run. proves ABI-18, CARD-04
func TestEverySeam(t *testing.T) {
	for name, kinds := range map[string][]sendKind{
		"accepted":                    {accept},
		"answer lost":                 {doubtJob},
		"answer and job lost":         {doubtNone, accept},
		"answer lost, job late":       {doubtLate, accept},
		"deferred first":              {deferSend, accept},
		"gateway stops during sbatch": {hangs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worst := 0
			for _, h := range harms {
				for n := 1; ; n++ {
					reached := false
					t.Run(fmt.Sprintf("%s/%d", h.name, n), func(t *testing.T) {
						bubble(t, func(t *testing.T, w *world) { reached = seam(t, w, kinds, h.outcome, n) })
					})
					if worst = max(worst, n); !reached || t.Failed() {
						break
					}
				}
			}
			if worst < 25 {
				t.Errorf("only %d operations were harmed", worst)
			}
		})
	}
}

// seam drives one run to its end with the n-th operation harmed, and tells whether there was such an operation.
func seam(t *testing.T, w *world, kinds []sendKind, o outcome, n int) (was bool) {
	w.auto = true
	w.cfg.Attempts = 4
	w.send = func(i int) sendKind { return kinds[min(i, len(kinds))-1] }
	hit, reached := "", false // the gateway's, which works on when the run is over
	w.fault = func(op string, i int) outcome {
		if i != n {
			return outcome{}
		}
		hit, reached = op, true
		return o
	}
	v := drive(t, w, order(), nil)
	w.with(func() {
		executed := 0
		for _, a := range w.attempts {
			executed += a.executions
		}
		if v.Run.State != run.Succeeded || executed != 1 {
			t.Errorf("harm to %s: %s (%s: %s), executed %d times, %v", hit, v.Run.State, v.Run.Reason, v.Run.Detail, executed, w.calls)
		}
	})
	// Whatever Slurm starts later does not execute.
	w.with(func() {
		for _, j := range w.jobs {
			if j.late = false; j.Class == run.ClassPending {
				w.start(j)
			}
		}
		was = reached
	})
	return was
}

// drive asks for a run, again after each death of the gateway, until it is over. ask is repeated until it is
// answered.
func drive(t *testing.T, w *world, o run.Order, ask func(l *life) bool) run.View {
	t.Helper()
	w.input(o)
	_, id, err := o.Identity()
	if err != nil {
		t.Fatal(err)
	}
	l := w.life()
	asked := ask == nil
	for second := range 3600 {
		if l.dead.Load() {
			l.stop()
			w.with(func() { clear(w.held) }) // its sbatch has ended by the time of the next gateway
			l = w.life()
		}
		v, err := w.ledger.View(context.Background(), id.RunID())
		switch {
		case fault.Is(err, fault.NotFound):
			_, _ = l.engine.Submit(context.Background(), o) // what comes of it is seen in the ledger
			asked = asked || ask(l)
			continue
		case err != nil:
			t.Fatal(err)
		case done(v):
			return v
		case v.Run.Phase == run.Submitting && second%60 == 59:
			l.crash() // only a gateway that ends lets go of an sbatch that hangs
		}
		asked = asked || ask(l)
		time.Sleep(time.Second)
	}
	v, _ := w.ledger.View(context.Background(), id.RunID())
	t.Fatalf("STUCK in %s/%s: %s %s", v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail)
	return v
}

// The same with a cancel that is asked for right away: where the answer is that the program never ran, it
// never runs, whatever happens afterwards.
func TestEverySeamCancelled(t *testing.T) {
	for name, kind := range map[string]sendKind{"accepted": accept, "answer lost": doubtJob, "answer lost, job late": doubtLate,
		"deferred": deferSend} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range harms {
				for n := 1; ; n++ {
					reached := false
					t.Run(fmt.Sprintf("%s/%d", h.name, n), func(t *testing.T) {
						bubble(t, func(t *testing.T, w *world) { reached = seamCancelled(t, w, kind, h.outcome, n) })
					})
					if !reached || t.Failed() {
						break
					}
				}
			}
		})
	}
}

// The same with jobs that would wait in the queue for ever: none of a cancelled run stays there.
func TestEverySeamCancelledWaiting(t *testing.T) {
	for name, kind := range map[string]sendKind{"accepted": accept, "answer lost": doubtJob} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, h := range harms {
				for n := 1; ; n++ {
					reached := false
					t.Run(fmt.Sprintf("%s/%d", h.name, n), func(t *testing.T) {
						bubble(t, func(t *testing.T, w *world) { reached = seamCancelledWaiting(t, w, kind, h.outcome, n) })
					})
					if !reached || t.Failed() {
						break
					}
				}
			}
		})
	}
}

// harmNth has the nth operation on the ports harmed. It returns whether that operation was reached; an engine that is still alive may set
// it.
func harmNth(w *world, n int, o outcome) *atomic.Bool {
	var reached atomic.Bool
	w.fault = func(_ string, i int) outcome {
		if i != n {
			return outcome{}
		}
		reached.Store(true)
		return o
	}
	return &reached
}

func seamCancelledWaiting(t *testing.T, w *world, kind sendKind, o outcome, n int) bool {
	w.send = func(int) sendKind { return kind }
	reached := harmNth(w, n, o)
	ord := order()
	_, id, _ := ord.Identity()
	var a run.CancelAnswer
	v := drive(t, w, ord, func(l *life) bool {
		var err error
		a, err = l.engine.Cancel(context.Background(), id.RunID(), "enough")
		return err == nil
	})
	if v.Run.CancelAt != nil {
		w.want(v, run.Cancelled, "cancelled")
	} else { // the next gateway ended the run before it was asked again, and says so
		w.want(v, run.Failed, "absent")
		if a.RunID != "" && a.State != run.Failed {
			t.Errorf("the cancel came too late, and the answer is %+v", a)
		}
	}
	w.life()
	time.Sleep(3 * time.Minute)
	w.with(func() {
		for _, j := range w.jobs {
			if j.Class != run.ClassEnded {
				t.Errorf("job %s stays %s", j.ID, j.State)
			}
		}
		for _, a := range w.attempts {
			if a.executions > 0 {
				t.Error("it was executed")
			}
		}
	})
	return reached.Load()
}

func seamCancelled(t *testing.T, w *world, kind sendKind, o outcome, n int) bool {
	w.auto = true
	w.cfg.Attempts = 2
	w.cfg.SubmitWait = 0 // cancel comes in while the run is staged, sent or queued
	w.send = func(int) sendKind { return kind }
	reached := harmNth(w, n, o)
	ord := order()
	_, id, _ := ord.Identity()
	var answers []run.CancelAnswer
	v := drive(t, w, ord, func(l *life) bool {
		a, err := l.engine.Cancel(context.Background(), id.RunID(), "enough")
		if err == nil {
			answers = append(answers, a)
		}
		return err == nil
	})
	l := w.life()
	last, err := l.engine.Cancel(context.Background(), id.RunID(), "enough")
	if err != nil {
		t.Fatal(err)
	}
	answers = append(answers, last)
	w.with(func() {
		for _, j := range w.jobs {
			if j.late = false; j.Class == run.ClassPending {
				w.start(j)
			}
		}
		executed := 0
		for _, a := range w.attempts {
			executed += a.executions
		}
		for _, a := range answers {
			if a.Executed == "never" && executed > 0 {
				t.Errorf("answered %+v, executed %d times", a, executed)
			}
		}
	})
	if v.Run.State != run.Cancelled && v.Run.State != run.Succeeded {
		t.Errorf("%s (%s: %s)", v.Run.State, v.Run.Reason, v.Run.Detail)
	}
	return reached.Load()
}

// The gateway is killed at a stage, by hand, and the run goes on under the next one.
func TestKilledAtEachStage(t *testing.T) {
	for _, p := range []run.Phase{run.Deferred, run.Unconfirmed, run.Pending, run.InJob, run.Completing, run.Collecting} {
		t.Run(string(p), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				stuck := true
				w.send = func(n int) sendKind {
					switch {
					case p == run.Deferred && stuck:
						return deferSend
					case p == run.Unconfirmed:
						return doubtJob
					}
					return accept
				}
				w.fault = func(op string, _ int) outcome {
					if stuck && (p == run.Collecting && op == "OpenOutput" || p == run.Unconfirmed && op == "Queue") {
						return outcome{skip: true, err: errTransient}
					}
					return outcome{}
				}
				l := w.life()
				a := l.submit(order())
				if p != run.Deferred && p != run.Unconfirmed {
					w.until(a.RunID, in(run.Pending))
					w.with(func() {
						j := w.jobs[0]
						switch p {
						case run.InJob:
							w.start(j)
						case run.Completing:
							w.start(j)
							j.State, j.Class = "COMPLETING", run.ClassCompleting
						case run.Collecting:
							w.start(j)
							w.finish(j)
						}
					})
				}
				w.until(a.RunID, in(p))
				l.crash()
				w.with(func() { stuck = false })
				l = w.life()
				again := l.submit(order())
				if !again.Replayed || again.RunID != a.RunID {
					t.Errorf("%+v", again)
				}
				w.with(func() {
					for _, j := range w.jobs {
						if j.Class == run.ClassCompleting {
							w.finish(j)
						}
					}
					w.auto = true
				})
				w.want(w.until(a.RunID, done), run.Succeeded, "ok")
				if len(w.jobs) != 1 {
					t.Error(len(w.jobs))
				}
			})
		})
	}
}

// Many runs at once under two gateways that both got past the lock: each is executed once.
func TestTwoGateways(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto = true
		a, b := w.life(), w.life()
		var ids []string
		for i := range 20 {
			o := order(func(p *plan.Params) { p.Spec.Resources.MemMB = 100 + i })
			ids = append(ids, a.submit(o).RunID)
			if r := b.submit(o); !r.Replayed || r.RunID != ids[i] {
				t.Errorf("%+v", r)
			}
		}
		for _, id := range ids {
			w.want(w.until(id, done), run.Succeeded, "ok")
		}
		if len(w.jobs) != len(ids) {
			t.Errorf("%d jobs for %d runs", len(w.jobs), len(ids))
		}
	})
}
