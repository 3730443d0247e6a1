package access

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"slurmgate/fault"
)

// answers caches the answers of a directory service. Concurrent callers with the same key share one look-up, which
// runs independently of them: a caller that leaves does not end it for the others. Few look-ups run at a time.
type answers[V any] struct {
	now     func() time.Time
	absent  time.Duration // how long NotFound is cached; another error is cached for memberRetry
	slots   chan struct{} // one for each look-up in progress
	flights singleflight.Group

	mu    sync.Mutex // never held during a look-up
	known map[string]answer[V]
}

type answer[V any] struct {
	value V
	err   error
	until time.Time
}

func newAnswers[V any](now func() time.Time, absent time.Duration) *answers[V] {
	return &answers[V]{now: now, absent: absent, slots: make(chan struct{}, maxLookups), known: map[string]answer[V]{}}
}

// cached reports whether there is a fresh answer for a key, and returns its error. It does not wait.
func (a *answers[V]) cached(key string) (ok bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	is, ok := a.fresh(key)
	return ok, is.err
}

func (a *answers[V]) fresh(key string) (answer[V], bool) {
	is, ok := a.known[key]
	return is, ok && a.now().Before(is.until)
}

// get returns the cached answer for a key, or that of a look-up, for which it waits no longer than memberWait.
func (a *answers[V]) get(ctx context.Context, key string, lookUp func(context.Context) (V, error)) (value V, err error) {
	a.mu.Lock()
	if is, ok := a.fresh(key); ok {
		defer a.mu.Unlock()
		return is.value, is.err
	}
	flight := a.flights.DoChan(key, func() (any, error) { return a.lookUp(key, lookUp) })
	a.mu.Unlock()
	timer := time.NewTimer(memberWait)
	defer timer.Stop()
	select {
	case r := <-flight:
		return r.Val.(V), r.Err
	case <-timer.C:
		return value, fmt.Errorf("no answer within %s", memberWait)
	case <-ctx.Done():
		return value, ctx.Err()
	}
}

func (a *answers[V]) lookUp(key string, lookUp func(context.Context) (V, error)) (V, error) {
	a.slots <- struct{}{}
	ctx, stop := context.WithTimeout(context.Background(), memberWait)
	defer stop()
	value, err := lookUp(ctx)
	<-a.slots
	a.mu.Lock()
	defer a.mu.Unlock()
	a.makeRoom()
	keep := memberFresh
	switch {
	case fault.Is(err, fault.NotFound):
		keep = a.absent
	case err != nil:
		keep = memberRetry
	}
	a.known[key] = answer[V]{value, err, a.now().Add(keep)}
	return value, err
}

// makeRoom drops answers when there are too many, expired ones first.
func (a *answers[V]) makeRoom() {
	if len(a.known) >= maxMembers {
		now := a.now()
		maps.DeleteFunc(a.known, func(_ string, is answer[V]) bool { return !now.Before(is.until) })
	}
	for key := range a.known {
		if len(a.known) < maxMembers {
			return
		}
		delete(a.known, key)
	}
}
