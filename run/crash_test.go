package run_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// harm is what happens to the n-th operation of the gateway on anything outside it.
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

// journey is the outcome of the sends of a run, one after another. Up to its first send every journey is the same: one
// is harmed at each operation, the others from their send on.
type journey struct {
	sends []sendKind
	from  string // the first operation that is harmed; empty: all
}

var journeys = map[string]journey{
	"accepted":                    {[]sendKind{accept}, ""},
	"answer lost":                 {[]sendKind{doubtJob}, "Send"},
	"answer and job lost":         {[]sendKind{doubtNone, accept}, "Send"},
	"answer lost, job late":       {[]sendKind{doubtLate, accept}, "Send"},
	"deferred first":              {[]sendKind{deferSend, accept}, "Send"},
	"gateway stops during sbatch": {[]sendKind{hangs}, "Send"},
	"renamed, answer lost":        {[]sendKind{doubtJob}, "Send"},
}

// sends gives each sbatch its outcome, in turn; the last one is that of all further ones too.
func sends(kinds ...sendKind) func(int) sendKind {
	return func(i int) sendKind { return kinds[min(i, len(kinds))-1] }
}

// harmEach runs a test once for each harm to each operation of a journey, until no operation is left. f reports whether
// there was an n-th one.
func harmEach(t *testing.T, least int, f func(t *testing.T, w *world, o outcome, n int) (reached bool)) {
	t.Helper()
	worst := 0
	for _, h := range harms {
		for n := 1; ; n++ {
			reached := false
			bubbleRun(t, fmt.Sprintf("%s/%d", h.name, n), func(t *testing.T, w *world) { reached = f(t, w, h.outcome, n) })
			if worst = max(worst, n); !reached || t.Failed() {
				break
			}
		}
	}
	if worst < least {
		t.Errorf("%d operations were harmed, want %d at least", worst, least)
	}
}

// Every operation on every port is harmed in every way, one at a time: the run still ends well, the program is executed
// exactly once, and a caller who submits again gets the same run. proves ABI-18, CARD-04
func TestEverySeam(t *testing.T) {
	for name, j := range journeys {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harmEach(t, map[string]int{"": 20, "Send": 8}[j.from], func(t *testing.T, w *world, o outcome, n int) bool {
				if strings.HasPrefix(name, "renamed") {
					w.plugged()
				}
				return seam(t, w, j, o, n)
			})
		})
	}
}

// queryRarely makes the engine query Slurm every five to thirty seconds: a query that shows no change is like the one
// before.
func queryRarely(w *world) { w.cfg.Floor, w.cfg.Ceiling = 5*time.Second, 30*time.Second }

// seam drives one run to its end with the n-th operation harmed, and reports whether there was such an operation.
func seam(t *testing.T, w *world, j journey, o outcome, n int) bool {
	queryRarely(w)
	w.auto = true
	w.cfg.Attempts = 4
	w.send = sends(j.sends...)
	reached := harmNth(w, j.from, n, o)
	v := drive(t, w, order(), nil)
	w.want(v, run.Succeeded, "ok")
	w.executed(1)
	w.startAll()
	return reached.Load()
}

// executed fails the test unless programs were executed this often in all.
func (w *world) executed(want int) {
	w.t.Helper()
	w.with(func() {
		executed := 0
		for _, a := range w.attempts {
			executed += a.executions
		}
		if executed != want {
			w.t.Errorf("programs were executed %d times, want %d; the operations were %v", executed, want, w.calls)
		}
	})
}

// startAll starts all waiting jobs, late ones too: no job that Slurm starts later executes, which the world checks.
func (w *world) startAll() {
	w.with(func() {
		for _, j := range w.jobs {
			if j.late = false; j.Class == run.ClassPending {
				w.start(j)
			}
		}
	})
}

// drive submits a run, again after each death of the gateway, until the run has ended. ask is repeated until it returns
// true.
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
			w.with(func() { clear(w.held) }) // its sbatch has ended before the next gateway starts
			l = w.life()
		}
		v, err := w.ledger.View(context.Background(), id.RunID())
		switch {
		case fault.Is(err, fault.NotFound):
			_, _ = l.engine.Submit(context.Background(), o) // the ledger shows the result
			asked = asked || ask(l)
			continue
		case err != nil:
			t.Fatal(err)
		case done(v):
			return v
		case v.Run.Phase == run.Submitting && second%60 == 59:
			l.crash() // only the end of the gateway releases an sbatch that hangs
		}
		asked = asked || ask(l)
		time.Sleep(time.Second)
	}
	v, _ := w.ledger.View(context.Background(), id.RunID())
	t.Fatalf("STUCK in %s/%s: %s %s", v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail)
	return v
}

