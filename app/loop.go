package app

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"slurmgate/run"
)

const (
	loopWorkers = 8
	loopIdle    = 30 * time.Second // between turns when there is nothing to do
)

// loop makes the calls that the gateway makes later for its callers: for rows of batches, and for runs whose inputs
// have arrived.
type loop struct {
	once   sync.Once
	wake   chan struct{}
	mu     sync.Mutex
	paused map[string]BatchWait // by batch id
	stop   context.CancelFunc   // nil: not running
	done   chan struct{}
}

// BatchWait is the reason why rows of a batch are not submitted for now.
type BatchWait struct {
	Code    string    `json:"code"`
	Message string    `json:"message"`
	Until   time.Time `json:"until"` // time of the next try
}

func (l *loop) made() {
	l.once.Do(func() { l.wake, l.paused = make(chan struct{}, 1), map[string]BatchWait{} })
}

// wakeUp wakes the loop.
func (l *loop) wakeUp() {
	l.made()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pause defers all rows of a batch until w.Until.
func (l *loop) pause(id string, w BatchWait) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused[id] = w
}

// pauses returns the pauses that have not ended.
func (l *loop) pauses() map[string]BatchWait {
	l.made()
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.paused, func(_ string, w BatchWait) bool { return !time.Now().Before(w.Until) })
	return maps.Clone(l.paused)
}

// StartLoop submits the rows of batches, and starts runs whose inputs have arrived, until [Gateway.StopLoop].
func (g *Gateway) StartLoop(ctx context.Context) {
	l := &g.loop
	l.made()
	ctx, l.stop = context.WithCancel(ctx)
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			idle, err := g.turn(ctx)
			if err != nil && ctx.Err() == nil {
				g.Log.Warn("the rows of batches and the runs that wait for inputs cannot be looked after for now", "err", err)
			}
			if idle == 0 {
				continue
			}
			select {
			case <-ctx.Done():
			case <-l.wake:
			case <-time.After(idle):
			}
		}
	}()
}

// StopLoop stops the loop and returns when none of its calls is in progress. The next gateway does the rest.
func (g *Gateway) StopLoop() {
	if l := &g.loop; l.stop != nil {
		l.stop()
		<-l.done
	}
}

// turn processes some rows of each batch and the waiting runs with a changed source, and returns how long there is
// nothing more to do.
func (g *Gateway) turn(ctx context.Context) (idle time.Duration, err error) {
	rows, batches, err := g.rowsTodo(ctx)
	if err != nil {
		return batchPause / 5, err
	}
	waiting, err := g.Ledger.AnyWaiting(ctx)
	var due []run.View
	if err == nil && waiting {
		due, err = g.Ledger.DueWaiting(ctx, waitAtOnce)
	}
	if err != nil {
		return batchPause / 5, err
	}
	var workers errgroup.Group
	workers.SetLimit(loopWorkers)
	unlessStopped := func(do func(context.Context) error) {
		workers.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			return do(context.WithoutCancel(ctx))
		})
	}
	for _, v := range due {
		unlessStopped(func(ctx context.Context) error { return g.advanceWaiting(ctx, v) })
	}
	for _, r := range rows {
		unlessStopped(func(ctx context.Context) error {
			g.batchRow(ctx, batches[r.BatchID], r)
			return nil
		})
	}
	switch err = workers.Wait(); {
	case err != nil:
		return batchPause / 5, err
	case len(rows) > 0 || len(due) == waitAtOnce: // there may be more
		return 0, nil
	case waiting:
		return waitTurn, nil
	case len(g.loop.pauses()) > 0:
		return batchPause / 5, nil
	}
	return loopIdle, nil
}
