package run

import (
	"context"
	"slices"
	"time"
)

// Whoever changes a run passes its new state to those that wait for it: waiting reads nothing.

// listen delivers each change of a run from now on; of several that were not received yet, only the last. The caller calls stop.
func (e *Engine) listen(id string) (changes <-chan View, stop func()) {
	c := make(chan View, 1)
	e.mu.Lock()
	e.listeners[id] = append(e.listeners[id], c)
	e.mu.Unlock()
	return c, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		left := slices.DeleteFunc(e.listeners[id], func(o chan View) bool { return o == c })
		if e.listeners[id] = left; len(left) == 0 {
			delete(e.listeners, id)
		}
	}
}

// announce passes the new state to those that wait for the run.
func (e *Engine) announce(v View) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.listeners[v.Run.ID] {
		select {
		case newer := <-c: // not received yet
			if newer.Run.Rev > v.Run.Rev { // two transitions may come here in either order
				v = newer
			}
		default:
		}
		c <- v
	}
}

// waitFor returns when done is true for the run, or when d has passed.
func (e *Engine) waitFor(ctx context.Context, id string, d time.Duration, done func(View) bool) (View, error) {
	v, err := e.Store.View(ctx, id)
	if err != nil || done(v) || d <= 0 {
		return v, err
	}
	changes, stop := e.listen(id)
	defer stop()
	if v, err = e.Store.View(ctx, id); err != nil { // changes before the listening began
		return v, err
	}
	return e.wait(ctx, v, changes, d, done)
}

// wait continues from a known state of the run, with a listener that was started before that state was read.
func (e *Engine) wait(ctx context.Context, v View, changes <-chan View, d time.Duration, done func(View) bool) (View, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !done(v) {
		select {
		case v = <-changes:
		case <-timer.C:
			return e.Store.View(ctx, v.Run.ID)
		case <-ctx.Done():
			return v, nil // the caller gave up waiting; what is known is still an answer
		}
	}
	return v, nil
}
