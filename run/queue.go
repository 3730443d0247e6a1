package run

import (
	"context"
	"slices"
	"sync"
)

// workQueue is a set of ids. An id is worked on by one worker at a time; added again meanwhile, it is worked on once more. Ids come in
// groups, which get their turn one after another; in a group the order is that of arrival.
type workQueue[K comparable] struct {
	mu      sync.Mutex
	work    *sync.Cond  // signalled when there may be something to take
	rest    *sync.Cond  // signalled when nothing is left
	groups  []*group[K] // with ids that wait; the next turn is the first's
	byName  map[string]*group[K]
	waiting map[K]bool
	busy    map[K]bool
	closed  bool
}

type group[K comparable] struct {
	name string
	ids  []K
}

func newWorkQueue[K comparable]() *workQueue[K] {
	q := &workQueue[K]{byName: map[string]*group[K]{}, waiting: map[K]bool{}, busy: map[K]bool{}}
	q.work, q.rest = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

// add adds an id whose group is not known.
func (q *workQueue[K]) add(id K) { q.addTo("", id) }

func (q *workQueue[K]) addTo(name string, id K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.waiting[id] {
		return
	}
	q.waiting[id] = true
	g := q.byName[name]
	if g == nil {
		g = &group[K]{name: name}
		q.byName[name] = g
		q.groups = append(q.groups, g)
	}
	g.ids = append(g.ids, id)
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
		for n, g := range q.groups {
			if id, ok = q.takeOf(g); ok {
				q.groups = slices.Delete(q.groups, n, n+1)
				if len(g.ids) > 0 {
					q.groups = append(q.groups, g)
				} else {
					delete(q.byName, g.name)
				}
				return id, true
			}
		}
		q.work.Wait()
	}
}

// takeOf takes the first id of a group that no worker has.
func (q *workQueue[K]) takeOf(g *group[K]) (id K, ok bool) {
	for i, id := range g.ids {
		if q.busy[id] {
			continue
		}
		if i == 0 {
			g.ids = g.ids[1:] // of 100,000 ids none is moved
		} else {
			g.ids = slices.Delete(g.ids, i, i+1)
		}
		delete(q.waiting, id)
		q.busy[id] = true
		return id, true
	}
	return id, false
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
	if len(q.groups)+len(q.busy) == 0 {
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
	return len(q.groups) == 0
}

// idle waits until the queue is empty and no worker is busy.
func (q *workQueue[K]) idle(ctx context.Context) error {
	defer q.endWith(ctx, q.rest)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.groups)+len(q.busy) > 0 && !q.closed {
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
