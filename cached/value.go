// Package cached keeps answers that are asked for again after a while, by one caller for all.
package cached

import (
	"context"
	"sync"
	"time"
)

// Value is one cached answer. It is fetched in the background, apart from the callers who wait for it: one that
// leaves does not end the query for the others. The last answer is kept until a newer one arrives. Its zero value is
// empty.
type Value[V any] struct {
	mu    sync.Mutex // never held during a query
	state State[V]
	next  time.Time // no query begins before
}

// Rule says when an answer is fetched.
type Rule struct {
	Fresh time.Duration // how old it may be, from when it was asked for
	Pause time.Duration // after a query
	Limit time.Duration // of a query
}

// State is the last answer with its times.
type State[V any] struct {
	Value V
	At    time.Time       // when it was asked for; zero: none is known
	Err   error           // of the last query; nil if it succeeded
	Began time.Time       // of the query in progress
	Busy  <-chan struct{} // closed when that ends; nil: no query
}

// Look returns the state and does not wait. If it is not fresh, or on demand, it begins a query, unless one is in
// progress or has just ended.
func (v *Value[V]) Look(now func() time.Time, r Rule, demand bool, ask func(context.Context) (V, error)) State[V] {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := now()
	fresh := !v.state.At.IsZero() && at.Sub(v.state.At) < r.Fresh
	if v.state.Busy == nil && (demand || !fresh) && !at.Before(v.next) {
		done := make(chan struct{})
		v.state.Began, v.state.Busy = at, done
		go func() {
			defer close(done)
			ctx, stop := context.WithTimeout(context.Background(), r.Limit)
			defer stop()
			value, err := ask(ctx)
			v.mu.Lock()
			defer v.mu.Unlock()
			if v.state.Err = err; err == nil {
				v.state.Value, v.state.At = value, at
			}
			v.state.Busy, v.next = nil, now().Add(r.Pause)
		}()
	}
	return v.state
}

// Wait waits until the query in progress ends, for at most a time, and reports whether it did.
func (s State[V]) Wait(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-s.Busy:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
