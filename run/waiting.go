package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Waiting is what the ledger has, instead of an attempt, of a run in the phase [WaitingForInputs] and of one that ended
// in it. Once such a run has started, its id is an alias of the run that its call created or found.
type Waiting struct {
	For           []Source
	Args          json.RawMessage // canonical arguments of the call that asked for the run
	Caller        json.RawMessage // the rights with which the call is made again
	Principal     Principal       // the principal with these rights
	ApprovalID    string          // approval of the run's batch; empty: no batch, or no approval was needed
	Code, Message string          // why it cannot start for now, although its inputs are there
	Tries         int             // tries to start it that failed unexpectedly, since it was set waiting
}

// Source is an output that a run waits for, and the run that makes it.
type Source struct {
	plan.Promise
	State   State // of the run, or of the run that it became
	Phase   Phase
	Reason  string
	Attempt int
	Actual  string // the run that it became, or RunID itself
	Removed string // the removal that took what the run made
	Repeats bool   // another attempt can only fail as the last one did
}

// Over reports whether the source has ended: nothing more happens to it by itself.
func (s Source) Over() bool { return s.State.Terminal() }

// Broken reports whether the output will not come.
func (s Source) Broken() bool {
	return s.State == Failed || s.State == Cancelled || s.State == Succeeded && s.Removed != ""
}

// Fault returns why a broken source brings no output, with what to do.
func (s Source) Fault() *fault.Error {
	how := fmt.Sprintf("%s is %s", s.RunID, s.State)
	switch {
	case s.Removed != "":
		how = "what " + s.RunID + " made was removed"
	case s.Reason != "" && s.State == Failed:
		how += " (" + s.Reason + ")"
	}
	broken := fault.New(fault.Conflict, "input_failed", how+", so its output "+s.Role+" is not there")
	if s.Repeats {
		return broken.WithNext("another attempt of it gives the same outputs: see why they were refused, then call its tool with other " +
			"arguments, and this one with what that makes").WithSteps(fault.Do("slurm.job.logs", "run_id", s.Actual))
	}
	return broken.WithNext("retry that run first, then this one").
		WithSteps(fault.Do("slurm.job.retry", "run_id", s.RunID, "after_attempt", s.Attempt))
}

// Broken returns the fault of the first output that will not come; nil: all may come.
func (w *Waiting) Broken() error {
	for _, s := range w.For {
		if s.Broken() {
			return s.Fault()
		}
	}
	return nil
}

// Waits reports whether the run waits for its inputs.
func (v View) Waits() bool { return v.Run.Phase == WaitingForInputs }

// WaitRef returns the reference to the run as it waits now.
func (v View) WaitRef() WaitRef { return WaitRef{RunID: v.Run.ID, Attempt: v.Run.AttemptN} }

// WaitsFor lists the outputs of other runs that the run waits for, or waited for until it ended.
func (v View) WaitsFor() (out []WaitsFor) {
	if v.Waiting == nil {
		return nil
	}
	for _, s := range v.Waiting.For {
		out = append(out, WaitsFor{RunID: s.RunID, Role: s.Role, State: s.State, Phase: s.Phase})
	}
	return out
}

// NotStarted returns the fault of a call about the job of a run that has none.
func NotStarted(v View) error {
	code, msg := string(WaitingForInputs), v.Run.ID+" waits for outputs of other runs; it has no job yet"
	if !v.Waits() {
		code, msg = "never_started", fmt.Sprintf("%s is %s; it never had a job", v.Run.ID, v.Run.State)
	}
	return fault.New(fault.Conflict, code, msg).WithSteps(fault.Do("slurm.job.get", "run_id", v.Run.ID))
}

// text returns what a run waits for, as text.
func (w *Waiting) text() string {
	if w.Message != "" {
		return "the inputs are there, and the run cannot start for now: " + w.Message
	}
	var parts []string
	for _, s := range w.For {
		how := string(s.State)
		if s.Phase == WaitingForInputs {
			how = "waits itself"
		}
		parts = append(parts, fmt.Sprintf("%s of %s (%s)", s.Role, s.RunID, how))
		if len(parts) == 5 && len(w.For) > 5 {
			parts = append(parts, fmt.Sprintf("%d more", len(w.For)-5))
			break
		}
	}
	return strings.Join(parts, ", ")
}

