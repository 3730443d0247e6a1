package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/export"
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// The fields of an output keep its order: programs write first what their users want to see.
func TestTableFields(t *testing.T) {
	for _, c := range []struct{ typ, text, want string }{
		{"JSON", `{"passed":{"total":3,"mapped %":98.30},"failed":{"mapped":0},"ok":true,"none":null,"note":"a\tb"}`,
			"passed.total=3 passed.mapped %=98.30 failed.mapped=0 ok=true note=a\\tb"},
		{"JSON", `{"one":[{"x":1}],"two":[1,2],"deep":[[[{"y":[5]}]]],"empty":[],"after":0}`, "one.x=1 deep.y=5 after=0"},
		{"JSON", `{"x":1,"x":2}`, "x=1 x=2"}, // the last one counts
		{"JSON", `{"x":1} rubbish`, "x=1"},
		{"JSON", `{"x":1,"y":`, ""}, {"JSON", "", ""}, {"JSON", "5", ""}, {"JSON", "\xff", ""}, {"JSON", strings.Repeat("[", 20000), ""},
		{"TSV", "b\ta\n1\t2\n", "b=1 a=2"},
		{"CSV", "b,1\na,2\nc,3\n", "b=1 a=2 c=3"},
	} {
		var got []string
		for _, f := range fieldsOf(c.typ, []byte(c.text)) {
			got = append(got, f.name+"="+f.value)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%.60q: %s, want %s", c.text, s, c.want)
		}
	}
	many := fieldsOf("JSON", []byte(`{"list":[`+strings.Repeat("1,", 300)+`1],"x":{`+strings.Repeat(`"y":1,`, 300)+`"z":2}}`))
	if len(many) != maxFields+1 || many[0].name != "x.y" {
		t.Errorf("%d fields, the first %v", len(many), many[:min(len(many), 1)])
	}
}

// The steps after the end of a batch: find why a run failed, retry, and compare outputs, or fetch those that cannot
// be compared.
func TestAfterBatch(t *testing.T) {
	g := chainGateway(t)
	ids := g.reads(t, 2)
	var b BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "a.one", "name": "b", "sheet": "sample,x\nA," + ids[0] + "\nB," + ids[1] + "\n"}, &b)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	g.settle(t)
	var rows BatchRowsAnswer
	g.does(t, "batch.rows", map[string]any{"batch": "b"}, &rows)
	bad := *rows.Rows[1].RunID
	g.isOver(t, *rows.Rows[0].RunID, run.Succeeded)
	v, err := g.Ledger.View(t.Context(), bad)
	must(t, err)
	v.Run.Reason, v.Run.Detail = "waiting_in_slurm", "the program exited with status 1: truncated file"
	if _, err := g.Ledger.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.noted", Data: map[string]any{}}}); err != nil {
		t.Fatal(err)
	}
	g.isOver(t, bad, run.Failed)
	var s BatchStatusAnswer
	g.does(t, "batch.status", map[string]any{"batch": "b"}, &s)
	var next []string
	for _, step := range s.NextSteps {
		next = append(next, step.Verb)
	}
	if !slices.Equal(next, []string{"slurm.job.logs", "batch.retry", "batch.rows"}) || s.NextSteps[0].Args["run_id"] != bad {
		t.Errorf("the next steps are %v, want logs of %s, retry and rows", s.NextSteps, bad)
	}
	if len(s.Causes) != 1 || s.Causes[0].Reason != "the program exited with status 1: truncated file" {
		t.Errorf("the causes are %+v, want the truncated file", s.Causes)
	}
	g.does(t, "batch.rows", map[string]any{"batch": "b", "state": "failed"}, &rows)
	if len(rows.Rows) != 1 || rows.Rows[0].Reason != "ended: the program exited with status 1: truncated file" {
		t.Errorf("the failed rows are %+v, want one with the truncated file", rows.Rows)
	}
	var none any
	e := g.callBatch(t, "batch.table", map[string]any{"batch": "b"}, &none)
	if e == nil || e.Code != "batch_without_table" || !strings.Contains(fmt.Sprint(e.Details), "batch.rows") {
		t.Errorf("the call ended with %+v, want the code batch_without_table", e)
	}
}

