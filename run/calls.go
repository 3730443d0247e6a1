package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// workerCalls makes calls of service workers. It uses an engine for what every run needs: the ledger, the waiters, the
// log. The engine is never started and has no ports to a cluster.
type workerCalls struct {
	*Engine
	outgoing outgoing
}

// ServeWorkers lets the sites make calls of service workers. c and p are those of all sites, except Config.Site;
// p.Index is that of [WorkerSite]. Call it once, before Start.
func (s *Sites) ServeWorkers(c Config, p Parts) {
	c.Site, p.Workspace = WorkerSite, noWorkspace{}
	m := &member{Engine: NewEngine(c, p), name: WorkerSite}
	m.calls = &workerCalls{Engine: m.Engine}
	s.workers, s.named[WorkerSite] = m.calls, m
}

// StopWorkers ends the wait for answers of workers: a call that was sent and not answered ends as outcome_unknown. It
// returns when the ledger has these ends.
func (s *Sites) StopWorkers() {
	if s.workers != nil {
		s.workers.outgoing.stop()
	}
}

// CallWorker creates the run of a call and sends it, or finds the run. replayed: nothing was sent for this call, and
// the view is of an earlier one, which may still be running. An error means that no run was created, or that its end
// could not be stored.
func (s *Sites) CallWorker(ctx context.Context, c WorkerCall) (v View, replayed bool, err error) {
	if s.workers == nil {
		return View{}, false, fault.New(fault.Internal, "no_workers", "this gateway calls no service workers")
	}
	for range 20 {
		if v, replayed, err = s.workers.call(ctx, c); !stale(err) {
			return v, replayed, err
		}
	}
	return v, replayed, fault.New(fault.Transport, "busy", "the run keeps changing").WithNext("repeat the call").WithRetry(1)
}

// SupposeCall returns what [Sites.CallWorker] would do, without any effect: the identity, and the run that has it, nil
// if absent.
func (s *Sites) SupposeCall(ctx context.Context, o Order) (canonical json.RawMessage, id plan.Identity, there *View, err error) {
	canonical, id, err = o.Identity()
	if err != nil {
		return nil, id, nil, err
	}
	v, err := s.store.View(ctx, id.RunID())
	switch {
	case fault.Is(err, fault.NotFound):
		return canonical, id, nil, nil
	case err != nil:
		return nil, id, nil, err
	}
	return canonical, id, &v, nil
}

func (w *workerCalls) call(ctx context.Context, c WorkerCall) (View, bool, error) {
	canonical, id, err := c.Identity()
	if err != nil {
		return View{}, false, err
	}
	send, done, err := w.outgoing.begin(ctx, id.RunID(), c.Deadline.Add(answerGrace))
	if err != nil {
		return View{}, false, err
	}
	defer done()
	v, err := w.Store.AskFor(ctx, id.RunID(), c.Asking, c.Row)
	if fault.Is(err, fault.NotFound) {
		var created bool
		if v, created, err = w.insertCall(ctx, c.Order, id, canonical); err == nil && created {
			v, err = w.carry(send, v, c)
			return v, false, err
		}
	}
	if err != nil {
		return v, false, err
	}
	if !v.Run.State.Terminal() {
		v, err = w.waitFor(ctx, v.Run.ID, time.Until(c.Deadline), func(v View) bool { return v.Run.State.Terminal() })
		return v, true, err
	}
	if again, err := c.again(v); err != nil || !again {
		return v, true, err
	}
	if v, err = w.reopen(ctx, v); err == nil {
		v, err = w.carry(send, v, c)
	}
	return v, false, err
}

// again reports whether a call whose run has ended is sent again, as another attempt: a call of a deterministic tool
// that did not succeed, and a call with its own id that may succeed when repeated. An interrupted call that may have
// reached the worker is not sent again.
func (c WorkerCall) again(v View) (bool, error) {
	if v.Run.State == Succeeded {
		return false, nil
	}
	end, err := EndOf(v)
	if err != nil || end.Error == nil {
		return false, err
	}
	if !end.Error.Sent {
		return true, nil
	}
	if c.Interrupted {
		return end.Error.Retryable, nil
	}
	return c.Params.Worker.ID == "" || end.Error.Retryable, nil
}

