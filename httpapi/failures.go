package httpapi

import (
	"context"
	"sync"
	"time"
)

// failures slows failed logins down, by their address or user. It does not affect good credentials: they are checked
// first.
type failures struct {
	mu sync.Mutex
	by map[string]*loginFailures
}

type loginFailures struct {
	n       int // in a row, without a minute's pause
	last    time.Time
	waiting int // answers that are delayed now
}

const (
	freeFailures  = 5 // that are answered at once
	firstPause    = 50 * time.Millisecond
	longestPause  = 2 * time.Second
	forgetAfter   = time.Minute
	maxDelayed    = 16   // answers of one address that are delayed at a time; further ones close their connections
	maxFailedFrom = 1024 // addresses counted apart
)

// pause waits before a failed login is answered. It returns false if too many answers to the address wait already.
func (f *failures) pause(ctx context.Context, e *loginFailures, d time.Duration) bool {
	if d == 0 {
		return true
	}
	f.mu.Lock()
	if e.waiting >= maxDelayed {
		f.mu.Unlock()
		return false
	}
	e.waiting++
	f.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	f.mu.Lock()
	e.waiting--
	f.mu.Unlock()
	return true
}

// add counts a failure. It returns how many there were in a row, and how long the answer to this one waits.
func (f *failures) add(from string) (e *loginFailures, n int, wait time.Duration) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	e = f.by[from]
	if e == nil {
		if len(f.by) >= maxFailedFrom {
			f.forget(now)
		}
		if len(f.by) >= maxFailedFrom {
			from = "" // together
			e = f.by[from]
		}
	}
	if e == nil {
		e = &loginFailures{}
		if f.by == nil {
			f.by = map[string]*loginFailures{}
		}
		f.by[from] = e
	}
	if now.Sub(e.last) > forgetAfter {
		e.n = 0
	}
	e.n++
	e.last = now
	if e.n <= freeFailures {
		return e, e.n, 0
	}
	return e, e.n, min(firstPause<<min(e.n-freeFailures-1, 10), longestPause)
}

func (f *failures) forget(now time.Time) {
	for from, e := range f.by {
		if now.Sub(e.last) > forgetAfter && e.waiting == 0 {
			delete(f.by, from)
		}
	}
}
