package run

import (
	"context"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Docker plans run on the gateway's own host. Their lifecycle is that of every run; these are the two differences.

// again answers a repeated call of a docker plan. Only a run that succeeded is answered as it is (ABI-17); one that is under
// way is waited for, since the same attempt may not execute twice; one that failed or was cancelled is executed anew.
func (e *Engine) again(ctx context.Context, v View, equivalent []string) (SubmitAnswer, error) {
	over := func(v View) bool { return v.Run.State.Terminal() || v.Run.State == Blocked }
	replayed := true
	if v.Run.State == Failed || v.Run.State == Cancelled {
		if _, err := e.Retry(ctx, v.Run.ID, v.Run.AttemptN, "called again"); err != nil && !fault.Is(err, fault.Conflict) {
			return SubmitAnswer{}, err // a conflict: another call opened the attempt, and it is over already
		}
		replayed = false
	}
	v, err := e.waitFor(ctx, v.Run.ID, e.cfg.SubmitWait, over)
	return e.submitAnswer(v, replayed, equivalent), err
}

// sentOrOver is what a submit waits for: that a job was sent; that a docker run is over.
func sentOrOver(v View, spec plan.Spec) bool {
	if spec.Local() {
		return v.Run.State.Terminal() || v.Run.State == Blocked || v.Run.Phase == Deferred
	}
	return v.Run.Phase != Staging && v.Run.Phase != Submitting
}

// Ended is told by a backend that sees its own processes end. The exit file is what counts; without one nothing happens, and
// the watcher finds the process gone.
func (e *Engine) Ended(ctx context.Context, runID string) {
	// It may have ended before its receipt was written down.
	v, err := e.waitFor(ctx, runID, e.cfg.SubmitWait, func(v View) bool { return v.Run.Phase != Submitting })
	if err != nil || v.Run.Phase != Pending && v.Run.Phase != InJob {
		return
	}
	if _, err := e.readExit(ctx, v); err != nil {
		e.poke()
		return
	}
	_, err = e.witnessed(ctx, v, "exit_file")
	e.complain(ctx, v, err)
}