// insertCall stores the run as sent.
func (w *workerCalls) insertCall(ctx context.Context, o Order, id plan.Identity, canonical []byte) (View, bool, error) {
	now := w.Now()
	r := Run{ID: id.RunID(), ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion, ContractVersion: o.ContractVersion,
		PackHash: o.PackHash, PolicyHash: o.PolicyHash, ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(), ProjectID: o.Params.ProjectID,
		Site: WorkerSite, Actor: o.Actor, Principal: o.Asking.Principal, AttemptN: 1, Warnings: o.Warnings, CreatedAt: now, UpdatedAt: now}
	r.enter(InJob, "", "")
	if err := w.Room(ctx, ShareOf(r)); err != nil {
		return View{}, false, err
	}
	result, err := plan.Marshal(w.submitAnswer(View{Run: r}, false, nil))
	if err != nil {
		return View{}, false, err
	}
	r.ResultJSON = result
	v, created, err := w.Store.Insert(ctx, New{Run: r, Params: canonical, Policy: o.Policy, Pack: o.Pack, Asking: o.asked(),
		Sought: Sought{RunID: r.ID, PlanHash: r.PlanHash, PolicyHash: r.PolicyHash},
		Event: Event{Type: "run.created", Data: map[string]any{"tool_id": o.ToolID, "params_hash": r.ParamsHash, "policy_hash": r.PolicyHash,
			"plan_hash": r.PlanHash, "actor": o.Actor, "principal": o.Asking.Name, "principal_id": o.Asking.ID, "sent": "worker"}}})
	if err == nil && created {
		w.logChange("run.created", v, time.Time{})
	}
	return v, created, err
}

// reopen stores another attempt of a call, as sent.
func (w *workerCalls) reopen(ctx context.Context, v View) (View, error) {
	now := w.Now()
	r := v.Run
	r.enter(InJob, "", "")
	r.AttemptN, r.FinishedAt, r.ExitCode, r.CancelAt, r.CancelReason = r.AttemptN+1, nil, nil, nil, ""
	return w.apply(ctx, Write{Run: r, Attempts: []Attempt{{RunID: r.ID, N: r.AttemptN, CreatedAt: now, StartedAt: &now}},
		Event: Event{Type: "run.new_attempt", Data: map[string]any{"attempt": r.AttemptN, "detail": "called again", "sent": "worker"}}})
}

// carry sends the call and stores its end. If the run was cancelled meanwhile, the cancel has ended it and the answer
// is dropped.
func (w *workerCalls) carry(send context.Context, v View, c WorkerCall) (View, error) {
	if context.Cause(send) == errCancelled { // before anything was sent
		return w.Store.View(context.WithoutCancel(send), v.Run.ID)
	}
	end := c.Send(send, v)
	if end.Error != nil && end.Error.Code == OutcomeUnknown && errors.Is(context.Cause(send), errStopping) {
		end.Error.Message = "the gateway stopped before the worker answered; it is unknown whether the worker finished"
	}
	ctx := context.WithoutCancel(send)
	ended, err := w.end(ctx, v, end)
	if stale(err) {
		return w.Store.View(ctx, v.Run.ID)
	}
	if err != nil {
		return v, fault.Wrap(fault.Unknown, "not_recorded",
			"the worker was called, but the end of its run "+v.Run.ID+" could not be stored", err).
			WithSteps(fault.Do("run.show", "run_id", v.Run.ID))
	}
	return ended, nil
}

// answerGrace is how long a call's connection stays open after the deadline, for an answer that reports the timeout.
const answerGrace = 2 * time.Second

// callEndings has the endings of attempts by the code of a call's error; every other code is the tool's own failure.
var callEndings = map[string]Ending{OutcomeUnknown: EndedUnanswered, string(EndedCancelled): EndedCancelled}

// end ends the run of a call.
func (w *workerCalls) end(ctx context.Context, v View, end CallEnd) (View, error) {
	write, err := w.ending(v, end)
	if err != nil {
		return v, err
	}
	return w.apply(ctx, write)
}