// The same with an immediate cancel: if the answer is that the program never ran, it never runs, whatever happens
// afterwards.
func TestEverySeamCancelled(t *testing.T) {
	for name, kind := range map[string]sendKind{"accepted": accept, "answer lost": doubtJob, "answer lost, job late": doubtLate,
		"deferred": deferSend} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harmEach(t, 6, func(t *testing.T, w *world, o outcome, n int) bool { return seamCancelled(t, w, kind, o, n) })
		})
	}
}

// The same with jobs that would wait in the queue for ever: no job of a cancelled run stays there.
func TestEverySeamCancelledWaiting(t *testing.T) {
	for name, kind := range map[string]sendKind{"accepted": accept, "answer lost": doubtJob} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			harmEach(t, 10, func(t *testing.T, w *world, o outcome, n int) bool { return seamCancelledWaiting(t, w, kind, o, n) })
		})
	}
}

// harmNth harms the n-th operation on the ports, counted from the first one with the name from. Of queries that repeat
// until something has changed only the first few count. It returns whether that operation was reached; an engine that
// is still alive may set it.
func harmNth(w *world, from string, n int, o outcome) *atomic.Bool {
	const questions = 4
	var reached atomic.Bool
	counted := 0
	w.fault = func(op string, _ int) outcome {
		switch {
		case counted == 0 && from != "" && op != from, slices.Contains([]string{"Queue", "MessageTimeout"}, op) && w.calls[op] > questions:
			return outcome{}
		}
		if counted++; counted != n {
			return outcome{}
		}
		reached.Store(true)
		return o
	}
	return &reached
}

func seamCancelledWaiting(t *testing.T, w *world, kind sendKind, o outcome, n int) bool {
	queryRarely(w)
	w.send = sends(kind)
	reached := harmNth(w, "", n, o)
	ord := order()
	_, id, _ := ord.Identity()
	var a run.CancelAnswer
	v := drive(t, w, ord, func(l *life) bool {
		var err error
		a, err = l.engine.Cancel(context.Background(), id.RunID(), "enough", run.Withdrawal{})
		return err == nil
	})
	if v.Run.CancelAt != nil {
		w.want(v, run.Cancelled, "cancelled")
	} else { // the next gateway ended the run before the cancel was repeated, and answers so
		w.want(v, run.Failed, "absent")
		if a.RunID != "" && a.State != run.Failed {
			t.Errorf("a cancel after the run failed is answered %+v, want that it failed", a)
		}
	}
	w.life()
	time.Sleep(3 * time.Minute)
	w.executed(0)
	w.with(func() {
		for _, j := range w.jobs {
			if j.Class != run.ClassEnded {
				t.Errorf("job %s of a cancelled run stays %s", j.ID, j.State)
			}
		}
	})
	return reached.Load()
}

func seamCancelled(t *testing.T, w *world, kind sendKind, o outcome, n int) bool {
	w.auto = true
	w.cfg.Attempts = 2
	w.cfg.SubmitWait = 0 // the cancel arrives while the run is staged, sent or queued
	w.send = sends(kind)
	reached := harmNth(w, "", n, o)
	ord := order()
	_, id, _ := ord.Identity()
	var answers []run.CancelAnswer
	v := drive(t, w, ord, func(l *life) bool {
		a, err := l.engine.Cancel(context.Background(), id.RunID(), "enough", run.Withdrawal{})
		if err == nil {
			answers = append(answers, a)
		}
		return err == nil
	})
	l := w.life()
	last, err := l.engine.Cancel(context.Background(), id.RunID(), "enough", run.Withdrawal{})
	if err != nil {
		t.Fatal(err)
	}
	answers = append(answers, last)
	w.startAll()
	w.with(func() {
		executed := 0
		for _, a := range w.attempts {
			executed += a.executions
		}
		for _, a := range answers {
			if a.Executed == "never" && executed > 0 {
				t.Errorf("a cancel is answered %+v, but the program was executed %d times", a, executed)
			}
		}
	})
	if v.Run.State != run.Cancelled && v.Run.State != run.Succeeded {
		t.Errorf("%s (%s: %s)", v.Run.State, v.Run.Reason, v.Run.Detail)
	}
	return reached.Load()
}

// Many concurrent runs under two gateways that both got past the lock: each is executed once.
func TestTwoGateways(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.auto = true
		a, b := w.life(), w.life()
		var ids []string
		for i := range 20 {
			o := order(func(p *plan.Params) { p.Spec.Resources.MemMB = 100 + i })
			ids = append(ids, a.submit(o).RunID)
			if r := b.submit(o); !r.Replayed || r.RunID != ids[i] {
				t.Errorf("the same order in another gateway is answered %+v, want the first run", r)
			}
		}
		w.wantAll(ids, run.Succeeded, "ok")
		if len(w.jobs) != len(ids) {
			t.Errorf("Slurm was given %d jobs for %d runs, want one each", len(w.jobs), len(ids))
		}
	})
}
