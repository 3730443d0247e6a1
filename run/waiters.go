package run

import (
	"context"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// waiters delivers new states of runs to those who wait for them. Each write of a run announces its new state, so that
// waiting reads nothing from the ledger.
//
// A channel holds at most one state, the newest that was announced and not received; announce never waits.
type waiters struct {
	mu     sync.Mutex
	byRun  map[string][]chan View
	handed map[string]handed // runs just stored, for the worker that takes them up
	over   chan struct{}     // closed when all waits must end
	end    func()            // closes it
}

func newWaiters() *waiters {
	over := make(chan struct{})
	return &waiters{byRun: map[string][]chan View{}, handed: map[string]handed{}, over: over, end: sync.OnceFunc(func() { close(over) })}
}

// listen delivers each change of a run from now on; of several that were not received yet, only the last. The caller
// must call stop.
func (w *waiters) listen(id string) (changes <-chan View, stop func()) {
	c := make(chan View, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byRun[id] = append(w.byRun[id], c)
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		left := slices.DeleteFunc(w.byRun[id], func(o chan View) bool { return o == c })
		if w.byRun[id] = left; len(left) == 0 {
			delete(w.byRun, id)
		}
	}
}

// announce passes the new state to those that wait for the run.
func (w *waiters) announce(v View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.byRun[v.Run.ID] {
		newest := v
		select {
		case last := <-c: // not received yet
			if last.Run.Rev > v.Run.Rev { // two transitions may come here in either order
				newest = last
			}
		default:
		}
		c <- newest
	}
}

// handed is a copy of the run that a submit has just stored: the row as written and the stored params, which the worker
// would otherwise read back in 80 µs (BenchmarkTuningReads). A copy cannot do harm: if the row has changed meanwhile,
// the first write is refused.
type handed struct {
	view   View
	params *plan.Params
}

// maxHanded bounds the copies in memory; runs beyond that are read.
const maxHanded = 256

func (w *waiters) hand(v View, p plan.Params) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.handed) < maxHanded {
		w.handed[v.Run.ID] = handed{v, &p}
	}
}

// take returns and removes what was handed over for the run.
func (w *waiters) take(id string) (handed, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h, ok := w.handed[id]
	delete(w.handed, id)
	return h, ok
}

// waitFor returns when done is true for the run, or when d has passed.
func (e *Engine) waitFor(ctx context.Context, id string, d time.Duration, done func(View) bool) (View, error) {
	v, err := e.Store.View(ctx, id)
	if err != nil || done(v) || d <= 0 {
		return v, err
	}
	changes, stop := e.waiters.listen(id)
	defer stop()
	if v, err = e.Store.View(ctx, id); err != nil { // includes changes before listen
		return v, err
	}
	return e.wait(ctx, v, changes, d, done)
}

// wait continues from a known state of the run, with a listener that was started before that state was read. Meanwhile
// the call releases what it holds. If its caller has too many waiting calls, it does not wait: the error is a Transport
// fault with code too_many_waits.
func (e *Engine) wait(ctx context.Context, v View, changes <-chan View, d time.Duration, done func(View) bool) (View, error) {
	if done(v) {
		return v, nil
	}
	resume, ok := e.Waits(ctx)
	if !ok {
		return v, tooManyCalls()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	for late := false; !done(v) && !late; {
		select {
		case v = <-changes:
		case <-timer.C:
			late = true
		case <-e.waiters.over:
			late = true
		case <-ctx.Done():
			resume()
			return v, nil // the caller gave up; the known state is still an answer
		}
	}
	if resume(); done(v) {
		return v, nil
	}
	return e.Store.View(ctx, v.Run.ID)
}

// EndWaits answers the calls that wait for a run with its present state, as if their time were up; later calls do not
// wait. It is called before the gateway stops.
func (e *Engine) EndWaits() { e.waiters.end() }

// EndWaits calls [Engine.EndWaits] for every site.
func (s *Sites) EndWaits() {
	for _, m := range s.order {
		m.EndWaits()
	}
	if s.workers != nil {
		s.workers.EndWaits()
	}
}

const tooManyWaits = "too_many_waits"

// tooManyCalls returns the fault of a call that may not wait, because its caller has too many waiting calls.
func tooManyCalls() error {
	return fault.New(fault.Transport, tooManyWaits, "too many of your calls wait for runs already").
		WithNext("repeat the call without wait_seconds, or when some of them have ended").WithRetry(LongWait)
}

// settle waits up to Config.SubmitWait for the result of a change. The change is stored: a caller that may not wait
// gets what is known.
func (e *Engine) settle(ctx context.Context, id string, done func(View) bool) (View, error) {
	v, err := e.waitFor(ctx, id, e.cfg.SubmitWait, done)
	if fault.CodeOf(err) == tooManyWaits {
		err = nil
	}
	return v, err
}
