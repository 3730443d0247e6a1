package run

import (
	"context"
	"slices"
	"sync"
)

// workQueue is a set of run ids in order of arrival. An id is worked on by one worker at a time; added
// again meanwhile, it is worked on once more.
type workQueue struct {
	mu      sync.Mutex
	work    *sync.Cond // signalled when there may be something to take
	rest    *sync.Cond // signalled when nothing is left
	order   []string
	waiting map[string]bool
	busy    map[string]bool
	closed  bool
}

func newWorkQueue() *workQueue {
	q := &workQueue{waiting: map[string]bool{}, busy: map[string]bool{}}
	q.work, q.rest = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
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
	q.work.Signal()
}

// take waits for an id that no worker has. It returns false when ctx ends or the queue is closed.
func (q *workQueue) take(ctx context.Context) (string, bool) {
	defer q.endWith(ctx, q.work)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed || ctx.Err() != nil {
			return "", false
		}
		for i, id := range q.order {
			if !q.busy[id] {
				if i == 0 {
					q.order = q.order[1:] // of 100,000 ids none is moved
				} else {
					q.order = slices.Delete(q.order, i, i+1)
				}
				delete(q.waiting, id)
				q.busy[id] = true
				return id, true
			}
		}
		q.work.Wait()
	}
}

// endWith wakes those that wait for the condition when ctx ends.
func (q *workQueue) endWith(ctx context.Context, c *sync.Cond) (stop func() bool) {
	return context.AfterFunc(ctx, func() { q.mu.Lock(); c.Broadcast(); q.mu.Unlock() })
}

func (q *workQueue) done(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.busy, id)
	if q.waiting[id] {
		q.work.Signal() // it can be taken now
	}
	if len(q.order)+len(q.busy) == 0 {
		q.rest.Broadcast()
	}
}

// working reports whether the id waits or is being worked on.
func (q *workQueue) working(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting[id] || q.busy[id]
}

// empty reports whether no id waits to be taken.
func (q *workQueue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order) == 0
}

// idle waits until the queue is empty and no worker is busy.
func (q *workQueue) idle(ctx context.Context) error {
	defer q.endWith(ctx, q.rest)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.order)+len(q.busy) > 0 && !q.closed {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		q.rest.Wait()
	}
	return nil
}

func (q *workQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.work.Broadcast()
	q.rest.Broadcast()
}
