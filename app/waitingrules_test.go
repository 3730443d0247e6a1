package app

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// asked waits until a run waits for a person's approval, and returns the run and the request.
func (g *Gateway) asked(t *testing.T, runID string) (run.GetAnswer, gate.Approval) {
	t.Helper()
	await(t, func() (bool, string) {
		v := g.waiting(t, runID)
		if !v.Waits() {
			t.Fatalf("waiting run %s is %s, want it to wait", runID, v.Run.State)
		}
		return v.Waiting.Code != "", fmt.Sprintf("waiting run %s asks for no approval", runID)
	})
	var got run.GetAnswer
	g.does(t, "slurm.job.get", map[string]any{"run_id": runID}, &got)
	a, err := g.Ledger.Approval(t.Context(), regexp.MustCompile(`apr_[A-Z2-7]{26}`).FindString(*got.Reason))
	if err != nil {
		t.Fatalf("Approval of %q: %v", *got.Reason, err)
	}
	return got, a
}

// A tool that needs a person's approval waits for its input first, and then asks, for the call with the artifact. The
// answer starts the run immediately, or ends it; no run starts without an answer.
//
// proves MANY-04
func TestApprovalOfAWaitingRun(t *testing.T) {
	g := chainGateway(t, "consent: {tools: [b_two], request_expires_seconds: 3600}\n")
	g.StartLoop(t.Context())
	defer g.StopLoop()
	id := g.reads(t, 1)[0]
	var one, two, three, other run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id}, &one)
	g.does(t, "b.two", map[string]any{"x": one.RunID + ":out"}, &two)
	g.does(t, "b.two", map[string]any{"x": one.RunID + ":out", "n": 2}, &other)
	g.does(t, "c.three", map[string]any{"x": two.RunID + ":out"}, &three)
	if two.Phase != run.WaitingForInputs || len(two.Warnings) != 1 || !strings.Contains(two.Warnings[0], "needs a person's approval") {
		t.Fatalf("b.two: phase %s, warnings %q; want it waiting with a warning of the approval", two.Phase, two.Warnings)
	}
	if list, total, _, err := g.Ledger.Approvals(t.Context(), nil, false); err != nil || total != 0 {
		t.Errorf("asked before the input is there: %+v %v", list, err)
	}
	first := g.isOver(t, one.RunID, run.Succeeded)
	got, a := g.asked(t, two.RunID)
	if !strings.Contains(string(a.Payload), one.RunID+":out") || a.ToolID != "b.two" || a.Covers.ParamsHash == "" || len(got.NextSteps) == 0 ||
		got.NextSteps[0].Verb != "approval.answer" || got.NextSteps[0].Args["approval_id"] != a.ID {
		t.Errorf("the request %s is for %s, the next steps are %v; want b.two and approval.answer", a.ID, a.ToolID, got.NextSteps)
	}
	if !strings.Contains(*got.Reason, "the inputs are there, and the run cannot start for now: this call of b.two needs a person's approval") {
		t.Error(*got.Reason)
	}
	boss := gate.Process().Principal
	if code := g.answers(t, boss, a, true); code != "" {
		t.Fatal(code)
	}
	w := g.became(t, two.RunID) // long before the request would be repeated
	_, b := g.asked(t, other.RunID)
	if code := g.answers(t, boss, b, false); code != "" {
		t.Fatal(code)
	}
	if w := g.endedWaiting(t, other.RunID); w.Reason != "consent_denied" {
		t.Errorf("the run ended because of %s, want consent_denied", w.Reason)
	}
	g.isOver(t, w, run.Succeeded)
	g.became(t, three.RunID)

	// The input arrives between the check whether an approval is needed and the call.
	tool := g.toolOf(t, "b.two")
	raw, err := plan.Marshal(map[string]any{"x": first})
	must(t, err)
	n := len(g.runIDs(t))
	_, err = tool.Handle(t.Context(), gate.Call{Caller: lab(), Needs: tool.Capabilities, Request: gate.NewRequest("b.two", "1.0.0", raw),
		Args: raw, Stored: raw, Value: map[string]any{"x": first}, Unapproved: true})
	if fault.CodeOf(err) != "input_arrived" || len(g.runIDs(t)) != n {
		t.Error(err)
	}
}

