package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

func (g *Gateway) cancelWaiting(ctx context.Context, c gate.Call, w ledger.WaitingRun, a RunArgs) (out CancelAnswer, err error) {
	at, err := g.atNewest(ctx, w.ID, a.Reason)
	if err != nil {
		return out, err
	}
	on, err := g.waitersOf(ctx, w.ID)
	if err != nil {
		return out, err
	}
	was := w.State
	if was == ledger.WaitingOn {
		why := a.Reason
		if why == "" {
			why = "cancelled on request"
		}
		if w, err = g.Ledger.EndWaiting(ctx, w.ID, ledger.WaitingCancelled, "cancelled", why); err != nil {
			return out, err
		}
		g.waitLoop.poke()
	}
	if w.State == ledger.WaitingStarted { // at this moment
		a.RunID = w.Became
		var now any
		if out, now, err = g.cancel(ctx, c, a); err == nil {
			out.ProvenanceRunID, err = g.provenance(ctx, c, now)
		}
		return out, err
	}
	out.CancelAnswer = run.CancelAnswer{RunID: w.ID, State: waitingState(w), Phase: run.Done, Executed: "never",
		Message: "the run waited for its inputs and never had a job", NextSteps: waitingSteps(w, nil)}
	if was != ledger.WaitingOn {
		out.Message = fmt.Sprintf("the run was %s already; nothing was changed", was)
	}
	on.tell(&out)
	out.ProvenanceRunID, err = g.provenance(ctx, c, at)
	return out, err
}

// waiters are runs that wait for outputs of another: how many, and some of them.
type waiters struct {
	n   int64
	ids []string
}

// waitersOf is read before the cancel of a run: they end with it.
func (g *Gateway) waitersOf(ctx context.Context, runID string) (w waiters, err error) {
	w.ids, w.n, err = g.Ledger.WaitersOf(ctx, runID, 5)
	return w, err
}

// tell adds them to the answer of a cancel.
func (w waiters) tell(out *CancelAnswer) {
	if w.n == 0 {
		return
	}
	out.Waiters, out.WaitingRuns = w.n, w.ids
	what := fmt.Sprintf("%d runs wait", w.n)
	if w.n == 1 {
		what = "1 run waits"
	}
	out.Message += fmt.Sprintf("; %s for its outputs and will fail (input_failed): %s", what, strings.Join(w.ids, ", "))
	if w.n > int64(len(w.ids)) {
		out.Message += ", …"
	}
}

// retryWaiting sets a run waiting again, with the rights of this call.
func (g *Gateway) retryWaiting(ctx context.Context, c gate.Call, w ledger.WaitingRun, a RunArgs) (run.SubmitAnswer, error) {
	call := fault.Do("slurm.job.retry", "run_id", w.ID, "after_attempt", w.AttemptN)
	switch {
	case a.After == 0:
		return run.SubmitAnswer{}, fault.New(fault.Validation, "after_attempt_missing",
			fmt.Sprintf("the call does not name the attempt it follows (after_attempt); %s is at attempt %d", w.ID, w.AttemptN)).WithSteps(call)
	case a.After > w.AttemptN:
		return run.SubmitAnswer{}, fault.New(fault.Validation, "no_such_attempt", fmt.Sprintf("%s has no attempt %d; its latest is attempt %d",
			w.ID, a.After, w.AttemptN)).WithSteps(call)
	case a.After < w.AttemptN:
		return g.waitingSubmitted(ctx, c, w, true)
	case w.State == ledger.WaitingOn:
		return run.SubmitAnswer{}, fault.New(fault.Conflict, "run_active", w.ID+" waits for its inputs already").
			WithSteps(fault.Do("slurm.job.get", "run_id", w.ID))
	}
	of, err := g.Ledger.WaitingSources(ctx, w.ID)
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	for _, s := range of {
		if s.Broken() {
			return run.SubmitAnswer{}, brokenInput(s)
		}
	}
	caller, err := json.Marshal(batchCallerOf(c))
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	why := a.Reason
	if why == "" {
		why = "requested"
	}
	if w, err = g.Ledger.WaitAgain(ctx, w.ID, a.After, why, askerOf(c), caller); err != nil {
		return run.SubmitAnswer{}, err
	}
	g.waitLoop.poke()
	return g.waitingSubmitted(ctx, c, w, false)
}

// brokenInput is why an output will not come.
func brokenInput(s ledger.WaitingSource) *fault.Error {
	how := fmt.Sprintf("%s is %s", s.RunID, s.State)
	switch {
	case s.Removed != "":
		how = "what " + s.RunID + " made was removed"
	case s.Reason != "" && s.State == run.Failed:
		how += " (" + s.Reason + ")"
	}
	return fault.New(fault.Conflict, "input_failed", how+", so its output "+s.Role+" is not there").
		WithNext("retry that run first, then this one").WithSteps(fault.Do("slurm.job.retry", "run_id", s.RunID, "after_attempt", s.Attempt))
}
