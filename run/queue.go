package run

import (
	"context"
	"slices"
	"sync"
)

// workQueue is a set of run ids in order of arrival. An id is worked on by one worker at a time; added
// again meanwhile, it comes round once more.
type workQueue struct {
	mu      sync.Mutex
	cond    *sync.Cond
	order   []string
	waiting map[string]bool
	busy    map[string]bool
	closed  bool
}

func newWorkQueue() *workQueue {
	q := &workQueue{waiting: map[string]bool{}, busy: map[string]bool{}}
	q.cond = sync.NewCond(&q.mu)
	return q
}

func (q *workQueue) add(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.waiting[id] {
		return
	}
	q.waiting[id] = true
	q.order = append(q.order, id)
	q.cond.Broadcast()
}

// take waits for an id nobody works on. It returns false when ctx ends or the queue is closed.
func (q *workQueue) take(ctx context.Context) (string, bool) {
	stop := context.AfterFunc(ctx, func() { q.mu.Lock(); q.cond.Broadcast(); q.mu.Unlock() })
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed || ctx.Err() != nil {
			return "", false
		}
		for i, id := range q.order {
			if !q.busy[id] {
				q.order = slices.Delete(q.order, i, i+1)
				delete(q.waiting, id)
				q.busy[id] = true
				return id, true
			}
		}
		q.cond.Wait()
	}
}

func (q *workQueue) done(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, id)
	q.cond.Broadcast()
}

// working tells whether the id waits or is worked on.
func (q *workQueue) working(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting[id] || q.busy[id]
}

// idle waits until nothing waits and nothing is worked on.
func (q *workQueue) idle(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { q.mu.Lock(); q.cond.Broadcast(); q.mu.Unlock() })
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.order)+len(q.busy) > 0 && !q.closed {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		q.cond.Wait()
	}
	return nil
}

func (q *workQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}