// Runs that cannot start do not hide one that can, although they came first and exceed the number that one query
// returns.
//
// proves MANY-04
func TestNobodyWaitsBehindThePutBack(t *testing.T) {
	g := chainGateway(t, "consent: {tools: [b_two]}\n")
	id := g.reads(t, 1)[0]
	var one, last run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id}, &one)
	for n := range 2*waitAtOnce + 1 {
		g.does(t, "b.two", map[string]any{"x": one.RunID + ":out", "n": n}, new(run.SubmitAnswer))
	}
	g.does(t, "c.three", map[string]any{"x": one.RunID + ":out"}, &last)
	g.isOver(t, one.RunID, run.Succeeded)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.became(t, last.RunID)
}

// A notice for a waiting run reports the run that it becomes, or that there will be none; its events and its archive
// are found by both ids.
//
// proves MANY-04 MANY-05
func TestNamesOfARunThatWaited(t *testing.T) {
	g := chainGateway(t)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	id := g.reads(t, 2)
	var one, two, lost, never run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": id[0]}, &one)
	g.does(t, "b.two", map[string]any{"x": one.RunID + ":out"}, &two)
	g.does(t, "a.one", map[string]any{"x": id[1]}, &lost)
	g.does(t, "b.two", map[string]any{"x": lost.RunID + ":out"}, &never)
	var told NotifyAnswer
	notices := func(runID, state string) {
		t.Helper()
		g.does(t, "run.notify", map[string]any{"run_id": runID}, &told)
		if len(told.Notices) != 1 || told.Notices[0].State != state {
			t.Errorf("the notices of %s are %v, want one that is %s", runID, told.Notices, state)
		}
	}
	for _, r := range []string{two.RunID, never.RunID} {
		g.does(t, "run.notify", map[string]any{"run_id": r, "url": "https://hooks.example.org/x"}, &told)
		notices(r, "waiting")
	}
	types := func(runID string, over bool) (out []string) {
		t.Helper()
		list, is, err := g.RunEvents(t.Context(), runID, 0, 100)
		if err != nil || is != over {
			t.Errorf("over: %v %v", is, err)
		}
		for _, e := range list {
			out = append(out, e.Type)
		}
		return out
	}
	if got := types(two.RunID, false); !slices.Equal(got, []string{"run.waiting"}) {
		t.Error(got)
	}
	for _, tool := range []string{"run.export", "run.receipt", "slurm.job.logs"} {
		if e := g.callBatch(t, tool, map[string]any{"run_id": two.RunID}, new(any)); e == nil || e.Code != "waiting_for_inputs" {
			t.Errorf("%s ended with %+v, want waiting_for_inputs", tool, e)
		}
	}
	if e := g.callBatch(t, "run.diff", map[string]any{"a": one.RunID, "b": two.RunID}, new(any)); e == nil || e.Code != "waiting_for_inputs" {
		t.Errorf("the call ended with %+v, want the code waiting_for_inputs", e)
	}

	g.isOver(t, one.RunID, run.Succeeded)
	w := g.became(t, two.RunID)
	notices(two.RunID, "waiting")
	g.isOver(t, w, run.Succeeded)
	notices(two.RunID, "due")
	notices(w, "due")
	if got := types(two.RunID, true); len(got) < 4 || got[0] != "run.waiting" || !slices.Contains(got, "run.started_as") ||
		got[len(got)-1] != "run.over" {
		t.Error(got)
	}
	list, over, err := g.RunEvents(t.Context(), two.RunID, 0, 2)
	if err != nil || over || len(list) != 2 {
		t.Errorf("RunEvents: %d events, ended %t, %v; want 2 and more to come", len(list), over, err)
	}
	var receipts [2]ReceiptAnswer
	for i, r := range []string{two.RunID, w} {
		g.does(t, "run.receipt", map[string]any{"run_id": r}, &receipts[i])
		if x, err := g.Export(t.Context(), ExportArgs{RunID: r}); err != nil || x.Run().RunID != w {
			t.Errorf("%s: %v", r, err)
		}
	}
	if receipts[0].RunID != w || string(receipts[0].Envelope) != string(receipts[1].Envelope) {
		t.Errorf("the receipts are of %s and %s, want the same one of %s", receipts[0].RunID, receipts[1].RunID, w)
	}

	g.isOver(t, lost.RunID, run.Failed)
	g.endedWaiting(t, never.RunID)
	notices(never.RunID, "due")
	if got := types(never.RunID, true); !slices.Equal(got, []string{"run.waiting", "run.failed"}) {
		t.Error(got)
	}
	for _, tool := range []string{"run.export", "run.receipt"} {
		if e := g.callBatch(t, tool, map[string]any{"run_id": never.RunID}, new(any)); e == nil || e.Code != "never_started" {
			t.Errorf("%s ended with %+v, want never_started", tool, e)
		}
	}
}
