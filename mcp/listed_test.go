package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/app"
	"slurmgate/gate"
)

// compiledSchema compiles a JSON Schema; nil for an invalid one.
func compiledSchema(raw []byte) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if c.AddResource("urn:x", doc) != nil {
		return nil
	}
	s, err := c.Compile("urn:x")
	if err != nil {
		return nil
	}
	return s
}

// listedSchemas returns the input schemas that a chat's list may have for a tool, by the form of the entry.
func listedSchemas(t gate.Tool) map[string]json.RawMessage {
	return map[string]json.RawMessage{"whole": entry(t).InputSchema.(json.RawMessage), "short": brief(t).InputSchema.(json.RawMessage)}
}

// A call that the registry's schema takes is one that each schema in a chat's list takes, whatever was left out of it: a client that checks
// its calls by the list refuses none that the gate would take.
//
// proves HTC-05
func FuzzListedSchemas(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string","pattern":"^a"},"project_id":{"type":"string"}}}`,
			`{"a":"ab","project_id":"p"}`},
		{`{"type":"object","additionalProperties":{"type":"string"},"properties":{"resources":{"type":"object","description":"what the job gets instead of what"}}}`,
			`{"resources":{"cpus":2},"x":"y"}`},
		{`{"type":"object","unevaluatedProperties":false,"properties":{"project_id":{"type":"string"}}}`, `{"project_id":"p"}`},
		{`{"type":"object","properties":{"l":{"type":"array","contains":{"pattern":"^a"},"maxContains":1}}}`, `{"l":["a","b","c"]}`},
		{`{"type":"object","properties":{"n":{"oneOf":[{"minimum":5},{"maximum":2}]}}}`, `{"n":7}`},
		{`{"type":"object","properties":{"n":{"oneOf":[{"minLength":5},{"maxLength":2}]}}}`, `{"n":"abcdef"}`},
		{`{"type":"object","if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1,"b":2}`},
		{`{"type":"object","not":{"required":["a"]}}`, `{"b":1}`},
		{`{"type":"object","properties":{"o":{"not":{"const":3}}}}`, `{"o":4}`},
		{`{"type":"object","$defs":{"t":{"properties":{"a":{"type":"integer"}},"additionalProperties":{"type":"string"}}},"properties":{"o":{"$ref":"#/$defs/t","properties":{"b":{"type":"string"}}}}}`,
			`{"o":{"a":1,"b":"x"}}`},
		{`{"type":"object","$defs":{"t":{"properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/t"}}}}},"properties":{"o":{"$ref":"#/$defs/t"}}}`,
			`{"o":{"kids":[{"kids":[]}]}}`},
		{`{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":5000}}}`, `{"n":0}`},
		{`{"type":"object","patternProperties":{"^r":{"type":"integer"}},"additionalProperties":{"type":"string"}}`, `{"r":1,"x":"y"}`},
		{`{"type":"object","propertyNames":{"pattern":"^a"},"dependentRequired":{"a":["ab"]}}`, `{"a":1,"ab":2}`},
		{`{"type":"object","dependentSchemas":{"a":{"required":["project_id"],"properties":{"project_id":{"type":"string"}}}}}`, `{"a":1,"project_id":"p"}`},
		{`{"type":"object","properties":{"t":{"prefixItems":[{"type":"string"}],"items":false}}}`, `{"t":["a"]}`},
		{`{"type":"object","properties":{"t":{"prefixItems":[{"type":"string"}],"unevaluatedItems":false}}}`, `{"t":["a"]}`},
		{`{"type":"object","properties":{"e":{"enum":[{"pattern":"x"},1]}}}`, `{"e":{"pattern":"x"}}`},
		{`{"type":"object","properties":{"pattern":{"type":"string"},"title":{"type":"string"}},"required":["pattern","title"]}`, `{"pattern":"a","title":"b"}`},
		{`{"type":"object","allOf":[{"properties":{"a":{"type":"string"}}}],"unevaluatedProperties":false}`, `{"a":"x"}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, schema, call []byte) {
		real := compiledSchema(schema)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(call))
		if real == nil || err != nil || real.Validate(doc) != nil {
			return
		}
		x := tool("t.x", gate.Execute, gate.CapSlurm)
		x.Input = schema
		for form, raw := range listedSchemas(x) {
			listed := compiledSchema(raw)
			if listed == nil {
				t.Fatalf("the %s entry of the schema %s has %s, which is no schema", form, schema, raw)
			}
			if err := listed.Validate(doc); err != nil {
				t.Errorf("the registry's schema %s takes %s, and that of the %s entry, %s, does not: %v", schema, call, form, raw, err)
			}
		}
	})
}

// docs/use/chat.md names every argument and keyword that short entries leave out.
//
// proves HTC-05
func TestOmissionsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/use/chat.md")
	must(t, err)
	_, text, ok := strings.Cut(string(page), "\n### What a chat's list leaves out\n")
	text, _, end := strings.Cut(text, "\n## ")
	if !ok || !end {
		t.Fatal("docs/use/chat.md has no section on what a chat's list leaves out")
	}
	for _, o := range new(app.Gateway).Operations() {
		for _, name := range o.Chat.Seldom {
			if !strings.Contains(text, "`"+name+"`") || !strings.Contains(text, "`"+nameOf(o.ID)+"`") {
				t.Errorf("the section does not name %s of %s, which a short entry leaves out", name, o.ID)
			}
		}
	}
	written := strings.NewReplacer("lengths, counts", "minLength maxLength minItems maxItems minProperties maxProperties",
		"`if`", "if then else", "`contains`", "contains minContains maxContains", "`unevaluated…`", "unevaluatedProperties unevaluatedItems",
		"titles", "title $schema").Replace(text)
	for _, keyword := range unsaid {
		if !strings.Contains(written, keyword) {
			t.Errorf("the section does not name the keyword %s, which a short entry leaves out", keyword)
		}
	}
}

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
		must(t, err)
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
			t.Errorf("%s: error %t, answer %q; want a call of seqkit.summary", called, res.IsError, textOf(res))
		}
	}
}
