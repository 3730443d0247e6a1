package run

import (
	"context"
	"time"
)

// Reads of one engine, for tests: a gateway calls [Sites], which has read the run.

// Get reads a run from the ledger; it never queries Slurm. It waits up to wait for the run to finish.
func (e *Engine) Get(ctx context.Context, runID string, wait time.Duration) (GetAnswer, error) {
	v, err := e.Store.View(ctx, runID)
	if err != nil {
		return GetAnswer{}, err
	}
	return e.get(ctx, v, wait)
}

// Collect returns whether a run is finished and its artifacts. It changes nothing: the gateway collects by itself when
// a job ends, and [Engine.Recollect] is for a run whose outputs are late. It waits up to wait for the run to finish.
func (e *Engine) Collect(ctx context.Context, runID string, wait time.Duration) (CollectAnswer, error) {
	v, err := e.Store.View(ctx, runID)
	if err != nil {
		return CollectAnswer{}, err
	}
	return e.collected(ctx, v, wait)
}

// Preview returns what [Engine.Submit] would do with the order, without any effect: no row, no file, no query of Slurm.
func (e *Engine) Preview(ctx context.Context, o Order) (Preview, error) {
	f, err := e.find(ctx, o)
	if err != nil {
		return Preview{}, err
	}
	return e.preview(ctx, o, f)
}

// AvoidAfter returns the nodes that the attempt after a does not use.
func AvoidAfter(a Attempt, now time.Time) []Avoided { return avoidAfter(a, now) }

// SetDrain drains the engine's site, or resumes it (nil), as [Sites.SetDrains] does.
func (e *Engine) SetDrain(d *Drain) { e.pressure.setDrain(d) }
