package mcp

import (
	"context"
	"encoding/json"
	"testing"

	"slurmgate/gate"
)

// A tool may have a name that is not its id with _ for each dot. It is listed under that name, and called by it, by its id, or by the id
// with _ for each dot.
//
// proves SRC-01
func TestToolNameOfItsOwn(t *testing.T) {
	w := newWorld()
	w.tools = append(w.tools, gate.Tool{ID: "seqkit.summary", ToolName: "seqkit_stats", Version: "1.0.0", ContractVersion: "v1",
		Title: "Summary", SideEffect: gate.Read, Bindings: []gate.Transport{gate.MCP},
		Capabilities: []string{gate.CapRead}, Input: json.RawMessage(anyObj)})
	w.answers["seqkit.summary"] = func(context.Context, json.RawMessage) (any, error) { return map[string]any{"n": 1}, nil }
	s := w.session(t)
	var names []string
	for tool, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	listed := 0
	for _, n := range names {
		if n == "seqkit_stats" {
			listed++
		}
		if n == "seqkit_summary" || n == "seqkit.summary" {
			t.Errorf("listed as %s", n)
		}
	}
	if listed != 1 {
		t.Error(names)
	}
	for _, called := range []string{"seqkit_stats", "seqkit.summary", "seqkit_summary"} {
		if res := call(t, s, called, `{}`); res.IsError || w.calls[len(w.calls)-1].ToolID != "seqkit.summary" {
			t.Errorf("%s: %+v", called, res)
		}
	}
}
