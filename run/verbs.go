package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// The verbs with which a person resolves what the gateway must not decide alone. Each is an explicit decision, recorded
// with its reason; none of them can make an attempt execute twice.

// RetryOrder is a request for the next attempt of a run.
type RetryOrder struct {
	After int // the attempt that it follows
	Why   string
	More  plan.MoreResources // what it gets instead of the resources of that one
	Row   *RowRef            // the row of a batch that it is for; nil: none
	// Allow is called before the attempt is opened, with what it would have; its error becomes the answer. nil: allowed
	Allow func(r Run, next plan.Resources) error

	Asking *Asking // who requests it; nil: it is made for those who asked for the run
	By     string  // the principal that requests it for them; empty: Asking's
	// Caller has the rights with which a run that waits for inputs is started, if Asking is not nil.
	Caller json.RawMessage
}

// event returns the event of a retry, with its reason.
func (o RetryOrder) event(why string) Event {
	data := map[string]any{"reason": why}
	if o.By != "" {
		data["for_askers_by"] = o.By
	}
	return Event{Type: "run.retry", Data: data}
}

// Retry opens the attempt that follows attempt o.After, of a run that failed or was cancelled. If that attempt is
// already open, the answer is the run as it is: a repeated call has no effect. A run that succeeded, or has not ended,
// is a Conflict; an attempt the run never had, or none (0), is a Validation fault that names the latest one.
func (e *Engine) Retry(ctx context.Context, runID string, o RetryOrder) (SubmitAnswer, error) {
	return unlessStale(func() (SubmitAnswer, error) { return e.retry(ctx, runID, o) })
}

// checkAfter compares the attempt that a retry names with the latest one.
func checkAfter(r Run, after int) error {
	call := fault.Do("slurm.job.retry", "run_id", r.ID, "after_attempt", r.AttemptN)
	switch {
	case after == 0:
		return fault.New(fault.Validation, "after_attempt_missing",
			fmt.Sprintf("the call does not name the attempt it follows (after_attempt); %s is at attempt %d", r.ID, r.AttemptN)).WithSteps(call)
	case after > r.AttemptN:
		return fault.New(fault.Validation, "no_such_attempt", fmt.Sprintf("%s has no attempt %d; its latest is attempt %d", r.ID, after,
			r.AttemptN)).WithSteps(call)
	}
	return nil
}

// Retryable reports whether a retry that names the attempt it follows would open another.
func Retryable(v View, after int) bool {
	return after == v.Run.AttemptN && v.Run.State.Terminal() && (v.Run.State != Succeeded || v.Run.Removed != "")
}

// unlessStale repeats a verb on the run's new state if the run changed in between.
func unlessStale[T any](verb func() (T, error)) (T, error) {
	for range 20 {
		if t, err := verb(); !stale(err) {
			return t, err
		}
	}
	var none T
	return none, fault.New(fault.Transport, "busy", "the run keeps changing").WithNext("repeat the call")
}

// inDoubt carries out a verb for a run in one of the phases in which its job is in doubt, and returns the run's new
// state.
func (e *Engine) inDoubt(ctx context.Context, runID string, verb func(View) error, phases ...Phase) (GetState, error) {
	return unlessStale(func() (GetState, error) {
		v, err := e.Store.View(ctx, runID)
		if err == nil && v.Run.Reason != claimWaits && !slices.Contains(phases, v.Run.Phase) {
			err = fault.New(fault.Conflict, "not_in_doubt", fmt.Sprintf("the run is %s (%s), so its job is not in doubt", v.Run.State,
				v.Run.Phase)).WithSteps(fault.Do("run.show", "run_id", runID))
		}
		if err == nil {
			err = verb(v)
		}
		if err == nil {
			v, err = e.Store.View(ctx, runID)
		}
		if err != nil {
			return GetState{}, err
		}
		return Outline(v), nil
	})
}

