package run

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// A run whose job exited 0 but left no manifest is blocked as outputs_late. Two things end that: the manifest appears,
// which the workers check while the watcher runs, or Recollect waits for the outputs again as long as the site allows.

// lateFiles records since when the gateway has been waiting for each run's files. An entry lasts from the first attempt
// to collect until the run leaves its phase; a new gateway starts to count anew.
type lateFiles struct {
	now func() time.Time

	mu    sync.Mutex
	since map[string]time.Time
}

// begin starts the count of a run, unless it runs already.
func (l *lateFiles) begin(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.since[id]; !ok {
		l.since[id] = l.now()
	}
}

// waited returns how long the gateway has been waiting for the run's files.
func (l *lateFiles) waited(id string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now().Sub(l.since[id])
}

func (l *lateFiles) forget(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, id)
}

// RecollectAnswer is the state of a run after Recollect.
type RecollectAnswer struct {
	GetState
	Recollected bool `json:"recollected" help:"false: the outputs of the run were not late, and nothing was done"`
}

// Unchanged reports to the gate whether the call had no effect.
func (a RecollectAnswer) Unchanged() bool { return !a.Recollected }

// Recollect collects the outputs of a run again after they were late. A run in any other phase is left unchanged.
func (e *Engine) Recollect(ctx context.Context, runID, why string) (a RecollectAnswer, err error) {
	v, err := unlessStale(func() (View, error) {
		v, err := e.Store.View(ctx, runID)
		if a.Recollected = err == nil && v.Run.Phase == OutputsLate; a.Recollected {
			err = e.collectAgain(ctx, v, cmp.Or(why, "requested"))
		}
		return v, err
	})
	if err == nil && a.Recollected {
		v, err = e.settle(ctx, runID, func(v View) bool { return v.Run.Phase != Collecting })
	}
	if err != nil {
		return RecollectAnswer{}, err
	}
	a.GetState = Outline(v)
	return a, nil
}

func (e *Engine) collectAgain(ctx context.Context, v View, why string) error {
	v.Run.enter(Collecting, "", "")
	if _, err := e.apply(ctx, Write{Run: v.Run, Event: Event{Type: "run.collecting", Data: map[string]any{"witness": why}}}); err != nil {
		return err
	}
	e.forget(v.Run.ID)
	e.work.add(ShareOf(v.Run), v.Run.ID)
	return nil
}

// lookForLate collects again once the manifest can be read. The check is one small read per run, at most once per
// ceiling of the watcher.
func (e *Engine) lookForLate(ctx context.Context, v View) error {
	if _, err := e.readControl(ctx, v, ManifestFile); err != nil {
		e.pressure.delay(v.Run.ID, e.cfg.Ceiling) // not there yet, or the filesystem is still unavailable: the run's reason already says so
		return nil
	}
	return e.collectAgain(ctx, v, "the manifest appeared")
}
