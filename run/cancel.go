package run

import (
	"cmp"
	"context"
	"fmt"

	"slurmgate/fault"
)

// A cancel takes effect when the claim is taken: from then on no job of the attempt can execute, and the run is over. Where a job has the
// claim already, or sbatch is still under way, the run says "cancelling" until Slurm has settled it. Slurm itself is asked to cancel
// jobs beside all that, see asked.go.

// CancelAnswer is the answer to a cancel.
type CancelAnswer struct {
	RunID            string       `json:"run_id"`
	State            State        `json:"state"`
	Phase            Phase        `json:"phase"`
	Executed         string       `json:"executed"` // "never", "maybe" (it, or an earlier attempt, started), "finished"
	PollAfterSeconds *int         `json:"poll_after_seconds"`
	Message          string       `json:"message"`
	NextSteps        []fault.Step `json:"next_steps"`
}

// Cancelling is the reason of a run whose cancel was requested and that has not ended yet.
const Cancelling = "cancelling"

// Cancel records the request to cancel and carries it out as far as possible. Before the job has started it takes effect
// immediately, with or without a job id: the gateway takes the claim. A finished run is left unchanged.
func (e *Engine) Cancel(ctx context.Context, runID, why string) (CancelAnswer, error) {
	v, err := unlessStale(func() (View, error) { return e.requestCancel(ctx, runID, why) })
	if err == nil && !v.Run.State.Terminal() {
		v, err = e.settle(ctx, runID, func(v View) bool { return v.Run.State.Terminal() || v.Run.Phase == InJob })
	}
	if err != nil {
		return CancelAnswer{}, err
	}
	return e.cancelAnswer(v), nil
}

func (e *Engine) requestCancel(ctx context.Context, runID, why string) (View, error) {
	v, err := e.Store.View(ctx, runID)
	if err != nil || v.Run.State.Terminal() {
		return v, err
	}
	if e.calls != nil {
		return e.calls.cancel(ctx, v, why)
	}
	if v.Run.CancelAt == nil {
		now := e.Now()
		v.Run.CancelAt, v.Run.CancelReason = &now, cmp.Or(why, "cancelled on request")
		sayCancelling(&v.Run, v.Submission.JobID)
		v, err = e.apply(ctx, Write{Run: v.Run, From: &v, Event: Event{Type: "run.cancel_asked",
			Data: map[string]any{"reason": v.Run.CancelReason}}})
		if err != nil {
			return v, err
		}
	}
	return v, e.carryOutCancel(ctx, v)
}

// sayCancelling makes cancelling the reason of a run in a phase that a cancel ends. Of one whose job is over it says nothing: what the job
// left may still be taken over.
func sayCancelling(r *Run, jobID string) {
	if r.CancelAt == nil {
		return
	}
	switch r.Phase {
	case Staging, Deferred, Unconfirmed, Pending:
		r.Reason, r.Detail = Cancelling, "the run ends when the gateway gets the claim, unless a job has started"
	case Submitting:
		r.Reason, r.Detail = Cancelling, "sbatch is still running; the run is cancelled when it has ended"
	case InJob:
		r.Reason, r.Detail = Cancelling, "Slurm was asked to stop job "+jobID+"; the run ends when the job has ended"
	}
}

// beforeJob is what a cancel means in the phases in which Slurm has no job, and none is on its way.
var beforeJob = map[Phase]string{Staging: "cancelled before anything was submitted",
	Deferred: "cancelled while it waited for Slurm; no job was accepted"}