// opens reports whether a retry opens an attempt. If not, that attempt was opened before, and a is the answer, or it
// cannot be opened, and err says why.
func (e *Engine) opens(v View, o RetryOrder) (opens bool, a SubmitAnswer, err error) {
	// Only a run that failed or was cancelled can have a next attempt, whatever the call names.
	if e.calls == nil && v.Run.State.Terminal() && (v.Run.State != Succeeded || v.Run.Removed != "") {
		err = checkAfter(v.Run, o.After)
	}
	collect := fault.Do("slurm.job.collect", "run_id", v.Run.ID)
	switch {
	case err != nil:
	case e.calls != nil && v.Run.State != Succeeded:
		err = calledAgain(v.Run)
	case o.After > 0 && o.After < v.Run.AttemptN:
		a = e.submitAnswer(v, true, nil)
	case v.Run.State == Succeeded && v.Run.Removed == "":
		err = fault.New(fault.Conflict, "run_succeeded", "the run succeeded; there is nothing to retry").WithSteps(collect)
	case !v.Run.State.Terminal():
		collect.Args["wait_seconds"] = LongWait
		err = fault.New(fault.Conflict, "run_active", fmt.Sprintf("the run is %s (%s)", v.Run.State, v.Run.Phase)).
			WithSteps(collect, fault.Do("slurm.job.cancel", "run_id", v.Run.ID))
	default:
		opens = true
	}
	return opens, a, err
}

func (e *Engine) retry(ctx context.Context, runID string, o RetryOrder) (SubmitAnswer, error) {
	v, err := e.Store.View(ctx, runID)
	if err != nil {
		return SubmitAnswer{}, err
	}
	if opens, a, err := e.opens(v, o); !opens {
		return a, err
	}
	if err := e.accepts(); err != nil {
		return SubmitAnswer{}, err
	}
	if err := e.Room(ctx, ShareOf(v.Run)); err != nil {
		return SubmitAnswer{}, err
	}
	if err := e.mayOpen(ctx, v.Run.ProjectID); err != nil {
		return SubmitAnswer{}, err
	}
	p, err := e.storedParams(ctx, v)
	if err != nil {
		return SubmitAnswer{}, err
	}
	at := e.nextPlacement(v, p)
	res, says, err := e.raise(ctx, v, p, at, o.More)
	if err != nil {
		return SubmitAnswer{}, err
	}
	if o.Allow != nil {
		if err := o.Allow(v.Run, Attempt{Resources: res}.resources(p)); err != nil {
			return SubmitAnswer{}, err
		}
	}
	why := cmp.Or(o.Why, "requested")
	var warnings []string
	if says != "" {
		warnings = []string{raisedText(v.Run.AttemptN+1, says)}
		why += ". " + warnings[0]
	}
	v.Run.CancelAt, v.Run.CancelReason = nil, ""
	w := Write{Admit: e.admit(v.Run), Row: o.Row, Asking: o.Asking, Event: o.event(why)}
	if err = e.openAttempt(ctx, v, "retry", why, at, res, w); err != nil {
		return SubmitAnswer{}, err
	}
	v, err = e.settle(ctx, runID, func(v View) bool { return v.Run.Phase != Staging && v.Run.Phase != Submitting })
	answer := e.submitAnswer(v, false, nil)
	answer.Warnings = slices.Concat(answer.Warnings, warnings)
	return answer, err
}

