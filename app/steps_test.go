package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
)

// A sheet takes outputs of another batch by sample, and all mistakes are reported together.
//
// proves MANY-04
func TestBatchBySample(t *testing.T) {
	g := chainGateway(t)
	ids := g.reads(t, 3)
	var b, second BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "a.one", "name": "b", "sheet": "sample,x\nA," + ids[0] + "\nB," + ids[1] + "\nT," +
		ids[1] + "\nT," + ids[2] + "\n"}, &b)
	var none any
	e := g.callBatch(t, "batch.run", map[string]any{"tool_id": "b.two", "name": "c", "set": map[string]any{"x": b.BatchID + ":out"},
		"sheet": "sample,n\nA,1\nX,2\nT,3\n"}, &none)
	if e == nil || !strings.Contains(fmt.Sprint(e.Details), `no sample "X"`) || !strings.Contains(fmt.Sprint(e.Details), `the sample "T" 2 times`) ||
		strings.Contains(fmt.Sprint(e.Details), "row 2") {
		t.Errorf("batch.run ended with %+v, want problems of the samples X and T only", e)
	}
	e = g.callBatch(t, "batch.run", map[string]any{"tool_id": "b.two", "name": "c", "sheet": "sample,x\nA," + b.BatchID + ":oot\n"}, &none)
	if e == nil || !strings.Contains(fmt.Sprint(e.Details), "did you mean out?") {
		t.Errorf("batch.run with a misspelt role ended with %+v, want a suggestion", e)
	}
	g.does(t, "batch.run", map[string]any{"tool_id": "b.two", "name": "c", "sheet": "sample,x\nA," + b.BatchID + ":out\nB," + b.BatchID +
		":out\n"}, &second)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.settle(t)
	var rows BatchRowsAnswer
	g.does(t, "batch.rows", map[string]any{"batch": "b"}, &rows)
	a := rows.Rows[0]
	g.isOver(t, *a.RunID, run.Succeeded)
	g.isOver(t, *rows.Rows[1].RunID, run.Failed)
	await(t, func() (bool, string) {
		g.does(t, "batch.rows", map[string]any{"batch": "c"}, &rows)
		a, b := rows.Rows[0].State, rows.Rows[1].State
		return a == "queued" && b == "failed", fmt.Sprintf("rows of c are %s and %s, want queued and failed", a, b)
	})
	var status BatchStatusAnswer
	if g.does(t, "batch.status", map[string]any{"batch": "c"}, &status); len(status.Causes) != 1 || status.Causes[0].Cause != "input_failed" {
		t.Errorf("the causes of batch c are %+v, want input_failed", status.Causes)
	}
}

