package run

import (
	"context"
	"slices"
	"sync"
)

// workQueue is a set of ids in order of arrival. An id is worked on by one worker at a time; added again meanwhile, it is worked on once
// more.
type workQueue[K comparable] struct {
	mu      sync.Mutex
	work    *sync.Cond // signalled when there may be something to take
	rest    *sync.Cond // signalled when nothing is left
	order   []K
	waiting map[K]bool
	busy    map[K]bool
	closed  bool
}

func newWorkQueue[K comparable]() *workQueue[K] {
	q := &workQueue[K]{waiting: map[K]bool{}, busy: map[K]bool{}}
	q.work, q.rest = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

func (q *workQueue[K]) add(id K) {
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
func (q *workQueue[K]) take(ctx context.Context) (id K, ok bool) {
	defer q.endWith(ctx, q.work)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed || ctx.Err() != nil {
			return id, false
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

// each works on one id after another until ctx ends or the queue is closed.
func (q *workQueue[K]) each(ctx context.Context, work func(context.Context, K)) {
	for {
		id, ok := q.take(ctx)
		if !ok {
			return
		}
		work(ctx, id)
		q.done(id)
	}
}

// endWith wakes those that wait for the condition when ctx ends.
func (q *workQueue[K]) endWith(ctx context.Context, c *sync.Cond) (stop func() bool) {
	return context.AfterFunc(ctx, func() { q.mu.Lock(); c.Broadcast(); q.mu.Unlock() })
}

func (q *workQueue[K]) done(id K) {
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
func (q *workQueue[K]) working(id K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting[id] || q.busy[id]
}

// empty reports whether no id waits to be taken.
func (q *workQueue[K]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order) == 0
}

// idle waits until the queue is empty and no worker is busy.
func (q *workQueue[K]) idle(ctx context.Context) error {
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

func (q *workQueue[K]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.work.Broadcast()
	q.rest.Broadcast()
}