func (e *Engine) carryOutCancel(ctx context.Context, v View) error {
	switch v.Run.Phase {
	case Staging, Deferred:
		return e.cancelUnsent(ctx, v)
	case Submitting, Collecting:
		// The worker that has the run, or takes it up now, sees the wish.
		e.pressure.hurry(v.Run.ID)
		e.work.add(ShareOf(v.Run), v.Run.ID)
		return nil
	case InJob, Completing:
		e.cancels.cancel(v.Run, v.Submission.JobID, v.Submission.JobName)
		return nil
	case OutputsLate:
		return e.finish(ctx, v, verdict{ending: EndedCancelled, detail: "given up: the outputs never appeared", exit: v.Attempt.ExitCode})
	case AheadOfLedger:
		return e.finish(ctx, v, verdict{ending: EndedCancelled, reason: string(AheadOfLedger),
			detail: "given up: this gateway never submitted anything; the workspace belongs to an attempt it does not know"})
	}
	claim, who, err := e.takeClaim(ctx, v)
	switch {
	case err != nil:
		return err
	case who == folderMissing:
		err = e.giveUpGone(ctx, v)
	case who == heldByGateway:
		err = e.finish(ctx, v, verdict{ending: EndedCancelled, detail: v.Run.CancelReason + " (before the job started; it can never execute)"})
	case who == heldByOther:
		err = e.finish(ctx, v, verdict{ending: EndedCancelled, detail: "given up: the claim belongs to another submission, so no job of this " +
			"one can execute any more", exit: v.Attempt.ExitCode})
	case v.Submission.JobID == "":
		_, err := e.adopt(ctx, v, claim)
		return err
	}
	// What is over is over, whatever Slurm says: its job would only wait for its turn.
	if err == nil && v.Submission.JobID != "" {
		e.cancels.cancel(v.Run, v.Submission.JobID, v.Submission.JobName)
	}
	return err
}

func (e *Engine) cancelAnswer(v View) CancelAnswer {
	a := CancelAnswer{RunID: v.Run.ID, State: v.Run.State, Phase: v.Run.Phase, PollAfterSeconds: e.pollAfter(v), NextSteps: NextSteps(v)}
	switch {
	case v.Run.State == Cancelled && v.Run.Site == WorkerSite:
		a.Executed, a.Message = "maybe", "cancelled: the gateway no longer waits for the worker; it is unknown whether the worker finished"
	case v.Run.State == Cancelled && v.Run.Reason == string(AheadOfLedger):
		a.Executed, a.Message = "maybe", "cancelled; this gateway submitted nothing, but the attempt it found in the workspace may have run"
	case v.Run.State == Cancelled && v.Run.Reason == collectingWaits:
		a.Executed, a.Message = "maybe", "cancelled; the job's files could not be read, and the job may have run"
	case v.Run.State == Cancelled && v.Run.Reason == WorkspaceGone:
		a.Executed, a.Message = "maybe", "cancelled; its workspace is gone, and the job may have run"
	case v.Run.State == Cancelled && v.Attempt.N > 1 && v.Attempt.StartedAt == nil:
		a.Executed, a.Message = "maybe", fmt.Sprintf("cancelled; attempt %d never started, but an earlier one may have", v.Attempt.N)
	case v.Run.State == Cancelled && v.Attempt.StartedAt == nil && v.Attempt.ExitCode == nil:
		a.Executed, a.Message = "never", "cancelled; the program never started"
	case v.Run.State.Terminal():
		a.Executed, a.Message = "finished", "the run has already ended: "+string(v.Run.State)
		if v.Run.Reason != "" {
			a.Message += " (" + v.Run.Reason + ")"
		}
	case v.Run.Phase == Collecting:
		a.Executed, a.Message = "maybe", "the job has ended; the run ends when its outputs and logs are stored, or is given up if they cannot "+
			"be read for long"
	case v.Run.Phase == Submitting:
		a.Executed, a.Message = "maybe", "cancelling: sbatch is still running; the run is cancelled when it has ended"
	default:
		a.Executed, a.Message = "maybe", "cancelling: Slurm was asked to stop the job; the run ends when the job has ended"
	}
	return a
}

func (e *Engine) cancelUnsent(ctx context.Context, v View) error {
	return e.endUnsent(ctx, v, verdict{ending: EndedCancelled, detail: beforeJob[v.Run.Phase]})
}

// endUnsent ends a run that has no job as far as this ledger knows: it was cancelled, or cannot be staged. A worker may be at it: this
// write makes its next one stale, and without the intent nothing is sent. But a ledger restored from a backup may not know of a job that
// was sent since, so an attempt that has a folder ends by its claim. Where the folder cannot be reached, what the ledger knows has to do.
func (e *Engine) endUnsent(ctx context.Context, v View, how verdict) error {
	claim, who, err := e.takeClaim(ctx, v)
	switch {
	case ctx.Err() != nil:
		return err
	case err == nil && who == heldByJob:
		_, err := e.adopt(ctx, v, claim)
		return err
	case err == nil && who == heldByOther:
		how.reason = string(AheadOfLedger)
		how.detail += "; but the workspace belongs to an attempt that this ledger does not know, and that one may have run"
	}
	return e.finish(ctx, v, how)
}
