package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"slurmgate/run"
)

// The fields of an output are in its own order: what a program writes first is what its users look for.
func TestTableFields(t *testing.T) {
	for _, c := range []struct{ typ, text, want string }{
		{"JSON", `{"passed":{"total":3,"mapped %":98.30},"failed":{"mapped":0},"ok":true,"none":null,"note":"a\tb"}`,
			"passed.total=3 passed.mapped %=98.30 failed.mapped=0 ok=true note=a\\tb"},
		{"JSON", `{"one":[{"x":1}],"two":[1,2],"deep":[[[{"y":[5]}]]],"empty":[],"after":0}`, "one.x=1 deep.y=5 after=0"},
		{"JSON", `{"x":1,"x":2}`, "x=1 x=2"}, // the last counts
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
	if len(many) != maxFields || many[0].name != "x.y" {
		t.Errorf("%d fields, the first %v", len(many), many[:min(len(many), 1)])
	}
}

// What to do once a batch is over: see why a run failed, retry, and compare outputs, or fetch those that cannot be compared.
func TestAfterBatch(t *testing.T) {
	g := chainGateway(t)
	ids := g.reads(t, 2)
	var b BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "a.one", "name": "b", "sheet": "sample,x\nA," + ids[0] + "\nB," + ids[1] + "\n"}, &b)
	g.RunBatches(t.Context())
	defer g.StopBatches()
	g.settle(t)
	var rows BatchRowsAnswer
	g.does(t, "batch.rows", map[string]any{"batch": "b"}, &rows)
	bad := *rows.Rows[1].RunID
	g.isOver(t, *rows.Rows[0].RunID, run.Succeeded)
	v, err := g.Ledger.View(t.Context(), bad)
	if err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("%v", s.NextSteps)
	}
	if len(s.Causes) != 1 || s.Causes[0].Reason != "the program exited with status 1: truncated file" {
		t.Errorf("%+v", s.Causes)
	}
	g.does(t, "batch.rows", map[string]any{"batch": "b", "state": "failed"}, &rows)
	if len(rows.Rows) != 1 || rows.Rows[0].Reason != "ended: the program exited with status 1: truncated file" {
		t.Errorf("%+v", rows.Rows)
	}
	var none any
	e := g.callBatch(t, "batch.table", map[string]any{"batch": "b"}, &none)
	if e == nil || e.Code != "batch_without_table" || !strings.Contains(fmt.Sprint(e.Details), "batch.rows") {
		t.Errorf("%+v", e)
	}
}