// ending returns the transition that ends the run of a call.
func (w *workerCalls) ending(v View, end CallEnd) (Write, error) {
	now := w.Now()
	r, a := v.Run, v.Attempt
	r.State, r.Phase, r.Reason, r.Detail, r.FinishedAt = Succeeded, Done, "", "", &now
	a.Ending, a.EndedAt = EndedOK, &now
	write := Write{From: &v}
	if e := end.Error; e != nil {
		e.Message = w.cfg.Secrets.Redact(e.Message)
		a.Ending = cmp.Or(callEndings[e.Code], EndedToolFailed)
		r.State, r.Reason, r.Detail = stateAfter(a.Ending, false), e.Code, e.Message
	} else {
		r.ExitCode = new(int)
		a.ExitCode = r.ExitCode
	}
	if end.Artifact != nil {
		write.Artifacts, write.Outputs = []Artifact{*end.Artifact}, []Link{{Role: OutputRole, ArtifactID: end.Artifact.ID}}
	}
	done := View{Run: r, Attempt: a}
	result, err := plan.Marshal(callResult{SubmitAnswer: w.submitAnswer(done, false, nil), ExitCode: r.ExitCode, CallEnd: end.stored(),
		FinishedAt: now.UTC()})
	if err != nil {
		return write, err
	}
	r.ResultJSON = result
	write.Run, write.Attempts = r, []Attempt{a}
	write.Event = Event{Type: "run." + string(r.State), Data: map[string]any{"attempt": a.N, "ending": a.Ending, "reason": r.Reason,
		"detail": r.Detail, "outputs": write.Outputs}}
	return write, nil
}

func (e CallEnd) stored() CallEnd {
	if len(e.Output) == 0 {
		e.Output = json.RawMessage("null")
	}
	return e
}

// sweep ends the calls of a gateway that died: it is unknown whether the workers finished them.
func (w *workerCalls) sweep(ctx context.Context) error {
	open, err := w.Index.Waiting(ctx, "", 0, InJob)
	if err != nil {
		return err
	}
	for _, o := range open {
		v, err := w.Store.View(ctx, o.RunID)
		if err == nil && !v.Run.State.Terminal() {
			_, err = w.end(ctx, v, CallEnd{Error: &CallError{Kind: fault.Unknown, Code: OutcomeUnknown, Sent: true,
				Message: "the gateway died before the worker answered; it is unknown whether the worker finished"}})
		}
		if err != nil && !stale(err) {
			return err
		}
	}
	return nil
}

// cancel ends a call immediately: the gateway no longer waits for its answer.
func (w *workerCalls) cancel(ctx context.Context, v View, why string, by Withdrawal) (View, []Asker, error) {
	now := w.Now()
	v.Run.CancelAt, v.Run.CancelReason = &now, cmp.Or(why, "cancelled on request")
	write, err := w.ending(v, CallEnd{Error: &CallError{Kind: fault.Canceled, Code: string(EndedCancelled), Sent: true,
		Message: v.Run.CancelReason + "; the gateway no longer waits for the worker, and it is unknown whether the worker finished"}})
	if err != nil {
		return v, nil, err
	}
	ended, held, err := w.withdraw(ctx, write, by)
	if err == nil && len(held) == 0 {
		w.outgoing.cancel(v.Run.ID)
	}
	return ended, held, err
}

// calledAgain returns the fault of verbs that would send a call again.
func calledAgain(r Run) error {
	return fault.New(fault.Conflict, "worker_call", "the run is a call of the service worker behind "+r.ToolID+
		", and a retry would send it a second time").WithNext("call " + r.ToolID + " again: that is another run").
		WithSteps(fault.Do("run.show", "run_id", r.ID))
}

// noWorkspace is the workspace of runs without files.
type noWorkspace struct{ Workspace }

func (noWorkspace) RemoveRun(context.Context, string, map[int]string, func() (bool, error)) (int64, error) {
	return 0, nil
}

func (noWorkspace) RunSize(context.Context, string) (int64, error) { return 0, nil }

func (noWorkspace) EachFile(context.Context, string, func(func() (io.ReadCloser, error)) (bool, error)) error {
	return nil
}

func (noWorkspace) RunDir(string) string { return "" }