// A steps file is three batches under one name, checked before anything starts; shown, retried and cancelled as one.
//
// proves MANY-04
func TestSteps(t *testing.T) {
	g := chainGateway(t)
	ids := g.reads(t, 2)
	const steps = "steps:\n  - {name: s1, tool: a.one}\n" +
		"  - {name: s2, tool: b.two, from: {x: s1.out}}\n  - {name: s3, tool: c.three, set: {n: 2}, from: {x: s2.out}}\n"
	args := map[string]any{"steps": steps, "name": "all", "sheet": "sample,x,s2.n\nA," + ids[0] + ",5\nB," + ids[1] + ",\n"}
	var plan BatchPlan
	who := lab()
	req := request(t, g.toolOf(t, "batch.run"), args, true)
	var dry gate.Rehearsal
	if res := g.Gate.Call(t.Context(), who, req); res.Error != nil || json.Unmarshal(res.Result, &dry) != nil ||
		json.Unmarshal(dry.Would, &plan) != nil || plan.Rows != 6 || plan.New != 6 {
		t.Errorf("the dry run: %d rows, %d new runs, %+v; want 6 and 6", plan.Rows, plan.New, res.Error)
	}
	var began, again BatchStarted
	g.does(t, "batch.run", args, &began)
	if g.does(t, "batch.run", args, &again); began.Rows != 6 || len(began.Steps) != 3 || !again.Existed || began.Existed {
		t.Errorf("batch.run: %d rows, %d steps, replayed %t then %t; want 6, 3, false, true", began.Rows, len(began.Steps), began.Existed,
			again.Existed)
	}
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.settle(t)
	var status BatchStatusAnswer
	if g.does(t, "batch.status", map[string]any{"batch": "all"}, &status); len(status.Steps) != 3 || status.Rows != 6 ||
		status.Counts["waiting"] != 4 || status.Counts["queued"] != 2 || status.Over {
		t.Errorf("batch.status: %d steps, %d rows %v, ended %t; want 3, 6, 4 waiting and 2 queued", len(status.Steps), status.Rows,
			status.Counts, status.Over)
	}
	var none any
	if e := g.callBatch(t, "batch.rows", map[string]any{"batch": "all"}, &none); e == nil || e.Code != "batch_has_steps" {
		t.Errorf("the call ended with %+v, want the code batch_has_steps", e)
	}
	var rows BatchRowsAnswer
	g.does(t, "batch.rows", map[string]any{"batch": "all.s1"}, &rows)
	g.isOver(t, *rows.Rows[0].RunID, run.Failed)
	g.until(t, "all", func(s BatchStatusAnswer) bool { return s.Counts["failed"] == 3 })
	var changed BatchChanged
	if g.does(t, "batch.retry", map[string]any{"batch": "all"}, &changed); changed.Changed != 3 {
		t.Errorf("batch.retry changed %d rows, want 3", changed.Changed)
	}
	g.until(t, "all", func(s BatchStatusAnswer) bool {
		return s.Counts["waiting"] == 4 && s.Counts["queued"] == 2 && s.Todo == 0
	})
	g.isOver(t, *rows.Rows[0].RunID, run.Succeeded)
	g.until(t, "all", func(s BatchStatusAnswer) bool { return s.Counts["waiting"] == 3 && s.Counts["queued"] == 2 })
	if g.does(t, "batch.cancel", map[string]any{"batch": "all"}, &changed); changed.Changed == 0 {
		t.Error("batch.cancel changed no row")
	}
	if some, err := g.Ledger.AnyWaiting(t.Context()); some || err != nil {
		t.Error("a run still waits", err)
	}
	g.until(t, "all", func(s BatchStatusAnswer) bool { return s.Counts["cancelled"] == 5 && s.Over })
	if g.does(t, "batch.retry", map[string]any{"batch": "all"}, &changed); changed.Changed != 0 ||
		!strings.Contains(changed.Message, "5 that were cancelled stay so") {
		t.Errorf("batch.retry of a cancelled batch changed %d rows: %q", changed.Changed, changed.Message)
	}
	if g.does(t, "batch.retry", map[string]any{"batch": "all", "cancelled": true}, &changed); changed.Changed != 5 {
		t.Errorf("batch.retry with cancelled changed %d rows, want 5", changed.Changed)
	}
	g.until(t, "all", func(s BatchStatusAnswer) bool {
		return s.Counts["succeeded"] == 1 && s.Counts["waiting"] == 3 && s.Counts["queued"] == 2 && s.Todo == 0
	})
}

func (g *Gateway) until(t *testing.T, batch string, ok func(BatchStatusAnswer) bool) {
	t.Helper()
	await(t, func() (bool, string) {
		var s BatchStatusAnswer
		g.does(t, "batch.status", map[string]any{"batch": batch}, &s)
		return ok(s), fmt.Sprintf("batch %s has %v of %d rows, todo %d, over %t", batch, s.Counts, s.Rows, s.Todo, s.Over)
	})
}

// All mistakes of a steps file are reported together, with their lines.
func TestReadSteps(t *testing.T) {
	for text, want := range map[string][]string{
		"steps: []\n": {"1 steps"},
		"stepz: []\n": {"1 steps", "1 stepz"},
		"steps:\n  - {name: A b, tool: t.x}\n" +
			"  - {name: b, tool: t.x, from: {x: a.out, y: [b.out, q]}, set: {x: 1}, extra: 1}\n": {"2 steps[0].name",
			"3 steps[1].extra", "3 steps[1].from.x", "3 steps[1].from.x", "3 steps[1].from.y[0]", "3 steps[1].from.y[1]"},
		"steps:\n  - {name: a, tool: t.x}\n  - {name: a, tool: t.y}\n": {"3 steps[1].name"},
	} {
		_, err := ReadSteps("f", []byte(text))
		var got []string
		for _, p := range fault.ProblemsOf(err) {
			got = append(got, fmt.Sprint(p.Line, " ", p.Field))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	steps, err := ReadSteps("f",
		[]byte("steps:\n  - {name: a, tool: t.x, set: {n: 3, s: y}}\n"+
			"  - {name: b, tool: t.y, from: {x: a.out, l: [a.o, a.p]}}\n"))
	if err != nil || len(steps) != 2 || string(steps[0].Set["n"]) != "3" || string(steps[0].Set["s"]) != `"y"` || !steps[1].From[1].List ||
		len(steps[1].From[1].Of) != 2 {
		t.Errorf("ReadSteps: %+v, %v; want two steps with their arguments and inputs", steps, err)
	}
}
