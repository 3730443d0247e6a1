package run_test

import (
	"context"
	"encoding/json"
	"testing"

	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// waitsFor stores a run that waits for an output of another.
func (w *world) waitsFor(o run.Order, source string) run.View {
	w.t.Helper()
	canonical, id, err := o.Identity()
	if err != nil {
		w.t.Fatal(err)
	}
	v, created, err := w.ledger.AddWaiting(context.Background(), ledger.Waits{For: []plan.Promise{{RunID: source, Role: "out"}}, Most: 10,
		Policy: o.Policy, Params: canonical, Args: json.RawMessage(`{}`), Caller: json.RawMessage(`{}`), Asking: o.Asking,
		Run: run.Run{ID: id.RunID(), ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion, ContractVersion: o.ContractVersion,
			PolicyHash: o.PolicyHash, ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(), ProjectID: o.Params.ProjectID,
			Principal: o.Asking.Principal}})
	if err != nil || !created {
		w.t.Fatalf("AddWaiting = run %s, created %t, %v; want a new one", v.Run.ID, created, err)
	}
	return v
}

// startsMeanwhile is a store in which a waiting run starts just before its cancel or retry is written.
type startsMeanwhile struct {
	run.Store
	start func()
}

func (s startsMeanwhile) Withdraw(ctx context.Context, w run.Write, by run.Withdrawal) (run.View, []run.Asker, error) {
	if w.From != nil && w.From.Waiting != nil {
		s.start()
	}
	return s.Store.Withdraw(ctx, w, by)
}

// The verbs work on a run that waits for inputs, except those about its job; a cancel ends it immediately, and a retry
// makes it wait again. A run that starts while a cancel is written is cancelled on its site.
//
// proves MANY-04
func TestVerbsOfAWaitingRun(t *testing.T) {
	bubble(t, func(t *testing.T, a *world) {
		b := a.twin()
		var start func()
		first := a.site("a", open)
		first.Parts.Store = startsMeanwhile{first.Parts.Store, func() {
			if start != nil {
				start()
			}
		}}
		s, _ := gateway(t, first, b.site("b", open))
		x := submit(t, s, a, on("b", false))
		id := a.waitsFor(order(cpus(7)), x.RunID).Run.ID

		if g, err := s.Get(t.Context(), id, 0); err != nil || g.Phase != run.WaitingForInputs || len(g.WaitsFor) != 1 ||
			g.WaitsFor[0].RunID != x.RunID || len(g.Warnings) != 0 || len(g.NextSteps) != 2 {
			t.Errorf("Get of a run that waits = %+v, %v; want it waiting for %s, with two next steps", g, err, x.RunID)
		}
		_, err := s.Logs(t.Context(), id, "stdout", run.LogPart{Limit: 100})
		if fault.CodeOf(err) != "waiting_for_inputs" {
			t.Errorf("Logs of a run that waits: %v, want waiting_for_inputs", err)
		}
		_, err = s.Retry(t.Context(), id, run.RetryOrder{After: 1})
		if fault.CodeOf(err) != "run_active" {
			t.Errorf("Retry of a run that waits: %v, want run_active", err)
		}
		for _, again := range []bool{false, true} {
			if c, err := s.Cancel(t.Context(), id, "", run.Withdrawal{All: true}); err != nil || c.State != run.Cancelled || c.Executed != "never" {
				t.Errorf("Cancel (again: %t) of a run that waits = %+v, %v; want it cancelled, never executed", again, c, err)
			}
		}
		_, err = s.Logs(t.Context(), id, "stdout", run.LogPart{Limit: 100})
		if fault.CodeOf(err) != "never_started" {
			t.Errorf("Logs of a run that was cancelled while it waited: %v, want never_started", err)
		}
		_, err = s.Retry(t.Context(), id, run.RetryOrder{After: 2})
		if fault.CodeOf(err) != "no_such_attempt" {
			t.Errorf("Retry after attempt 2 of a run that waited once: %v, want no_such_attempt", err)
		}
		for _, replayed := range []bool{false, true} {
			if r, err := s.Retry(t.Context(), id, run.RetryOrder{After: 1}); err != nil || r.Phase != run.WaitingForInputs || r.Attempt != 2 ||
				r.Replayed != replayed {
				t.Errorf("Retry = %+v, %v; want it waiting at attempt 2, replayed: %t", r, err, replayed)
			}
		}

		start = func() {
			start = nil
			if err := a.ledger.StartWaiting(t.Context(), run.WaitRef{RunID: id, Attempt: 2}, x.RunID); err != nil {
				t.Error(err)
			}
		}
		a.until(x.RunID, in(run.Pending))
		if c, err := s.Cancel(t.Context(), id, "", run.Withdrawal{All: true}); fault.CodeOf(err) != run.Started {
			t.Errorf("Cancel of a run that starts meanwhile = %+v, %v; want run_started, for what it became may be others' too", c, err)
		}
		if g, err := s.Get(t.Context(), id, 0); err != nil || g.TargetRunID != x.RunID || g.Site != "b" {
			t.Errorf("Get by the alias = run %s on %s, %v; want %s on b", g.TargetRunID, g.Site, err, x.RunID)
		}
	})
}
