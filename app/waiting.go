package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// Calls about runs that wait for outputs of others. Once such a run has started, its id is another name of the run that it is.

// follows makes an operation find a run by the id under which it waited, and answer for one that still does.
func (g *Gateway) follows(o Operation) Operation {
	wrap := func(h gate.Handler, dry bool) gate.Handler {
		if h == nil {
			return nil
		}
		return func(ctx context.Context, c gate.Call) (any, error) {
			c, w, err := g.byNewName(ctx, c)
			if err != nil {
				return nil, err
			}
			if w == nil {
				return h(ctx, c)
			}
			if w.State == ledger.WaitingStarted {
				out, err := h(ctx, c)
				return aliased(out, w.ID), err
			}
			return g.ofWaiting(ctx, c, *w, o.ID, dry, h)
		}
	}
	o.Does.handle, o.DryRun.handle = wrap(o.Does.handle, false), wrap(o.DryRun.handle, true)
	if covers := o.Covers; covers != nil {
		o.Covers = func(ctx context.Context, c gate.Call) (gate.Coverage, error) {
			c, w, err := g.byNewName(ctx, c)
			switch {
			case err != nil:
				return gate.Coverage{}, err
			case w != nil && w.State != ledger.WaitingStarted:
				return gate.Coverage{ProjectID: w.ProjectID, ExecutedAs: w.ExecutedAs, ParamsHash: w.ParamsHash}, nil
			}
			return covers(ctx, c)
		}
	}
	return o
}

// byNewName gives a call the ids of the runs that waiting ones have become. w is the one that its run_id names; nil: an ordinary run.
func (g *Gateway) byNewName(ctx context.Context, c gate.Call) (_ gate.Call, w *ledger.WaitingRun, err error) {
	args, _ := c.Value.(map[string]any)
	other := map[string]any{}
	named := func(v any) (string, *ledger.WaitingRun) {
		id, _ := v.(string)
		if !plan.IsRunID(id) || err != nil {
			return id, nil
		}
		x, err1 := g.Ledger.Waiting(ctx, id)
		switch {
		case fault.Is(err1, fault.NotFound):
			return id, nil
		case err1 != nil:
			err = err1
		case x.State == ledger.WaitingStarted:
			return x.Became, &x
		}
		return id, &x
	}
	for _, key := range []string{"run_id", "a", "b"} {
		if _, there := args[key]; !there {
			continue
		}
		id, x := named(args[key])
		switch {
		case x == nil:
		case key == "run_id":
			w = x
		case x.State != ledger.WaitingStarted:
			err = notStarted(*x)
		}
		if x != nil && id != args[key] {
			other[key] = id
		}
	}
	if list, ok := args["run_ids"].([]any); ok {
		ids := make([]any, len(list))
		for i, v := range list {
			id, x := named(v)
			if ids[i] = id; x != nil {
				other["run_ids"] = ids
			}
		}
	}
	if err != nil || len(other) == 0 {
		return c, w, err
	}
	args = maps.Clone(args)
	maps.Copy(args, other)
	c, err = with(c, args)
	return c, w, err
}

// with is a call with other arguments.
func with(c gate.Call, args map[string]any) (gate.Call, error) {
	raw, err := plan.Marshal(args)
	c.Args, c.Stored, c.Value = raw, raw, args
	return c, err
}

// aliased says in the answer to a look which id was asked for.
func aliased(out any, id string) any {
	switch a := out.(type) {
	case run.GetAnswer:
		a.Alias = id
		return a
	case run.CollectAnswer:
		a.Alias = id
		return a
	}
	return out
}