// DeclareAbsent settles a run whose job cannot be found: the gateway takes the claim, so that no job of the
// attempt can execute from now on. If a job already has the claim, the run belongs to that job, and the answer is
// a Conflict that names it.
func (e *Engine) DeclareAbsent(ctx context.Context, runID, why string) (GetState, error) {
	return e.inDoubt(ctx, runID, func(v View) error {
		claim, who, err := e.takeClaim(ctx, v)
		switch {
		case err != nil:
			return e.declareUnclaimed(ctx, v, why, err)
		case who == folderMissing:
			return fault.New(fault.Conflict, WorkspaceGone, "the attempt's folder is gone: it is unknown whether the attempt was executed; "+
				"no job of it can execute any more").WithSteps(fault.Do("slurm.job.cancel", "run_id", runID))
		case who == heldByOther:
			return fault.New(fault.Conflict, "claim_of_another",
				"the claim in the attempt's folder belongs to an unknown submission; no job of this one can execute any more").
				WithSteps(fault.Do("slurm.job.cancel", "run_id", runID))
		case who == heldByJob:
			if _, err := e.adopt(ctx, v, claim); err != nil {
				return err
			}
			return fault.New(fault.Conflict, "job_executes",
				fmt.Sprintf("job %s on %s has the claim: it executes, or has executed, this attempt", claim.Holder.Job, claim.Node)).
				WithSteps(fault.Do("slurm.job.collect", "run_id", runID, "wait_seconds", LongWait))
		}
		err = e.finish(ctx, v, verdict{ending: cancelledOrAbsent(v), reason: declaredAbsent,
			detail: cmp.Or(why, "declared absent") + "; the gateway has the claim, so no job of this attempt can execute"})
		if err == nil && v.Submission.JobID != "" {
			e.cancels.cancel(v.Run, jobAsSent(v))
		}
		return err
	}, Unconfirmed, Pending, NeedsOperator)
}

// Adopt assigns a job that a person has found to a run in doubt. Slurm must show that id under the run's job name, as a
// job of the run's user; any other job is refused.
func (e *Engine) Adopt(ctx context.Context, runID, jobID string) (GetState, error) {
	return e.inDoubt(ctx, runID, func(v View) error {
		name, user := v.Submission.JobName, e.userOf(v.Run.ExecutedAs)
		jobs, err := e.Queue.Jobs(ctx, nil)
		if err != nil {
			return err
		}
		seen := index(jobs)
		found := seen.named(name, user)
		if found == nil {
			if records, err := e.Accounting.Records(ctx, v.Submission.CreatedAt.Add(-time.Hour), keyOf(v)); err == nil {
				found = index(records).named(name, user)
			}
		}
		i := slices.IndexFunc(found, func(j Job) bool { return j.ID == jobID })
		if hidden := seen.hides(name, user); i < 0 && hidden != nil {
			return fault.New(fault.Transport, recordUnread, "Slurm's answer "+hidden.mayLack()+
				", so it may not show job "+jobID).WithNext("look for the record in the gateway's log, then try again")
		}
		if i < 0 {
			return fault.New(fault.Conflict, "job_not_ours",
				fmt.Sprintf("Slurm has no job %s named %s%s; a job with another name or user cannot be adopted", jobID, name, ofWhom(user))).
				WithNext("look for the job with squeue --name=" + name + "; if it shows none, declare it absent").
				WithSteps(fault.Do("slurm.job.absent", "run_id", runID))
		}
		v.Run.State, v.Run.Phase = Queued, Unconfirmed
		_, err = (&cycle{Engine: e, began: e.Now()}).observe(ctx, withJob(v, jobID), found[i:i+1])
		return err
	}, Unconfirmed, NeedsOperator)
}

// GetState is the state of a run after a verb.
type GetState struct {
	RunID     string       `json:"run_id"`
	State     State        `json:"state"`
	Phase     Phase        `json:"phase"`
	Attempt   int          `json:"attempt"`
	Reason    string       `json:"reason"`
	NextSteps []fault.Step `json:"next_steps"`
}

// Outline returns the state of a run and what can be done next.
func Outline(v View) GetState {
	reason := v.Run.Reason
	if v.Waits() {
		reason = v.Reason()
	}
	return GetState{v.Run.ID, v.Run.State, v.Run.Phase, v.Run.AttemptN, reason, NextSteps(v)}
}
