package run

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"slurmgate/fault"
)

// A cancel takes effect when the claim is taken: from then on no job of the attempt can execute, and the run has ended.
// Where a job has the claim already, or sbatch is still running, the run's reason is "cancelling" until Slurm has
// settled it. Independently of that Slurm is asked to cancel the job, see canceller.go.

// CancelAnswer is the answer to a cancel.
type CancelAnswer struct {
	RunID            string `json:"run_id"`
	State            State  `json:"state"`
	Phase            Phase  `json:"phase"`
	Executed         string `json:"executed"` // "never", "maybe" (it, or an earlier attempt, started), "finished"
	PollAfterSeconds *int   `json:"poll_after_seconds"`
	// Withdrawn: askings were taken back, and the run continues for Askers.
	Withdrawn bool         `json:"withdrawn" help:"askings were taken back, and it continues for those who still ask"`
	Askers    []string     `json:"askers" help:"some of the principals that ask for it still"`
	Message   string       `json:"message"`
	NextSteps []fault.Step `json:"next_steps"`
}

// Cancelling is the reason of a run whose cancel was requested and that has not ended yet.
const Cancelling = "cancelling"

// Cancel takes askings of a run back. When no asking is left, the request to cancel is recorded in the same
// transaction, and carried out as far as possible: before the job has started it takes effect immediately, with or
// without a job id, because the gateway takes the claim. A finished run is left unchanged.
func (e *Engine) Cancel(ctx context.Context, runID, why string, by Withdrawal) (CancelAnswer, error) {
	var held []Asker
	v, err := unlessStale(func() (v View, err error) { v, held, err = e.requestCancel(ctx, runID, why, by); return v, err })
	if err == nil && len(held) > 0 {
		return e.stillWanted(v, by, held), nil
	}
	if err == nil && !v.Run.State.Terminal() {
		v, err = e.settle(ctx, runID, func(v View) bool { return v.Run.State.Terminal() || v.Run.Phase == InJob })
	}
	if err != nil {
		return CancelAnswer{}, err
	}
	return e.cancelAnswer(v), nil
}

func (e *Engine) requestCancel(ctx context.Context, runID, why string, by Withdrawal) (v View, held []Asker, err error) {
	v, err = e.Store.View(ctx, runID)
	switch {
	case err != nil || v.Run.State.Terminal():
		return v, nil, err
	case e.calls != nil:
		return e.calls.cancel(ctx, v, why, by)
	case v.Run.CancelAt == nil:
		if v, held, err = e.withdraw(ctx, CancelWrite(v, e.Now(), why, by), by); err != nil || len(held) > 0 {
			return v, held, err
		}
	}
	return v, nil, e.carryOutCancel(ctx, v)
}

// withdraw writes a transition as apply does, but only if no asking of the run is left.
func (e *Engine) withdraw(ctx context.Context, w Write, by Withdrawal) (v View, held []Asker, err error) {
	v, err = e.written(w, func(w Write) (v View, applied bool, err error) {
		v, held, err = e.Store.Withdraw(ctx, w, by)
		return v, len(held) == 0, err
	})
	return v, held, err
}

// stillWanted returns the answer to a cancel of a run that others still ask for.
func (e *Engine) stillWanted(v View, by Withdrawal, held []Asker) CancelAnswer {
	a := CancelAnswer{RunID: v.Run.ID, State: v.Run.State, Phase: v.Run.Phase, Executed: "maybe", PollAfterSeconds: e.pollAfter(v),
		NextSteps: NextSteps(v)}
	if v.Waiting != nil {
		a.Executed = "never"
	}
	a.Askers, _ = NamesOf(held)
	a.Withdrawn, a.Message = true, by.Text("this run", held)
	return a
}

// CancelWrite returns the transition that records the request to cancel an unfinished run. [Engine.CarryOutCancel]
// carries it out.
func CancelWrite(v View, at time.Time, why string, by Withdrawal) Write {
	w := Write{From: &v, Run: v.Run}
	w.Run.CancelAt, w.Run.CancelReason = &at, cmp.Or(why, "cancelled on request")
	data := by.Event()
	data["reason"] = w.Run.CancelReason
	w.Event = Event{Type: "run.cancel_asked", Data: data}
	setCancelling(&w.Run, v.Submission.JobID)
	return w
}

// CarryOutCancel carries out the cancel that the ledger has recorded for a run, as far as possible now. A run without
// one is left unchanged.
func (e *Engine) CarryOutCancel(ctx context.Context, runID string) (View, error) {
	return unlessStale(func() (View, error) {
		v, err := e.Store.View(ctx, runID)
		if err == nil && v.Run.CancelAt != nil && !v.Run.State.Terminal() {
			err = e.carryOutCancel(ctx, v)
		}
		return v, err
	})
}

// setCancelling makes cancelling the reason of a run in a phase that a cancel can end. It leaves a run whose job has
// ended as it is: what the job left may still be collected.
func setCancelling(r *Run, jobID string) {
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

// beforeJob has the detail of a cancel by phase, for the phases in which Slurm has no job and no send is in flight.
var beforeJob = map[Phase]string{Staging: "cancelled before anything was submitted",
	Deferred: "cancelled while it waited for Slurm; no job was accepted"}

func (e *Engine) carryOutCancel(ctx context.Context, v View) error {
	switch v.Run.Phase {
	case Staging, Deferred:
		return e.cancelUnsent(ctx, v)
	case Submitting, Collecting:
		// The worker that has the run, or takes it next, finds the cancel in the ledger.
		e.pressure.makeDue(v.Run.ID)
		e.work.add(ShareOf(v.Run), v.Run.ID)
		return nil
	case InJob, Completing:
		e.cancels.cancel(v.Run, jobAsSent(v))
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
	// The holder of the claim settles it, whatever Slurm shows: the run's job, if it is still queued, would only wait
	// for its turn.
	if err == nil && v.Submission.JobID != "" {
		e.cancels.cancel(v.Run, jobAsSent(v))
	}
	return err
}

func (e *Engine) cancelAnswer(v View) CancelAnswer {
	a := CancelAnswer{RunID: v.Run.ID, State: v.Run.State, Phase: v.Run.Phase, PollAfterSeconds: e.pollAfter(v), Askers: []string{},
		NextSteps: NextSteps(v)}
	switch {
	case v.Waiting != nil && v.Run.State == Failed:
		a.Executed, a.Message = "never", "the run has already failed, for its inputs; it never had a job"
	case v.Waiting != nil:
		a.Executed, a.Message = "never", fmt.Sprintf("%s; the run waited for its inputs and never had a job", v.Run.State)
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

// endUnsent ends a run that has no job as far as this ledger knows: it was cancelled, or cannot be staged. A worker may
// be processing it: this write makes the worker's next write stale, and without the intent nothing is sent. But a
// ledger restored from a backup may lack a job that was sent later, so an attempt that has a folder ends by its claim.
// If the folder cannot be reached, the ledger alone decides.
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
