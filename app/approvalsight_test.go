package app

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// The rows of a batch that are retried are attempts of its tool: batch.retry needs an approval for exactly those rows
// and for what each run executes.
//
// proves HTC-07 MANY-01
func TestBatchRetryNeedsTheToolsApproval(t *testing.T) {
	g := chainGateway(t, "consent: {tools: [b_two], request_expires_seconds: 3600}\n")
	g.StartLoop(t.Context())
	defer g.StopLoop()
	x := g.made(t)
	sheet := map[string]any{"tool_id": "b.two", "name": "all", "sheet": fmt.Sprintf("sample,x,n\nA,%s,1\nB,%s,2\nC,%s,3\n", x, x, x)}
	g.approved(t, lab(), "batch.run", sheet)
	var began BatchStarted
	g.does(t, "batch.run", sheet, &began)
	g.settle(t)
	var rows BatchRowsAnswer
	g.does(t, "batch.rows", map[string]any{"batch": "all"}, &rows)
	var ids []string
	for _, r := range rows.Rows {
		ids = append(ids, *r.RunID)
	}
	retry := map[string]any{"batch": "all"}
	var none BatchChanged
	if g.does(t, "batch.retry", retry, &none); none.Changed != 0 || len(g.asks(t)) != 0 {
		t.Errorf("retry of nothing: %d rows changed, %d requests; want none", none.Changed, len(g.asks(t)))
	}
	g.isOver(t, ids[0], run.Failed)
	for by, who := range faces() {
		if code := g.outcome(t, who, "batch.retry", retry, nil); code != gate.ConsentRequired {
			t.Fatalf("%s: outcome %q; want %s", by, code, gate.ConsentRequired)
		}
	}
	one := map[string]any{"run_id": ids[0], "after_attempt": 1}
	if code := g.outcome(t, lab(), "slurm.job.retry", one, nil); code != gate.ConsentRequired {
		t.Errorf("retry of a run of the batch: outcome %q; want %s", code, gate.ConsentRequired)
	}
	first := g.asks(t)[1]
	if first.ToolID != "batch.retry" || first.Covers.Tool != "b_two" || first.Covers.ParamsHash == "" || len(first.Covers.Kinds) != 1 {
		t.Errorf("the request is for %s and covers %+v; want batch.retry of b_two", first.ToolID, first.Covers)
	}
	var list ApprovalList
	boss := gate.Caller{Principal: gate.Process().Principal, Transport: gate.Local}
	if code := g.outcome(t, boss, "approval.list", map[string]any{}, &list); code != "" {
		t.Fatal(code)
	}
	for _, d := range list.Approvals {
		r := d.Shows.Retries
		if len(r) != 1 || r[0].RunID != ids[0] || r[0].Attempt != 1 || !strings.Contains(string(r[0].Params), `"seqkit"`) ||
			d.ToolID == "batch.retry" && r[0].Sample != "A" {
			t.Errorf("the request of %s shows %+v; want attempt 1 of %s with its command line", d.ToolID, r, ids[0])
		}
	}
	g.isOver(t, ids[1], run.Failed) // after the approval was asked for
	if code := g.answers(t, gate.Process().Principal, first, true); code != "approval_void" {
		t.Errorf("approved, although another row failed since the request: %q", code)
	}
	if code := g.outcome(t, lab(), "batch.retry", retry, nil); code != gate.ConsentRequired {
		t.Errorf("another row failed since the request: outcome %q; want %s", code, gate.ConsentRequired)
	}
	both := g.asks(t)[0]
	if code := g.answers(t, gate.Process().Principal, both, true); code != "" {
		t.Fatal(code)
	}
	var done BatchChanged
	if g.does(t, "batch.retry", retry, &done); done.Changed != 2 {
		t.Errorf("%d rows are retried; want 2", done.Changed)
	}
	g.settle(t)
	if a, b, c := g.newestAttempt(t, ids[0]), g.newestAttempt(t, ids[1]), g.newestAttempt(t, ids[2]); a != 2 || b != 2 || c != 1 {
		t.Errorf("attempts %d, %d, %d; want 2, 2, 1", a, b, c)
	}
	g.isOver(t, ids[0], run.Failed)
	if code := g.outcome(t, lab(), "batch.retry", retry, nil); code != gate.ConsentRequired || g.newestAttempt(t, ids[0]) != 2 {
		t.Errorf("a second retry: outcome %q, attempt %d; want %s and attempt 2", code, g.newestAttempt(t, ids[0]), gate.ConsentRequired)
	}
	if strings.Contains(fmt.Sprint(g.asks(t)[0].Covers.Kinds), "sha256:") == false {
		t.Errorf("kinds %v; want hashes", g.asks(t)[0].Covers.Kinds)
	}
}

