package run

import (
	"context"
	"fmt"
	"time"

	"slurmgate/fault"
)

// resolve settles a run in doubt once a full answer of squeue and of accounting (where there is any) show
// no job of its name: absence is made, not observed. With its sbatch gone and no receipt, the gateway takes
// the claim itself. If it wins, no job of this attempt can ever execute, whatever still arrives.
func (e *Engine) resolve(ctx context.Context, v View) (moved bool, err error) {
	p, err := e.params(ctx, v)
	if err != nil {
		return false, err
	}
	job := e.job(v, p)
	res, held := e.Sender.Receipt(ctx, job, v.Sends)
	if held {
		return false, nil // its sbatch may still succeed
	}
	if res.Outcome != SendDoubt {
		return true, e.settleSend(ctx, v, job, v.Sends, res)
	}
	return e.noneExecuted(ctx, v, "sbatch left no receipt and Slurm shows no such job")
}

func orEnding(v View) Ending {
	if v.Run.CancelAt != nil {
		return EndedCancelled
	}
	return EndedAbsent
}

// adopt takes over the job that the claim names: it has started, whatever Slurm showed so far.
func (e *Engine) adopt(ctx context.Context, v View, c Claim) (bool, error) {
	if c.Token != v.Submission.Token {
		return true, e.foreignClaim(ctx, v)
	}
	now := e.Now()
	v.Submission.JobID = c.Holder.Job
	a := v.Attempt
	a.SlurmState, a.SlurmWhy, a.Node, a.StartedAt, a.EndedAt, a.MissedAt = "", "", c.Node, orTime(a.StartedAt, now), nil, nil
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail = Running, InJob, "", ""
	_, err := e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Submission: &v.Submission,
		Event: Event{Type: "run.adopted", Data: map[string]any{"job_id": c.Holder.Job, "by": "claim", "node": c.Node}}})
	return err == nil, err
}

// foreignClaim: the attempt's claim is not of this submission, or not a claim at all. No job of it can execute any
// more, but nobody knows what did; a person decides.
func (e *Engine) foreignClaim(ctx context.Context, v View) error {
	return e.block(ctx, v, NeedsOperator, "the claim in the attempt's folder is not this submission's. Next: look at the folder, then slurmgate cancel "+v.Run.ID)
}

// several: more than one job has the run's name, or the one that has it has another id. Only pending ones
// are cancelled; whoever holds the claim is the execution.
func (c *cycle) several(ctx context.Context, v View, found []Job) (bool, error) {
	claim, err := c.readClaim(ctx, v)
	if fault.Is(err, fault.NotFound) {
		var keep string
		for _, j := range found {
			if j.Class == ClassPending && keep != "" {
				if err := c.Observer.Cancel(ctx, j.ID, j.Name); err != nil {
					return false, err
				}
				continue
			}
			if j.Class != ClassEnded {
				keep = j.ID
			}
		}
		if keep != "" {
			return false, nil // the next cycle sees fewer of them
		}
		return c.noneExecuted(ctx, v, fmt.Sprintf("%d jobs of the attempt ended and none took the claim", len(found)))
	}
	if err != nil {
		return false, err
	}
	switch {
	case claim.Token != v.Submission.Token:
		return true, c.foreignClaim(ctx, v)
	case claim.Void:
		return true, c.finish(ctx, v, verdict{ending: orEnding(v), detail: "the gateway holds the claim: nothing was executed"})
	}
	for _, j := range found {
		if j.ID == claim.Holder.Job && v.Submission.JobID != j.ID {
			v.Submission.JobID = j.ID
			return c.observe(ctx, v, []Job{j})
		}
	}
	if v.Submission.JobID == claim.Holder.Job {
		return c.missed(ctx, v)
	}
	return c.adopt(ctx, v, claim)
}

// noneExecuted ends an attempt by taking its claim, unless a job has it after all.
func (e *Engine) noneExecuted(ctx context.Context, v View, detail string) (bool, error) {
	claim, won, err := e.takeClaim(ctx, v)
	switch {
	case isGone(err):
		return true, e.folderGone(ctx, v)
	case err != nil:
		return false, err
	case won:
		return true, e.finish(ctx, v, verdict{ending: orEnding(v), detail: detail + "; the gateway took the claim, so none can execute"})
	}
	return e.adopt(ctx, v, claim)
}

// takeClaim tries to take the claim for nobody. won is true when this attempt can never execute (now, or
// since an earlier call); otherwise the claim names the job that has it. One that cannot be read has no token.
func (e *Engine) takeClaim(ctx context.Context, v View) (c Claim, won bool, err error) {
	data, err := e.Control.TakeClaim(ctx, v.Run.ID, v.Attempt.N, VoidClaim(v.Submission.Token))
	switch {
	case isGone(err), ctx.Err() != nil:
		return Claim{}, false, err
	case err != nil:
		return Claim{}, false, e.ofFiles(v, "who has the claim cannot be found out", err)
	}
	if c, err = ParseClaim(data); err != nil {
		return Claim{}, false, nil
	}
	return c, c.Void && c.Token == v.Submission.Token, nil
}

// CancelAnswer is what a cancel says.
type CancelAnswer struct {
	RunID            string `json:"run_id"`
	State            State  `json:"state"`
	Phase            Phase  `json:"phase"`
	Executed         string `json:"executed"` // "never", "maybe" (it, or an earlier attempt, started), "finished"
	PollAfterSeconds *int   `json:"poll_after_seconds"`
	Message          string `json:"message"`
}

