package run

import (
	"sync"
	"time"
)

// watcher is the state that the engine's watching loop keeps from one cycle to the next, see [Engine.watch].
//
// at is the time of the last complete answer and failed why the last query brought none: a failed query never changes
// at. An id in sought is in the next query, whatever happens to this one.
type watcher struct {
	now     func() time.Time
	wakeups chan struct{} // asks for a cycle soon
	first   chan struct{} // closed after the first cycle

	// Used by the loop alone.
	offered   map[Phase]string // the last run offered to the workers, if more wait
	measureAt time.Time        // when accounting may be queried again for usage

	mu         sync.Mutex
	due        time.Time // when the loop's pause ends; zero: a cycle is running
	at         time.Time
	failed     error
	failedAt   time.Time          // when the first of the failed queries in a row failed
	sought     map[string]bool    // ids of jobs not found by their names
	strayUntil time.Time          // until when Slurm is queried for jobs of ended attempts
	awaited    map[string]awaited // by job name: jobs collected before Slurm reported how they ended
}

func newWatcher(now func() time.Time) *watcher {
	return &watcher{now: now, wakeups: make(chan struct{}, 1), first: make(chan struct{}), offered: map[Phase]string{},
		sought: map[string]bool{}}
}

// sleeps records that the loop begins a pause.
func (w *watcher) sleeps(pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = w.now().Add(pause)
}

// works records that a pause has ended.
func (w *watcher) works() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.due = time.Time{}
}

// overslept returns for how long the loop has been pausing beyond the end of its pause. A cycle that waits for Slurm or
// a filesystem is not a pause.
func (w *watcher) overslept() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due.IsZero() {
		return 0
	}
	return max(0, w.now().Sub(w.due))
}

// wake asks for a cycle soon.
func (w *watcher) wake() {
	select {
	case w.wakeups <- struct{}{}:
	default:
	}
}

// note records how a query ended.
func (w *watcher) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch was := w.failed; {
	case err == nil:
		w.at = w.now()
	case was == nil:
		w.failedAt = w.now()
	}
	w.failed = err
}

// failing returns why the last query failed and since when queries have failed; nil if it did not fail.
func (w *watcher) failing() (since time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failedAt, w.failed
}

// answered returns when Slurm last answered completely, and why the last query failed, nil if it did not.
func (w *watcher) answered() (at time.Time, failed error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at, w.failed
}

// seek makes the next query include a job by its id.
func (w *watcher) seek(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sought[id] = true
}

// takeSought returns the ids to query and clears them.
func (w *watcher) takeSought() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := w.sought
	w.sought = map[string]bool{}
	return ids
}

// expectStrays makes the watcher query Slurm until then, even if no run is open.
func (w *watcher) expectStrays(until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.strayUntil = until
}

// expectsStrays reports whether there is reason to query Slurm although no run is open.
func (w *watcher) expectsStrays() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now().Before(w.strayUntil)
}