// refused ends a run as an engine does whose program exited 0 and whose outputs were refused, although one of them is
// complete.
func (g *Gateway) refused(t *testing.T, runID, reason string) (artifactID string) {
	t.Helper()
	v, err := g.Ledger.View(t.Context(), runID)
	must(t, err)
	a, err := g.addBytes(t.Context(), run.Artifact{ProjectID: v.Run.ProjectID, Type: "TEXT", Label: "whole.txt", Source: runID},
		[]byte("whole"))
	must(t, err)
	now := time.Now()
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.FinishedAt, v.Run.ExitCode = run.Failed, run.Done, reason, &now, new(0)
	v.Attempt.Ending, v.Attempt.EndedAt = run.EndedContract, &now
	if _, err := g.Ledger.Apply(t.Context(), run.Write{Run: v.Run, Attempts: []run.Attempt{v.Attempt},
		Outputs: []run.Link{{Role: "out", ArtifactID: a.ID, Relpath: "out/x"}, {Role: plan.Rejected("other"), ArtifactID: a.ID}},
		Event:   run.Event{Type: "run.failed", Data: map[string]any{}}}); err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// The archive of a failed run has the complete outputs, and lists the refused ones, as its receipt does.
func TestExportOfRefusedOutputs(t *testing.T) {
	g := chainGateway(t)
	var one run.SubmitAnswer
	g.does(t, "a.one", map[string]any{"x": g.reads(t, 1)[0]}, &one)
	kept := g.refused(t, one.RunID, "OUTPUT-FORMAT")
	data, report := archived(t, g, one.RunID)
	if !report.OK || len(report.Problems) > 0 {
		t.Errorf("the archive of a run whose outputs were refused is verified as %+v, want no problem", report)
	}
	var r export.Run
	must(t, json.Unmarshal(without(t, data, nil)["run.json"], &r))
	if len(r.Outputs) != 1 || r.Outputs[0].File != "out/x" || len(r.Rejected) != 1 || r.Rejected[0].Role != "rejected:other" ||
		r.Rejected[0].ArtifactID != kept {
		t.Errorf("run.json has the outputs %+v and of those that were refused %+v; want out/x, and rejected:other as %s", r.Outputs, r.Rejected,
			kept)
	}
}

// No step advises a retry that can only fail like the last attempt: for the run, for a run that waited for it, for a
// call that names its output, for its batch. The advice names the collected output.
func TestNoAdviceToFailAgain(t *testing.T) {
	for _, c := range []struct {
		reason string
		retry  bool
	}{{"OUTPUT-FORMAT", false}, {"OUTPUT-CHANGED", true}} {
		g := chainGateway(t)
		id := g.reads(t, 1)[0]
		var b BatchStarted
		const steps = "steps:\n  - {name: s1, tool: a.one}\n  - {name: s2, tool: b.two, from: {x: s1.out}}\n"
		g.does(t, "batch.run", map[string]any{"steps": steps, "name": "all", "sheet": "sample,x\nA," + id + "\n"}, &b)
		g.StartLoop(t.Context())
		g.settle(t)
		var one, two BatchRowsAnswer
		g.does(t, "batch.rows", map[string]any{"batch": "all.s1"}, &one)
		g.does(t, "batch.rows", map[string]any{"batch": "all.s2"}, &two)
		source, waiter := *one.Rows[0].RunID, *two.Rows[0].RunID
		kept := g.refused(t, source, c.reason)
		g.until(t, "all", func(s BatchStatusAnswer) bool { return s.Counts["failed"] == 2 })

		advised := map[string][]fault.Step{}
		for _, id := range []string{source, waiter} {
			var got run.GetAnswer
			g.does(t, "slurm.job.get", map[string]any{"run_id": id}, &got)
			advised["slurm.job.get "+id] = got.NextSteps
		}
		var status BatchStatusAnswer
		g.does(t, "batch.status", map[string]any{"batch": "all"}, &status)
		advised["batch.status"] = status.NextSteps
		var none json.RawMessage
		e := g.callBatch(t, "b.two", map[string]any{"x": source + ":out", "n": 2}, &none)
		if e == nil || !strings.Contains(e.Message, kept) {
			t.Fatalf("a call with %s:out: %+v, want a refusal that names %s", source, e, kept)
		}
		advised["a call with its output"], _ = e.Details["next"].([]fault.Step)
		for what, steps := range advised {
			offered := slices.ContainsFunc(steps, func(s fault.Step) bool { return strings.HasSuffix(s.Verb, "retry") })
			if offered != c.retry || len(steps) == 0 {
				t.Errorf("outputs refused for %s: %s advises %v; a retry among it: %t, want %t", c.reason, what, steps, offered, c.retry)
			}
		}
		g.StopLoop()
	}
}