// Cancel records the wish to cancel and carries it out as far as it goes now. Before the job has started it
// is definite at once, with or without a job id: the gateway takes the claim. A finished run stays as it is.
func (e *Engine) Cancel(ctx context.Context, runID, why string) (CancelAnswer, error) {
	for range 20 {
		v, err := e.Store.View(ctx, runID)
		if err != nil {
			return CancelAnswer{}, err
		}
		if v.Run.State.Terminal() {
			return e.cancelAnswer(v), nil
		}
		if v.Run.CancelAt == nil {
			now := e.Now()
			v.Run.CancelAt, v.Run.CancelReason = &now, orElse(why, "cancelled on request")
			v, err = e.apply(ctx, Write{Run: v.Run, Event: Event{Type: "run.cancel_asked", Data: map[string]any{"reason": v.Run.CancelReason}}})
		}
		if err == nil {
			err = e.carryOutCancel(ctx, v)
		}
		if stale(err) {
			continue
		}
		if err != nil {
			return CancelAnswer{}, err
		}
		v, err = e.waitFor(ctx, runID, e.cfg.SubmitWait, func(v View) bool { return v.Run.State.Terminal() || v.Run.Phase == InJob })
		return e.cancelAnswer(v), err
	}
	return CancelAnswer{}, fault.New(fault.Transport, "run.Cancel", "busy", "the run keeps changing").WithNext("the wish to cancel is recorded; look again with slurmgate get " + runID)
}

func (e *Engine) carryOutCancel(ctx context.Context, v View) error {
	switch v.Run.Phase {
	case Staging, Deferred, Submitting, Collecting:
		// The worker that has the run, or takes it up now, sees the wish.
		e.hurry(v.Run.ID)
		e.work.add(v.Run.ID)
		return nil
	case InJob, Completing:
		return e.cancelJob(ctx, v)
	case OutputsLate:
		return e.finish(ctx, v, verdict{ending: EndedCancelled, detail: "given up: the outputs never showed up", exit: v.Attempt.ExitCode})
	case AheadOfLedger:
		return e.finish(ctx, v, verdict{ending: EndedCancelled, reason: string(AheadOfLedger), detail: "given up: this gateway never sent anything; the workspace belongs to an attempt it does not know"})
	}
	claim, won, err := e.takeClaim(ctx, v)
	if isGone(err) {
		return e.giveUpGone(ctx, v)
	}
	if err != nil {
		return err
	}
	if !won && claim.Token != v.Submission.Token {
		return e.finish(ctx, v, verdict{ending: EndedCancelled, detail: "given up: the claim is not this submission's, so no job of it can execute any more", exit: v.Attempt.ExitCode})
	}
	if !won {
		if v.Submission.JobID == "" {
			_, err := e.adopt(ctx, v, claim)
			e.poke()
			return err
		}
		return e.cancelJob(ctx, v)
	}
	if v.Submission.JobID != "" {
		if err := e.cancelJob(ctx, v); err != nil {
			e.Log.Warn("scancel failed; the job cannot execute and is cancelled when seen", "run_id", v.Run.ID, "err", err)
		}
	}
	d := verdict{ending: EndedCancelled, detail: v.Run.CancelReason + " (before it started; it can never execute)"}
	return e.finish(ctx, v, d)
}

func (e *Engine) cancelJob(ctx context.Context, v View) error {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	e.poke()
	if err := e.Observer.Cancel(ctx, v.Submission.JobID, v.Submission.JobName); err != nil {
		return fault.Wrap(fault.Transport, "run.Cancel", "slurm_unreachable", "the wish to cancel is recorded, Slurm does not take it now", err).WithNext("nothing: it is tried again until Slurm answers")
	}
	return nil
}

func (e *Engine) cancelAnswer(v View) CancelAnswer {
	a := CancelAnswer{RunID: v.Run.ID, State: v.Run.State, Phase: v.Run.Phase, PollAfterSeconds: e.pollAfter(v)}
	switch {
	case v.Run.State == Cancelled && v.Run.Reason == string(AheadOfLedger):
		a.Executed, a.Message = "maybe", "cancelled; this gateway sent nothing, but the attempt it found in the workspace may have run"
	case v.Run.State == Cancelled && v.Run.Reason == collectingWaits:
		a.Executed, a.Message = "maybe", "cancelled; what its job left could not be taken over, and it may have run"
	case v.Run.State == Cancelled && v.Run.Reason == WorkspaceGone:
		a.Executed, a.Message = "maybe", "cancelled; its workspace is gone, and it may have run"
	case v.Run.State == Cancelled && v.Attempt.N > 1 && v.Attempt.StartedAt == nil:
		a.Executed, a.Message = "maybe", fmt.Sprintf("cancelled; attempt %d never started, an earlier one may have", v.Attempt.N)
	case v.Run.State == Cancelled && v.Attempt.StartedAt == nil && v.Attempt.ExitCode == nil:
		a.Executed, a.Message = "never", "cancelled; the program never started"
	case v.Run.State.Terminal():
		a.Executed, a.Message = "finished", fmt.Sprintf("the run is over: %s (%s)", v.Run.State, v.Run.Reason)
	case v.Run.Phase == Collecting:
		a.Executed, a.Message = "maybe", "the job is over; the run ends as soon as what it left is taken over, or is given up when that goes on being impossible"
	default:
		a.Executed, a.Message = "maybe", "asked Slurm to stop the job; the run ends as soon as Slurm confirms"
	}
	return a
}