// ofWaiting answers a call about a run that waits, or that ended before it started.
func (g *Gateway) ofWaiting(ctx context.Context, c gate.Call, w ledger.WaitingRun, op string, dry bool, h gate.Handler) (any, error) {
	var a RunArgs
	switch op {
	case "slurm.job.get", "slurm.job.collect":
		if err := c.Into(&a); err != nil {
			return nil, err
		}
		return g.lookAtWaiting(ctx, c, w, a, op, h)
	case "run.show":
		return g.showWaiting(ctx, c, w)
	case "run.events", "run.notify":
		return h(ctx, c)
	case "slurm.job.cancel", "slurm.job.retry":
		if err := c.Into(&a); err != nil {
			return nil, err
		}
		if err := g.mayActOn(ctx, c, run.Run{ID: w.ID, ProjectID: w.ProjectID, ExecutedAs: w.ExecutedAs, Site: g.Site.Name}); err != nil {
			return nil, err
		}
		switch {
		case dry:
			return g.waitingOutline(ctx, w)
		case op == "slurm.job.cancel":
			return g.cancelWaiting(ctx, c, w, a)
		}
		return g.retryWaiting(ctx, c, w, a)
	}
	return nil, notStarted(w)
}

// notStarted is the error of a call about the job of a run that has none.
func notStarted(w ledger.WaitingRun) error {
	code, msg := string(run.WaitingForInputs), w.ID+" waits for outputs of other runs; it has no job yet"
	if w.State != ledger.WaitingOn {
		code, msg = "never_started", fmt.Sprintf("%s is %s; it never had a job", w.ID, w.State)
	}
	return fault.New(fault.Conflict, code, msg).WithSteps(fault.Do("slurm.job.get", "run_id", w.ID))
}

