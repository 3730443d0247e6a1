package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/gate"
	"slurmgate/mcp"
)

// listing is a gateway for a chat whose caller may call some tools.
type listing struct {
	tools  []gate.Tool
	called func(ctx context.Context, req gate.Request) (gate.Response, error)
}

func (l listing) Tools() []gate.Tool                      { return l.tools }
func (l listing) Visible(context.Context, gate.Tool) bool { return true }
func (l listing) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	return l.called(ctx, req)
}

// listed returns the entries of tools/list for some tools, by their names.
func listed(t *testing.T, tools []gate.Tool) map[string]json.RawMessage {
	t.Helper()
	here, there := sdk.NewInMemoryTransports()
	if _, err := mcp.New(mcp.Config{Gateway: listing{tools: tools}, Name: "x", Version: "1"}).Connect(t.Context(), there, nil); err != nil {
		t.Fatal(err)
	}
	c, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), here, nil)
	must(t, err)
	defer c.Close()
	l := value(c.ListTools(t.Context(), nil))(t)
	out := map[string]json.RawMessage{}
	for _, x := range l.Tools {
		if out[x.Name], err = json.Marshal(x.InputSchema); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func compiledInput(t *testing.T, raw []byte) *jsonschema.Schema {
	t.Helper()
	doc := value(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))(t)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	must(t, c.AddResource("urn:x", doc))
	return c.MustCompile("urn:x")
}

// valuesOf returns values that an argument may have, as far as its schema accepts one of these.
func valuesOf(s *jsonschema.Schema) (out []any) {
	for s.Ref != nil && s.Types == nil && s.Enum == nil {
		s = s.Ref
	}
	id := strings.Repeat("0", 26)
	tries := []any{true, json.Number("1"), json.Number("5000"), json.Number("0"), "a", "run_" + id, "art_" + id, "proj_" + id,
		"batch_aaaaaaaaaaaaaaaa", "2026-11-21T13:12:07Z", "sha256:" + strings.Repeat("0", 64), "TEXT", "apr_" + strings.Repeat("A", 26),
		"file_" + id, strings.Repeat("0", 64), "2026-11", map[string]any{}, map[string]any{"cpus": json.Number("2")},
		map[string]any{"mem_mb": json.Number("64")}, []any{}, []any{"a"}, []any{"art_" + id}, []any{"run_" + id},
		[]any{map[string]any{"sample": "S"}}}
	if s.Enum != nil {
		tries = append(tries, s.Enum.Values...)
	}
	for _, v := range tries {
		if s.Validate(v) == nil {
			out = append(out, v)
		}
	}
	return out
}

// A chat's entry of an operation, listed whole, has the arguments of the registry. Of every operation and tool, listed whole or, among all,
// with a short entry, also this holds: a call that the registry's schema takes is one that the list's schema takes.
//
// proves HTC-05 HTC-06
func TestChatTakesWhatTheRegistryTakes(t *testing.T) {
	g := operations(t)
	registry := g.Gate.Registry().List()
	short, calls := listed(t, registry), 0
	for _, tool := range registry {
		if !mcp.ForChat(tool) || !tool.Reachable(gate.MCP) {
			continue
		}
		real := compiledInput(t, tool.Input)
		schemas := map[string]json.RawMessage{"whole": listed(t, []gate.Tool{tool})[tool.Name()], "short": short[tool.Name()]}
		if _, own := g.Find(tool.ID); own {
			var want, got map[string]any
			must(t, json.Unmarshal(tool.Input, &want))
			must(t, json.Unmarshal(schemas["whole"], &got))
			if d := cmp.Diff(withoutText(want), withoutText(got)); d != "" {
				t.Errorf("%s takes other arguments in a chat's list than in the registry (-registry +list):\n%s", tool.ID, d)
			}
		}
		for form, raw := range schemas {
			if raw == nil {
				delete(schemas, form) // a list of all has not every operation
			}
		}
		for _, name := range slices.Sorted(maps.Keys(real.Properties)) {
			for _, call := range callsWith(real, name) {
				calls++
				for form, raw := range schemas {
					if err := compiledInput(t, raw).Validate(any(call)); err != nil {
						t.Errorf("the registry's schema of %s takes %v, that of the %s entry in a chat's list, %s, does not: %v", tool.ID, call,
							form, raw, err)
					}
				}
			}
		}
	}
	if calls < 200 || len(short) < 15 {
		t.Errorf("%d calls of %d listed tools were tried, want 200 of 15 at least", calls, len(short))
	}
}
