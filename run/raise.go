package run

import (
	"context"
	"fmt"

	"slurmgate/fault"
	"slurmgate/plan"
)

// A retry may give its attempt more memory and time than the plan: because the caller asks for it, or by the pack's
// retryFactor after an attempt that had too little. It changes neither the run's identity nor its command line, which a
// template may have made for the plan's size. Later attempts keep what it got.

// Ceiling is the most of a resource that a job can have at a site, and the reason for it. Zero: unknown.
type Ceiling struct {
	Most int
	Why  string
}

// killedStatus is the status of a program that SIGKILL ended, which is how a kernel without Slurm's help ends one that
// has no memory left.
const killedStatus = 137

// resources returns those of an attempt: the plan's, unless a retry raised them.
func (a Attempt) resources(p plan.Params) plan.Resources {
	if a.Resources != nil {
		return *a.Resources
	}
	return p.Spec.Resources
}

// raise returns the resources of the attempt that a retry opens: nil for the plan's. says names what is more than the
// attempt before had; empty: nothing. asked are the run's params as stored, at is where the attempt goes.
func (e *Engine) raise(ctx context.Context, v View, asked plan.Params, at *plan.Placement, more plan.MoreResources) (res *plan.Resources,
	says string, err error) {
	had, first := v.Attempt.resources(asked), asked.Spec.Resources
	next := more.On(had)
	if err := next.Validate("resources"); err != nil {
		return nil, "", err
	}
	var problems []fault.Problem
	fewer := func(field, unit string, got, least int) {
		if got < least {
			problems = append(problems, fault.Problem{Code: "RETRY-RESOURCES", Field: "resources." + field,
				Rule: fmt.Sprintf("at least what the run's plan has, %d%s", least, unit),
				Msg:  fmt.Sprintf("%d%s is less than the run's plan has", got, unit),
				Hint: "a retry can only have more; for less, call the tool again, which makes another run"})
		}
	}
	fewer("mem_mb", " MiB", next.MemMB, first.MemMB)
	fewer("time_limit_seconds", " s", next.TimeLimitSeconds, first.TimeLimitSeconds)
	if len(problems) > 0 {
		return nil, "", fault.Invalid("the new attempt cannot have these resources", problems...)
	}
	mem, time := e.Most(ctx, v.Run.ToolID, placed(asked, Attempt{Placement: at}))
	if err := e.byFactor(ctx, v, more, &next, mem, time); err != nil {
		return nil, "", err
	}
	if err := e.allowed(v, placed(asked, Attempt{Placement: at, Resources: &next})); err != nil {
		return nil, "", err
	}
	over := func(field, unit string, got, was int, b Ceiling) {
		if b.Most > 0 && got > b.Most && got > was {
			problems = append(problems, fault.Problem{Code: "RETRY-RESOURCES", Field: "resources." + field,
				Rule: fmt.Sprintf("%s: at most %d%s", b.Why, b.Most, unit), Msg: fmt.Sprintf("%d%s is more than is there", got, unit)})
		}
	}
	over("mem_mb", " MiB", next.MemMB, had.MemMB, mem)
	over("time_limit_seconds", " s", next.TimeLimitSeconds, had.TimeLimitSeconds, time)
	if len(problems) > 0 {
		return nil, "", fault.Invalid("no job can have these resources where the run goes", problems...)
	}
	if next != first {
		res = &next
	}
	return res, next.Raised(had), nil
}

// byFactor raises what the attempt before had too little of by the pack's factor, as far as policy and partition allow,
// if the caller names no amount.
func (e *Engine) byFactor(ctx context.Context, v View, more plan.MoreResources, next *plan.Resources, mem, time Ceiling) error {
	ending, killed := v.Attempt.Ending, v.Attempt.ExitCode != nil && *v.Attempt.ExitCode == killedStatus
	memory := more.MemMB == nil && (ending == EndedOutOfMemory || ending == EndedToolFailed && killed)
	longer := more.TimeLimitSeconds == nil && ending == EndedTimeLimit && v.Attempt.StartedAt != nil // not if staging took too long
	if v.Run.PackHash == "" || !memory && !longer {
		return nil
	}
	c, err := e.Contracts.Contract(ctx, v.Run.PackHash)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Validation):
		return nil // an unreadable pack does not prevent a retry
	case err != nil:
		return err
	}
	within := func(had, wanted, most int, b Ceiling) int {
		most = min(wanted, most)
		if b.Most > 0 {
			most = min(most, b.Most)
		}
		return max(had, most)
	}
	if memory {
		next.MemMB = within(next.MemMB, c.AfterOutOfMemory(next.MemMB), plan.MaxMemMB, mem)
	}
	if longer {
		next.TimeLimitSeconds = within(next.TimeLimitSeconds, c.AfterTimeLimit(next.TimeLimitSeconds), plan.MaxTimeLimitSeconds, time)
	}
	return nil
}

// raisedText returns a sentence about what a retry raised.
func raisedText(n int, says string) string {
	return fmt.Sprintf("attempt %d has more: %s; its command line is that of the first attempt, made for the plan's resources", n, says)
}

// withResources adds the resources of an attempt to the data of its event, unless they are the plan's.
func withResources(data map[string]any, res *plan.Resources) map[string]any {
	if res != nil {
		data["resources"] = *res
	}
	return data
}

// NextResources returns what the next attempt of a run would have by a retry; nothing is changed.
func (e *Engine) NextResources(ctx context.Context, runID string, more plan.MoreResources) (plan.Resources, error) {
	v, err := e.Store.View(ctx, runID)
	if err != nil {
		return plan.Resources{}, err
	}
	p, err := e.storedParams(ctx, v)
	if err != nil {
		return plan.Resources{}, err
	}
	res, _, err := e.raise(ctx, v, p, e.nextPlacement(v, p), more)
	return Attempt{Resources: res}.resources(p), err
}
