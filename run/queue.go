package run

import (
	"context"
	"iter"
	"sync"
)

// workQueue is a set of ids. One worker at a time works on an id; an id added again meanwhile is worked on once more.
// turns decides which is next.
type workQueue[K comparable] struct {
	mu      sync.Mutex
	work    *sync.Cond // signalled when there may be something to take
	rest    *sync.Cond // signalled when nothing is left
	waiting *turns[K]
	busy    map[K]Share
	workers map[Share]int // workers of each share
	most    int           // most workers of one share; 0: no bound
	ready   func(K) bool  // whether an id may be taken yet, see wake; nil: all may
	closed  bool

	standIns sync.WaitGroup // further workers, see standIn
}

func newWorkQueue[K comparable](weight func(project string) int, most int) *workQueue[K] {
	q := &workQueue[K]{waiting: newTurns[K](weight), busy: map[K]Share{}, workers: map[Share]int{}, most: most}
	q.work, q.rest = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

func (q *workQueue[K]) add(s Share, id K) { q.addAll(func(yield func(Share, K) bool) { yield(s, id) }) }

// addAll adds all of them before a worker takes the first.
func (q *workQueue[K]) addAll(list iter.Seq2[Share, K]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for s, id := range list {
		q.waiting.add(s, id)
		q.work.Signal()
	}
}

// take waits for an id that no worker has, of a share that may have another worker. It returns false when ctx ends or
// the queue is closed.
func (q *workQueue[K]) take(ctx context.Context) (id K, ok bool) {
	defer q.endWith(ctx, q.work)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if q.closed || ctx.Err() != nil {
			return id, false
		}
		s, id, ok := q.waiting.next(q.mayHave, q.fits)
		if ok {
			q.busy[id] = s
			q.workers[s]++
			return id, true
		}
		q.work.Wait()
	}
}

func (q *workQueue[K]) mayHave(s Share) bool { return q.most == 0 || q.workers[s] < q.most }

func (q *workQueue[K]) free(id K) bool { _, busy := q.busy[id]; return !busy }

func (q *workQueue[K]) fits(id K) bool { return q.free(id) && (q.ready == nil || q.ready(id)) }

// wake makes the workers check again which ids are ready.
func (q *workQueue[K]) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.work.Broadcast()
}

// each works on one id after another until ctx ends or the queue is closed.
func (q *workQueue[K]) each(ctx context.Context, work func(context.Context, K)) {
	q.whileNeeded(ctx, ctx, work)
}

// whileNeeded does what each does, but takes no further id once needed ends.
func (q *workQueue[K]) whileNeeded(needed, ctx context.Context, work func(context.Context, K)) {
	for {
		id, ok := q.take(needed)
		if !ok {
			return
		}
		work(ctx, id)
		q.done(id)
	}
}

// endWith wakes the goroutines that wait for the condition when ctx ends.
func (q *workQueue[K]) endWith(ctx context.Context, c *sync.Cond) (stop func() bool) {
	return context.AfterFunc(ctx, func() { q.mu.Lock(); c.Broadcast(); q.mu.Unlock() })
}

func (q *workQueue[K]) done(id K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.busy[id]
	delete(q.busy, id)
	if q.workers[s]--; q.workers[s] == 0 {
		delete(q.workers, s)
	}
	q.work.Signal() // this id, or another of its share, can be taken now
	if q.waiting.len()+len(q.busy) == 0 {
		q.rest.Broadcast()
	}
}

// working reports whether the id waits or is being worked on.
func (q *workQueue[K]) working(id K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.has(id) || !q.free(id)
}

// queued reports whether the id waits to be taken.
func (q *workQueue[K]) queued(id K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.has(id)
}

// of returns how many ids of a share wait or are being worked on.
func (q *workQueue[K]) of(s Share) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.of(s) + q.workers[s]
}

// others reports whether other ids of a share wait or are being worked on.
func (q *workQueue[K]) others(s Share, id K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.waiting.of(s) + q.workers[s]
	if q.waiting.has(id) {
		n--
	}
	if !q.free(id) {
		n--
	}
	return n > 0
}

// empty reports whether no id waits to be taken.
func (q *workQueue[K]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.len() == 0
}

// idle waits until the queue is empty and no worker is busy.
func (q *workQueue[K]) idle(ctx context.Context) error {
	defer q.endWith(ctx, q.rest)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.waiting.len()+len(q.busy) > 0 && !q.closed {
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