// The approver is shown all of a call: what a list has no room for, and what the arguments only refer to, comes with
// a code that the approval needs.
//
// proves HTC-07
func TestApproverSeesAll(t *testing.T) {
	g := chainGateway(t, "consent: {tools: [b_two], request_expires_seconds: 3600}\n")
	x := g.made(t)
	sheet := "sample,x,n\n"
	for i := range 120 {
		sheet += fmt.Sprintf("S%03d,%s,%d\n", i, x, i)
	}
	last := sheet[strings.LastIndex(strings.TrimSuffix(sheet, "\n"), "\n")+1:]
	stored, err := g.addBytes(t.Context(), run.Artifact{ProjectID: plan.ProjectID("demo"), Type: "CSV", Label: "s.csv", Source: "import"},
		[]byte(sheet))
	must(t, err)
	boss := gate.Caller{Principal: gate.Process().Principal, Transport: gate.Other}
	for _, args := range []map[string]any{{"tool_id": "b.two", "name": "text", "sheet": sheet},
		{"tool_id": "b.two", "name": "named", "sheet_artifact_id": stored.ID}} {
		if code := g.outcome(t, lab(), "batch.run", args, nil); code != gate.ConsentRequired {
			t.Fatalf("%v: outcome %q; want %s", args["name"], code, gate.ConsentRequired)
		}
		var list ApprovalList
		var shown ApprovalShown
		if code := g.outcome(t, boss, "approval.list", map[string]any{}, &list); code != "" || list.Approvals[0].Shows.Code != nil {
			t.Fatalf("%v: the list gives %q, code %v; want no code, because it does not show all", args["name"], code, list.Approvals[0].Shows.Code)
		}
		id := list.Approvals[0].ID
		answer := map[string]any{"approval_id": id, "approve": true}
		if code := g.outcome(t, boss, "approval.answer", answer, nil); code != "approval_unseen" {
			t.Errorf("%v: approved without having been shown all of it: %q", args["name"], code)
		}
		answer["seen"] = "000000000000"
		if code := g.outcome(t, boss, "approval.answer", answer, nil); code != "approval_unseen" {
			t.Errorf("%v: approved with another code: %q", args["name"], code)
		}
		if code := g.outcome(t, boss, "approval.show", map[string]any{"approval_id": id}, &shown); code != "" {
			t.Fatal(code)
		}
		if text := string(shown.Payload) + *cmp.Or(shown.Shows.Sheet, new(string)); !strings.Contains(text, strings.TrimSpace(last)) {
			t.Errorf("%v: the request is shown without its last row %q", args["name"], last)
		}
		if code := g.outcome(t, lab(), "approval.show", map[string]any{"approval_id": id}, nil); code != "capability_denied" {
			t.Errorf("%v: shown to a caller who may not approve: %q", args["name"], code)
		}
		answer["seen"] = *shown.Shows.Code
		if code := g.outcome(t, boss, "approval.answer", answer, nil); code != "" {
			t.Errorf("%v: approved with its code: %q", args["name"], code)
		}
		var began BatchStarted
		if code := g.outcome(t, lab(), "batch.run", args, &began); code != "" || began.Rows != 120 {
			t.Errorf("%v: outcome %q, %d rows; want 120", args["name"], code, began.Rows)
		}
	}
}
