package run

import (
	"context"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// waiters are those who wait for a run. Whoever changes a run announces its new state, so that waiting reads nothing.
//
// A channel holds at most one state, the newest that was announced and not received; announce never waits.
type waiters struct {
	mu     sync.Mutex
	byRun  map[string][]chan View
	handed map[string]handed // runs just stored, for the worker that takes them up
	over   chan struct{}     // closed when nobody is to wait any longer
	end    func()            // closes it
}

func newWaiters() *waiters {
	over := make(chan struct{})
	return &waiters{byRun: map[string][]chan View{}, handed: map[string]handed{}, over: over, end: sync.OnceFunc(func() { close(over) })}
}

// listen delivers each change of a run from now on; of several that were not received yet, only the last. The caller calls stop.
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

// handed is what a submit knows of the run it has just stored: the row as it was written and the stored params, which the worker would
// read back otherwise, in 80 µs (BenchmarkTuningReads). It is no more than a copy: a row that has changed meanwhile refuses the first
// write.
type handed struct {
	view   View
	params *plan.Params
}

// handedAtOnce bounds the copies in memory; runs beyond that are read.
const handedAtOnce = 256

func (w *waiters) hand(v View, p plan.Params) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.handed) < handedAtOnce {
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
	if v, err = e.Store.View(ctx, id); err != nil { // changes before the listening began
		return v, err
	}
	return e.wait(ctx, v, changes, d, done)
}

// wait continues from a known state of the run, with a listener that was started before that state was read. The call gives back what it
// holds meanwhile. If its caller has too many calls that wait, it does not wait: the error is a Transport fault with code too_many_waits.
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
			return v, nil // the caller gave up waiting; what is known is still an answer
		}
	}
	if resume(); done(v) {
		return v, nil
	}
	return e.Store.View(ctx, v.Run.ID)
}

// EndWaits answers the calls that wait for a run with its present state, as if their time were up; later ones do not wait. It is called
// before the gateway stops.
func (e *Engine) EndWaits() { e.waiters.end() }

// EndWaits is [Engine.EndWaits] for every site.
func (s *Sites) EndWaits() {
	for _, m := range s.order {
		m.EndWaits()
	}
	if s.workers != nil {
		s.workers.EndWaits()
	}
}

const tooManyWaits = "too_many_waits"

// tooManyCalls refuses to let another call of a caller wait.
func tooManyCalls() error {
	return fault.New(fault.Transport, tooManyWaits, "too many of your calls wait for runs already").
		WithNext("repeat the call without wait_seconds, or when some of them have ended").WithRetry(LongWait)
}

// settle waits a few seconds for what an effect leads to. The effect has taken place: a caller who may not wait gets what is known.
func (e *Engine) settle(ctx context.Context, id string, done func(View) bool) (View, error) {
	v, err := e.waitFor(ctx, id, e.cfg.SubmitWait, done)
	if fault.CodeOf(err) == tooManyWaits {
		err = nil
	}
	return v, err
}
