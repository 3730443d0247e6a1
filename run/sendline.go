package run

import (
	"context"
	"sync"
	"time"
)

// sendLine gives runs their turn to be sent, and bounds the sends in parallel. One run at a time waits for the site's
// budget of RPCs: the next run is chosen only when the budget has something left, so that a new caller's run need not
// wait for all earlier ones. A caller with nothing else to send, who has sent nothing lately, does not queue: part of
// the budget is reserved for such sends.
type sendLine struct {
	now  func() time.Time
	pace func(ctx context.Context, first bool) error // see Parts.Pace
	busy chan struct{}                               // a place for each send in flight
	work func(Share) int                             // how many runs of a share the workers have or will have

	mu      sync.Mutex
	pacing  bool // a run at its turn waits for the budget
	waiting *turns[string]
	turn    map[string]chan struct{} // by waiting run, closed at its turn
	sent    map[Share]sentLately
}

// sentLately is a share's use of the line.
type sentLately struct {
	runs int // in the line, or being sent
	last time.Time
}

// lately is how long a caller's send counts. It is the usual time between two cycles of the watcher.
const lately = 2 * time.Second

func newSendLine(cfg Config, p Parts, work func(Share) int) *sendLine {
	return &sendLine{now: p.Now, pace: p.Pace, busy: make(chan struct{}, max(1, cfg.SendsAtOnce)), work: work,
		waiting: newTurns[string](cfg.weight), turn: map[string]chan struct{}{}, sent: map[Share]sentLately{}}
}

// enter waits for the turn of a run; leave frees its place for the next one. The error is that of ctx.
func (l *sendLine) enter(ctx context.Context, s Share, runID string) (leave func(), err error) {
	first, mine := l.queue(s, runID, l.work(s) > 1)
	defer func() {
		if err != nil {
			l.forget(s)
		}
	}()
	if !first {
		if err := l.wait(ctx, runID, mine); err != nil {
			return nil, err
		}
		defer l.paced()
	}
	if l.pace != nil {
		if err := l.pace(ctx, first); err != nil {
			return nil, err
		}
	}
	select {
	case l.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return sync.OnceFunc(func() {
		<-l.busy
		l.forget(s)
	}), nil
}

// queue puts a run into the line, unless it is the first of its share. more: the share has other runs to send.
func (l *sendLine) queue(s Share, runID string, more bool) (first bool, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.sent[s]
	l.sent[s] = sentLately{before.runs + 1, l.now()}
	if !more && before.runs == 0 && l.now().Sub(before.last) >= lately {
		return true, nil
	}
	mine = make(chan struct{})
	l.turn[runID] = mine
	l.waiting.add(s, runID)
	l.pass()
	return false, mine
}

// wait waits for the run's turn.
func (l *sendLine) wait(ctx context.Context, runID string, mine chan struct{}) error {
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.has(runID) { // it got its turn meanwhile
		l.pacing = false
		l.pass()
	}
	l.waiting.remove(runID)
	delete(l.turn, runID)
	return ctx.Err()
}

// paced lets the next run wait for the budget.
func (l *sendLine) paced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pacing = false
	l.pass()
}

// forget records that a run of the share has left the line.
func (l *sendLine) forget(s Share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.sent[s] = sentLately{l.sent[s].runs - 1, now}
	for other, o := range l.sent { // few: the callers of the last seconds
		if o.runs == 0 && now.Sub(o.last) >= lately {
			delete(l.sent, other)
		}
	}
	l.pass()
}

// pass gives the next run its turn. Under mu.
func (l *sendLine) pass() {
	if l.pacing || len(l.busy) == cap(l.busy) {
		return
	}
	if _, next, ok := l.waiting.next(nil, nil); ok {
		l.pacing = true
		close(l.turn[next])
		delete(l.turn, next)
	}
}