// consentRequired is the gate's code for a call that waits for an approval.
const consentRequired = "consent_required"

// approvalNamed finds the request for approval in the reason of a run that cannot start without one.
var approvalNamed = regexp.MustCompile(`apr_[A-Z2-7]{26}`)

// waitingSteps returns the next steps of a run that has no attempt.
func waitingSteps(v View, cancel, retry fault.Step) []fault.Step {
	if v.Waits() {
		steps := []fault.Step{fault.Do("slurm.job.collect", "run_id", v.Run.ID, "wait_seconds", LongWait), cancel}
		if id := approvalNamed.FindString(v.Waiting.Message); v.Waiting.Code == consentRequired && id != "" {
			steps = append([]fault.Step{fault.Do("approval.answer", "approval_id", id)}, steps...)
		}
		return steps
	}
	for _, s := range v.Waiting.For {
		if s.Repeats {
			return []fault.Step{fault.Do("slurm.job.logs", "run_id", s.Actual)}
		}
		if s.Broken() {
			return []fault.Step{fault.Do("slurm.job.retry", "run_id", s.RunID, "after_attempt", s.Attempt), retry}
		}
	}
	return []fault.Step{retry}
}

// EndWaiting returns the transition that ends a run which waits for inputs, as failed or cancelled.
func EndWaiting(v View, at time.Time, s State, code, message string) Write {
	w := Write{From: &v, Run: v.Run, Event: Event{Type: "run." + string(s), Data: map[string]any{"code": code, "reason": message}}}
	w.Run.State, w.Run.Phase, w.Run.Reason, w.Run.Detail, w.Run.FinishedAt = s, Done, code, message, &at
	return w
}

// cancelWaiting takes askings back of a run without an attempt, and ends the run if it waits for inputs and no asking
// is left.
func (e *Engine) cancelWaiting(ctx context.Context, v View, why string, by Withdrawal) (CancelAnswer, error) {
	if !v.Waits() {
		return e.cancelAnswer(v), nil
	}
	v, held, err := e.withdraw(ctx, EndWaiting(v, e.Now(), Cancelled, string(Cancelled), cmp.Or(why, "cancelled on request")), by)
	switch {
	case err != nil:
		return CancelAnswer{}, err
	case len(held) > 0:
		return e.stillWanted(v, by, held), nil
	}
	return e.cancelAnswer(v), nil
}

// waitAgain sets a run waiting again that failed or was cancelled while it waited for inputs.
func (e *Engine) waitAgain(ctx context.Context, v View, o RetryOrder) (SubmitAnswer, error) {
	if opens, a, err := e.opens(v, o); !opens {
		return a, err
	}
	if err := v.Waiting.Broken(); err != nil {
		return SubmitAnswer{}, err
	}
	w := Write{From: &v, Run: v.Run, Row: o.Row, Asking: o.Asking, Caller: o.Caller, Event: o.event(cmp.Or(o.Why, "requested"))}
	w.Run.enter(WaitingForInputs, string(WaitingForInputs), "")
	w.Run.AttemptN, w.Run.FinishedAt = v.Run.AttemptN+1, nil
	v, err := e.apply(ctx, w)
	if err != nil {
		return SubmitAnswer{}, err
	}
	return e.submitAnswer(v, false, nil), nil
}

// inputsTurn is the time between two reads of a run that waits for inputs, while a call waits for it.
const inputsTurn = 250 * time.Millisecond

// started reads a run once it no longer waits for inputs, at the latest after most. left is the rest of that time.
func (s *Sites) started(ctx context.Context, runID string, most time.Duration) (v View, left time.Duration, err error) {
	began, e := time.Now(), s.order[0].Engine
	if v, err = s.store.View(ctx, runID); err != nil || most <= 0 || !v.Waits() {
		return v, most, err
	}
	resume, ok := e.Waits(ctx)
	if !ok {
		return v, 0, tooManyCalls()
	}
	defer resume()
	turn := time.NewTicker(inputsTurn)
	defer turn.Stop()
	for left = most; err == nil && v.Waits() && left > 0; left = most - time.Since(began) {
		select {
		case <-ctx.Done():
			return v, 0, nil // what is known is an answer
		case <-e.waiters.over:
			return v, 0, nil
		case <-turn.C:
			v, err = s.store.View(ctx, runID)
		}
	}
	return v, max(0, left), err
}
