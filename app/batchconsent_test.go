package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"slurmgate/gate"
	"slurmgate/run"
)

// A batch, or a chain, of a tool that needs approval asks for one, bound to its rows and to what they start, and its
// runs need no other, including runs that wait. A change before a row starts is not covered, nor is any other call.
//
// proves MANY-01 HTC-07
func TestBatchApproval(t *testing.T) {
	g := chainGateway(t, "consent: {tools: [b_two], request_expires_seconds: 3600}\n")
	boss := gate.Process().Principal
	pending := func(want int) (list []gate.Approval) {
		t.Helper()
		list, n, _, err := g.Ledger.Approvals(t.Context(), nil, false)
		if err != nil || int(n) != want {
			t.Fatalf("%d requests, want %d: %+v %v", n, want, list, err)
		}
		return list
	}
	refused := func(tool string, args map[string]any, code string) {
		t.Helper()
		var none any
		if e := g.callBatch(t, tool, args, &none); e == nil || e.Code != code {
			t.Fatalf("%s ended with %+v, want %s", tool, e, code)
		}
	}
	ids := g.reads(t, 2)
	const steps = "steps:\n  - {name: s1, tool: a.one}\n  - {name: s2, tool: b.two, from: {x: s1.out}}\n"
	args := map[string]any{"steps": steps, "name": "all", "sheet": "sample,x,s2.n\nA," + ids[0] + ",5\nB," + ids[1] + ",\n"}
	refused("batch.run", args, gate.ConsentRequired)
	refused("batch.run", args, gate.ConsentRequired)
	a := pending(1)[0]
	if a.ToolID != "batch.run" || !strings.Contains(string(a.Payload), ids[1]) || len(a.Covers.Kinds) != 1 || a.Covers.Image != "seqkit" ||
		a.Covers.Resources.CPUs != 1 || a.Covers.ParamsHash == "" {
		t.Errorf("the request is for %s and covers %+v; want one kind of batch.run with 1 CPU of seqkit", a.ToolID, a.Covers)
	}
	if list := new(BatchList); len(g.batchNames(t, list)) != 0 {
		t.Errorf("a batch is stored before its approval: %v", list.Batches)
	}
	other := map[string]any{"steps": steps, "name": "all", "sheet": "sample,x,s2.n\nA," + ids[0] + ",6\nB," + ids[1] + ",\n"}
	if code := g.answers(t, boss, a, true); code != "" {
		t.Fatal(code)
	}
	refused("batch.run", other, gate.ConsentRequired) // other rows
	if code := g.answers(t, boss, pending(1)[0], false); code != "" {
		t.Fatal(code)
	}
	refused("batch.run", other, "consent_denied")
	var began, again BatchStarted
	g.does(t, "batch.run", args, &began)
	if g.does(t, "batch.run", args, &again); !again.Existed || began.Existed || began.Rows != 4 {
		t.Errorf("%+v %+v", began, again)
	}
	refused("batch.run", other, "batch_name_taken")
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.settle(t)
	rows := func(batch string) []BatchRowDoc {
		t.Helper()
		var out BatchRowsAnswer
		g.does(t, "batch.rows", map[string]any{"batch": batch}, &out)
		return out.Rows
	}
	var get run.GetAnswer
	if g.does(t, "slurm.job.get", map[string]any{"run_id": *rows("all.s2")[0].RunID}, &get); len(get.Warnings) != 0 {
		t.Errorf("it says that an approval will be asked for: %q", get.Warnings)
	}
	g.isOver(t, *rows("all.s1")[0].RunID, run.Succeeded)
	g.until(t, "all", func(s BatchStatusAnswer) bool { return s.Counts["queued"] == 2 && s.Counts["succeeded"] == 1 })
	pending(0)
	x := g.isOver(t, *rows("all.s2")[0].RunID, run.Succeeded)
	refused("b.two", map[string]any{"x": x, "n": 7}, gate.ConsentRequired) // not a run of the batch
	refused("b.two", map[string]any{"x": x, "n": 8}, gate.ConsentRequired)

	// The site has changed what the approval showed when the row starts.
	g.Site.Slurm.DefaultQOS = "long"
	g.isOver(t, *rows("all.s1")[1].RunID, run.Succeeded)
	g.until(t, "all", func(s BatchStatusAnswer) bool { return s.Counts["failed"] == 1 })
	if r := rows("all.s2")[1]; !strings.Contains(r.Reason, a.ID+" does not cover this run") {
		t.Errorf("%+v", r)
	}
	pending(2)

	// A batch of one tool, whose rows differ in resources; too many distinct coverages are refused.
	sheet := "sample,x,n,resources\n"
	for i := range 3 {
		sheet += fmt.Sprintf("S%d,%s,%d,\"{\"\"cpus\"\":%d}\"\n", i, x, 20+i, 1+i)
	}
	args = map[string]any{"tool_id": "b.two", "name": "sizes", "sheet": sheet}
	refused("batch.run", args, gate.ConsentRequired)
	if a = pending(3)[0]; len(a.Covers.Kinds) != 3 || a.Covers.Resources.CPUs != 3 {
		t.Errorf("the request covers %d kinds and %v; want 3 with up to 3 CPUs", len(a.Covers.Kinds), a.Covers.Resources)
	}
	if code := g.answers(t, boss, a, true); code != "" {
		t.Fatal(code)
	}
	g.does(t, "batch.run", args, &began)
	g.settle(t)
	g.until(t, "sizes", func(s BatchStatusAnswer) bool { return s.Counts["queued"] == 3 })
	sheet = "sample,x,n,resources\n"
	for i := range maxKinds + 1 {
		sheet += fmt.Sprintf("S%d,%s,%d,\"{\"\"mem_mb\"\":%d}\"\n", i, x, 20+i, 200+i)
	}
	refused("batch.run", map[string]any{"tool_id": "b.two", "name": "many", "sheet": sheet}, "batch_consent")

	// A tool without consent needs no approval for a batch, and a dry run shows whether a call needs one.
	g.does(t, "batch.run", map[string]any{"tool_id": "a.one", "name": "free", "sheet": "sample,x\nA," + ids[0] + "\n"}, &began)
	req := request(t, g.toolOf(t, "batch.run"), args, true)
	var dry gate.Rehearsal
	if res := g.Gate.Call(t.Context(), lab(), req); res.Error != nil || json.Unmarshal(res.Result, &dry) != nil || !dry.ConsentRequired {
		t.Errorf("the dry run: consent required %t, %+v; want true", dry.ConsentRequired, res.Error)
	}
}

func (g *Gateway) batchNames(t *testing.T, list *BatchList) (names []string) {
	t.Helper()
	g.does(t, "batch.list", map[string]any{}, list)
	for _, b := range list.Batches {
		names = append(names, b.Name)
	}
	return names
}
