package run

import (
	"context"

	"slurmgate/fault"
)

// Docker plans run on the gateway's own host. Their runs have the usual lifecycle, with the two differences in this
// file.

// repeatDocker answers a repeated call of a docker plan. It returns only a run that succeeded as it is (ABI-17). It
// waits for an unfinished run, since the same attempt must not execute twice, and executes a failed or cancelled one
// again.
func (e *Engine) repeatDocker(ctx context.Context, f lookup, o Order) (SubmitAnswer, error) {
	v, err := e.askAgain(ctx, *f.view, o)
	if err != nil {
		return SubmitAnswer{}, err
	}
	over := func(v View) bool { return v.Run.State.Terminal() || v.Run.State == Blocked }
	replayed := true
	if (v.Run.State == Failed || v.Run.State == Cancelled) && v.Run.Removed == "" {
		_, err := e.Retry(ctx, v.Run.ID, RetryOrder{After: v.Run.AttemptN, Why: "called again", Row: o.Row, Asking: o.asked()})
		if err != nil && (!fault.Is(err, fault.Conflict) || fault.CodeOf(err) == RowWithdrawn) {
			return SubmitAnswer{}, err // a conflict: another call opened the attempt, and it has already ended
		}
		replayed = false
	}
	v, err = e.settle(ctx, v.Run.ID, over)
	return e.submitAnswer(v, replayed, f.equivalent), err
}

// sentOrOver reports whether a submit has waited long enough: the job was sent, or the docker run has ended.
func sentOrOver(v View, docker bool) bool {
	if docker {
		return v.Run.State.Terminal() || v.Run.State == Blocked || v.Run.Phase == Deferred
	}
	return v.Run.Phase != Staging && v.Run.Phase != Submitting
}

// Ended makes the gateway collect a run. A backend that sees its own processes end calls it. Without an exit file
// nothing is collected, and the watcher finds that the process is gone.
func (e *Engine) Ended(ctx context.Context, runID string) {
	// The process may have ended before its receipt was recorded.
	v, err := e.settle(ctx, runID, func(v View) bool { return v.Run.Phase != Submitting })
	if err != nil || v.Run.Phase != Pending && v.Run.Phase != InJob {
		return
	}
	if _, err := e.readExit(ctx, v); err != nil {
		e.watcher.wake()
		return
	}
	_, err = e.startCollecting(ctx, v, "exit_file")
	e.logError(ctx, v, err)
}
