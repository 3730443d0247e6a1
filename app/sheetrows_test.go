package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"slurmgate/fault"
)

// Rows in the call are what the same sheet is: the same requests under the same name are the same batch.
//
// proves MANY-01
func TestRowsAreASheet(t *testing.T) {
	g := batchGateway(t)
	ids := g.reads(t, 3)
	sheet := "sample,reads,tags\nA," + ids[0] + ",x;y\nB," + ids[1] + ",\nC," + ids[2] + ",z\n"
	rows := []map[string]any{{"sample": "A", "reads": ids[0], "tags": []string{"x", "y"}}, {"sample": "B", "reads": ids[1], "tags": nil},
		{"sample": "C", "reads": ids[2], "tags": "z"}}
	var asSheet, asRows BatchStarted
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": sheet}, &asSheet); err != nil {
		t.Fatal(err)
	}
	if err := g.callBatch(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "rows": rows}, &asRows); err != nil ||
		asRows.BatchID != asSheet.BatchID || !asRows.Existed || asRows.Rows != 3 {
		t.Errorf("%+v %+v", err, asRows)
	}
	for _, args := range []map[string]any{{"rows": rows, "sheet": sheet}, {"rows": rows, "sheet_artifact_id": ids[0]}, {}} {
		args["tool_id"], args["name"] = "seqkit.stats", "c"
		if err := g.callBatch(t, "batch.run", args, nil); err == nil || !strings.Contains(err.Message, "rows, sheet and sheet_artifact_id") {
			t.Errorf("%+v", err)
		}
	}
}

// Every mistake of all rows is told at once, each with its row, also an artifact that is not there.
//
// proves MANY-01
func TestRowMistakes(t *testing.T) {
	for text, want := range map[string][]string{
		`[{"reads":"art_00000000000000000000000000"},{"raeds":"x"},{"raeds":"y","colour":1}]`: {
			"row 2, column raeds: t.x has no parameter \"raeds\"; did you mean reads?", "row 3, column colour: t.x has no parameter"},
		`[{"sample":"a/b","reads":"reads.fq"},{"sample":3,"reads":"","tags":[1]}]`: {
			"row 1, column reads: got \"reads.fq\"", "row 1, column sample: got \"a/b\"",
			"row 2, column reads: got an empty text", "row 2, column sample: got another kind", "row 2, column tags: got another kind"},
	} {
		var rows []Row
		if err := json.Unmarshal([]byte(text), &rows); err != nil {
			t.Fatal(err)
		}
		_, problems := rowRequests(sheetTool(), rows, nil)
		var got []string
		for _, p := range problems {
			got = append(got, p.Field+": "+p.Msg)
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q", text, got)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s: %s, want %s", text, got[i], want[i])
			}
		}
	}
	rows, problems := rowRequests(sheetTool(), []Row{{"fastq": json.RawMessage(`"art_00000000000000000000000000"`),
		"more": json.RawMessage(`[1,2]`), "on": json.RawMessage(`null`)}}, Row{"level": json.RawMessage(`3`)})
	if len(problems) > 0 || len(rows) != 1 || rows[0].sample != "row-1" ||
		string(rows[0].args) != `{"level":3,"more":[1,2],"reads":"art_00000000000000000000000000"}` {
		t.Errorf("%+v %v", rows, problems)
	}

	g := batchGateway(t)
	ids := g.reads(t, 1)
	none := "art_" + strings.Repeat("0", 26)
	args := map[string]any{"tool_id": "seqkit.stats", "name": "b", "rows": []map[string]any{{"reads": ids[0]}, {"reads": none},
		{"sample": "x"},
		{"reads": ids[0], "nothing": 1}}}
	err := g.callBatch(t, "batch.run", args, nil)
	if err == nil || !strings.Contains(err.Message, "row 4, column nothing") {
		t.Errorf("%+v", err)
	}
	args["rows"] = []map[string]any{{"reads": ids[0]}, {"reads": none}, {"sample": "x"}}
	err = g.callBatch(t, "batch.run", args, nil)
	if err == nil || fmt.Sprint(err.Details["kind"]) != string(fault.Validation) || !strings.Contains(err.Message, "2 mistakes") ||
		!strings.Contains(err.Message, "row 2") || !strings.Contains(err.Message, "row 3") {
		t.Errorf("%+v", err)
	}
}
