package mcp

import (
	"fmt"
	"strings"
	"testing"
)

// A model reads where an artifact came from line by line, and is told what to call for the rest.
func TestTraced(t *testing.T) {
	w := newWorld()
	art := func(c string) string { return "art_" + strings.Repeat(c, 26) }
	w.on("artifact.trace", map[string]any{"provenance_run_id": runID, "traced_artifact_id": art("1"), "complete": false, "traced": []any{
		map[string]any{"artifact_id": art("1"), "type": "JSON", "label": "report \"x\"", "origin": "run", "made_by": map[string]any{
			"run_id": runID, "output_role": "report", "tool_id": "multiqc.report", "tool_version": "1.0.0", "inputs_total": 200,
			"inputs": []any{map[string]any{"role": "stats", "artifact_id": art("2")}, map[string]any{"role": "ref", "artifact_id": art("3")}}}},
		map[string]any{"artifact_id": art("2"), "type": "JSON", "label": "s", "origin": "run", "cut_off": true},
		map[string]any{"artifact_id": art("3"), "type": "FASTA", "label": "g", "origin": "import", "removed": "rem_x"},
	}}, nil)
	got := textOf(call(t, w.session(t), "artifact_trace", `{"artifact_id":"`+art("1")+`"}`))
	want := fmt.Sprintf(`%s, JSON "report 'x'", is the output report of %s (multiqc.report 1.0.0), made from stats %s, ref %s, 198 more.
%s, JSON "s", was made by a run that this answer leaves out: call artifact_trace with it.
%s, FASTA "g", was imported; its bytes were removed.
This is not all of it: call artifact_trace with an artifact whose inputs are missing here.`,
		art("1"), runID, art("2"), art("3"), art("2"), art("3"))
	if got != want {
		t.Errorf("%s", got)
	}
}