// RunEvents lists at most limit events of a run with a number above after, oldest first, and reports whether no others will come by
// themselves. A run that waited has its own, and those of the run that it became.
func (g *Gateway) RunEvents(ctx context.Context, id string, after int64, limit int) (events []ledger.Entry, over bool, err error) {
	w, err := g.Ledger.Waiting(ctx, id)
	started := w.State == ledger.WaitingStarted
	switch {
	case err == nil && started:
		id = w.Became
	case err == nil:
		events, err = g.Ledger.EventsAfter(ctx, id, after, limit)
		return events, w.State != ledger.WaitingOn && len(events) < limit, err
	case !fault.Is(err, fault.NotFound):
		return nil, false, err
	}
	v, err := g.Ledger.View(ctx, id) // before its events: none that follow are missed
	if err == nil {
		events, err = g.Ledger.EventsAfter(ctx, id, after, limit)
	}
	if err == nil && started {
		var own []ledger.Entry
		own, err = g.Ledger.EventsAfter(ctx, w.ID, after, limit)
		events = append(own, events...)
		slices.SortFunc(events, func(a, b ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
		events = events[:min(len(events), limit)]
	}
	return events, v.Run.State.Terminal() && len(events) < limit, err
}

func waitingState(w ledger.WaitingRun) run.State {
	switch w.State {
	case ledger.WaitingFailed:
		return run.Failed
	case ledger.WaitingCancelled:
		return run.Cancelled
	}
	return run.Queued
}

func waitingPhase(w ledger.WaitingRun) run.Phase {
	if w.State == ledger.WaitingOn {
		return run.WaitingForInputs
	}
	return run.Done
}

// sourcesText says what a run waits for.
func sourcesText(list []ledger.WaitingSource) string {
	var parts []string
	for _, s := range list {
		how := string(s.State)
		if s.Phase == run.WaitingForInputs {
			how = "waits itself"
		}
		parts = append(parts, fmt.Sprintf("%s of %s (%s)", s.Role, s.RunID, how))
		if len(parts) == 5 && len(list) > 5 {
			parts = append(parts, fmt.Sprintf("%d more", len(list)-5))
			break
		}
	}
	return strings.Join(parts, ", ")
}

// waitingText is the reason of a run that waits, or why it ended.
func (g *Gateway) waitingText(w ledger.WaitingRun, of []ledger.WaitingSource) string {
	switch {
	case w.State == ledger.WaitingOn && w.Message != "":
		return string(run.WaitingForInputs) + ": the inputs are there, and the run cannot start for now: " + w.Message
	case w.State == ledger.WaitingOn:
		return string(run.WaitingForInputs) + ": " + sourcesText(of)
	case w.Message == "":
		return w.Code
	}
	return w.Code + ": " + w.Message
}

func sourcesOf(list []ledger.WaitingSource) (out []run.WaitsFor) {
	for _, s := range list {
		out = append(out, run.WaitsFor{RunID: s.RunID, Role: s.Role, State: s.State, Phase: s.Phase})
	}
	return out
}

func waitingSteps(w ledger.WaitingRun, of []ledger.WaitingSource) []fault.Step {
	if w.State == ledger.WaitingOn {
		steps := []fault.Step{fault.Do("slurm.job.collect", "run_id", w.ID, "wait_seconds", run.LongWait),
			fault.Do("slurm.job.cancel", "run_id", w.ID)}
		if id := approvalNamed.FindString(w.Message); w.Code == gate.ConsentRequired && id != "" {
			steps = append([]fault.Step{fault.Do("approval.answer", "approval_id", id)}, steps...)
		}
		return steps
	}
	for _, s := range of {
		if s.Broken() {
			return []fault.Step{fault.Do("slurm.job.retry", "run_id", s.RunID, "after_attempt", s.Attempt),
				fault.Do("slurm.job.retry", "run_id", w.ID, "after_attempt", w.AttemptN)}
		}
	}
	return []fault.Step{fault.Do("slurm.job.retry", "run_id", w.ID, "after_attempt", w.AttemptN)}
}

// approvalNamed finds the request for approval in the reason of a run that cannot start without one.
var approvalNamed = regexp.MustCompile(`apr_[A-Z2-7]{26}`)

// waitingWarnings say what will keep a run from starting when its inputs are there.
func (g *Gateway) waitingWarnings(w ledger.WaitingRun) []string {
	if w.State != ledger.WaitingOn || w.Code != "" || w.ApprovalID != "" || !g.Policy.NeedsConsent(w.ToolName) {
		return []string{}
	}
	return []string{"each run of " + w.ToolID + " needs a person's approval, which is requested when the inputs are there"}
}

func waitingPoll(w ledger.WaitingRun) *int {
	if w.State != ledger.WaitingOn {
		return nil
	}
	return new(min(60, max(2, int(time.Since(w.UpdatedAt).Seconds()/4))))
}

// waitingSubmitted is the answer to the submit of a run that waits.
func (g *Gateway) waitingSubmitted(ctx context.Context, c gate.Call, w ledger.WaitingRun, replayed bool) (run.SubmitAnswer, error) {
	of, err := g.Ledger.WaitingSources(ctx, w.ID)
	reason := g.waitingText(w, of)
	return run.SubmitAnswer{RunID: w.ID, ProvenanceRunID: w.ID, ExecutedAs: w.ExecutedAs, State: waitingState(w), Phase: waitingPhase(w),
		Attempt: w.AttemptN, Reason: g.hide(c, &reason), Replayed: replayed, PollAfterSeconds: waitingPoll(w), EquivalentRuns: []string{},
		WaitsFor: sourcesOf(of), Warnings: g.waitingWarnings(w), NextSteps: waitingSteps(w, of)}, err
}

func (g *Gateway) waitingOutline(ctx context.Context, w ledger.WaitingRun) (run.GetState, error) {
	of, err := g.Ledger.WaitingSources(ctx, w.ID)
	return run.GetState{RunID: w.ID, State: waitingState(w), Phase: waitingPhase(w), Attempt: w.AttemptN, Reason: g.waitingText(w, of),
		NextSteps: waitingSteps(w, of)}, err
}

// lookAtWaiting is a get or a collect of a run that waits: up to the time asked for, until it has started, and from then on of that run.
func (g *Gateway) lookAtWaiting(ctx context.Context, c gate.Call, w ledger.WaitingRun, a RunArgs, op string, h gate.Handler) (any, error) {
	began := time.Now()
	w, err := g.awaitWaiting(ctx, w, a.wait())
	if err != nil {
		return nil, err
	}
	if w.State == ledger.WaitingStarted {
		args := map[string]any{"run_id": w.Became}
		if left := a.WaitSeconds - int(time.Since(began).Seconds()); left > 0 {
			args["wait_seconds"] = float64(left) // as [plan.Doc] has numbers
		}
		if c, err = with(c, args); err != nil {
			return nil, err
		}
		out, err := h(ctx, c)
		return aliased(out, w.ID), err
	}
	of, err := g.Ledger.WaitingSources(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	seq, err := g.Ledger.Seq(ctx, w.ID)
	if err != nil {
		return nil, err
	}
	both := run.RunAnswer{TargetRunID: w.ID, State: waitingState(w), Attempt: w.AttemptN, ArtifactsByRole: map[string]string{},
		WaitsFor: sourcesOf(of), PollAfterSeconds: waitingPoll(w), Warnings: g.waitingWarnings(w), NextSteps: waitingSteps(w, of)}
	both.ProvenanceRunID, err = g.provenance(ctx, c, map[string]any{"run_id": w.ID, "ledger_seq": seq, "waits_for": both.WaitsFor})
	if op == "slurm.job.collect" {
		return run.CollectAnswer{RunAnswer: both, Ready: both.State.Terminal()}, err
	}
	reason := g.waitingText(w, of)
	return run.GetAnswer{RunAnswer: both, ExecutedAs: w.ExecutedAs, Phase: waitingPhase(w), Reason: g.hide(c, &reason)}, err
}

// awaitWaiting waits until a run does not wait any more, at most for a while.
func (g *Gateway) awaitWaiting(ctx context.Context, w ledger.WaitingRun, most time.Duration) (ledger.WaitingRun, error) {
	if most <= 0 || w.State != ledger.WaitingOn {
		return w, nil
	}
	resume, ok := gate.Wait(ctx)
	if !ok {
		return w, fault.New(fault.Transport, "too_many_waits", "too many of your calls wait already").WithNext("repeat it without wait_seconds").
			WithRetry(10)
	}
	defer resume()
	for until := time.Now().Add(most); w.State == ledger.WaitingOn && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return w, nil // what is known is an answer
		case <-time.After(min(waitTurn/2, time.Until(until))):
		}
		var err error
		if w, err = g.Ledger.Waiting(ctx, w.ID); err != nil {
			return w, err
		}
	}
	return w, nil
}

func (g *Gateway) showWaiting(ctx context.Context, c gate.Call, w ledger.WaitingRun) (s RunStory, err error) {
	of, err := g.Ledger.WaitingSources(ctx, w.ID)
	if err != nil {
		return s, err
	}
	events, err := g.Ledger.Events(ctx, w.ID)
	if err != nil {
		return s, err
	}
	reason := w.Code
	if w.State == ledger.WaitingOn {
		reason = string(run.WaitingForInputs)
	}
	detail := strings.TrimPrefix(strings.TrimPrefix(g.waitingText(w, of), reason), ": ")
	s = RunStory{RunID: w.ID, ToolID: w.ToolID, ToolVersion: w.ToolVersion, ContractVersion: w.Contract, ProjectID: w.ProjectID,
		ExecutedAs: w.ExecutedAs, Principal: known(w.Principal.Name), PrincipalID: known(w.Principal.ID), AskedAlso: []AskerDoc{},
		PolicyHash: w.PolicyHash, ParamsHash: w.ParamsHash, PlanHash: plan.Identity{ToolName: w.ToolName, ContractVersion: w.Contract,
			ParamsHash: w.ParamsHash}.PlanHash(), State: waitingState(w), Phase: waitingPhase(w), Reason: reason, Detail: *g.hide(c, &detail),
		Attempt: w.AttemptN, Usage: json.RawMessage("null"), Binds: []plan.Bind{}, Attempts: []AttemptDoc{}, CreatedAt: w.CreatedAt,
		FinishedAt: w.FinishedAt, Params: w.Params, Inputs: []ArtifactDoc{}, Outputs: []ArtifactDoc{}, Sends: []SendDoc{}, Events: events,
		Warnings: g.waitingWarnings(w), NextSteps: waitingSteps(w, of), WaitsFor: sourcesOf(of)}
	s.ProvenanceRunID, err = g.provenance(ctx, c, map[string]any{"run_id": w.ID, "events": len(events), "waits_for": s.WaitsFor})
	return s, err
}
