package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/gate"
	"slurmgate/gate/conformance"
)

// theirs compiles one definition of what Handshake accepts.
func theirs(t *testing.T, def string) *jsonschema.Schema {
	t.Helper()
	raw := value(os.ReadFile("testdata/handshake.json"))(t)
	doc := value(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))(t)
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	must(t, c.AddResource("urn:handshake", doc))
	return c.MustCompile("urn:handshake#/$defs/" + def)
}

func accepts(t *testing.T, s *jsonschema.Schema, raw []byte) error {
	t.Helper()
	doc := value(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))(t)
	return s.Validate(doc)
}

// The gate answers envelopes from Handshake's gate, and others, as Handshake would, except for the differences in the
// last column.
func TestHandshakeEnvelopes(t *testing.T) {
	w := conformance.NewWorld(t, gate.Local, func(*testing.T, *gate.Gate, gate.Principal) conformance.Entry { return nil })
	who := gate.Process()
	them := theirs(t, "request")
	const id = "0190a5c0-7d5e-7abc-8def-000000000001"
	full := `{"schema_version":"htc-1.0","tool_call_id":"` + id + `","trace_id":"` + id + `","session_id":null,` +
		`"actor":{"kind":"agent","agent_id":null,"model_id":null},"tool_id":"test.write","tool_version":"1.2.3","args":{"n":1},` +
		`"args_ref":"artifact:` + id + `:data/flight_recorder/tool_payloads/` + id + `/args.json","idempotency_key":null,"dry_run":false}`
	for _, c := range []struct {
		name, old, new string
		they, we       bool
		why            string
	}{
		{name: "as its gate writes it", they: true, we: true},
		{name: "nothing optional", old: `"session_id":null,`, they: true, we: true},
		{name: "no args_ref", old: `"args_ref":"artifact:` + id + `:data/flight_recorder/tool_payloads/` + id + `/args.json",`, they: true, we: true},
		{name: "args_ref null", old: `"artifact:` + id + `:data/flight_recorder/tool_payloads/` + id + `/args.json"`, new: `null`, they: true, we: true},
		{name: "handle with slashes", old: `artifact:` + id + `:data`, new: `artifact:` + id + `:/data`, they: true, we: true},
		{name: "a key", old: `"idempotency_key":null`, new: `"idempotency_key":"k"`, they: true, we: true},
		{name: "empty key", old: `"idempotency_key":null`, new: `"idempotency_key":""`},
		{name: "a session", old: `"session_id":null`, new: `"session_id":"s"`, they: true, we: true},
		{name: "empty session", old: `"session_id":null`, new: `"session_id":""`},
		{name: "long session", old: `"session_id":null`, new: `"session_id":"` + strings.Repeat("s", 257) + `"`},
		{name: "args_ref elsewhere", old: `"artifact:`, new: `"file:`},
		{name: "no dot", old: `test.write`, new: `write`},
		{name: "capital", old: `test.write`, new: `test.Write`},
		{name: "dash", old: `test.write`, new: `test.wri-te`},
		{name: "parent span in the envelope", old: `"dry_run"`, new: `"parent_span_id":"x","dry_run"`},
		{name: "version of two parts", old: `1.2.3`, new: `1.2`},
		{name: "other schema", old: `htc-1.0`, new: `htc-1.1`},
		{name: "no actor", old: `"actor":{"kind":"agent","agent_id":null,"model_id":null},`},
		{name: "no args", old: `"args":{"n":1},`},
		{name: "args a list", old: `{"n":1}`, new: `[]`},
		{name: "dry_run a text", old: `"dry_run":false`, new: `"dry_run":"false"`},
		{name: "id no UUID", old: `"tool_call_id":"` + id, new: `"tool_call_id":"1`},
		{name: "empty agent", old: `"agent_id":null`, new: `"agent_id":""`, we: true, why: "said by clients that have none; recorded as none"},
		{name: "zeros before a version", old: `1.2.3`, new: `01.2.3`, they: true, why: "no semantic version, and no tool has it"},
		{name: "long id", old: `test.write`, new: `test.` + strings.Repeat("w", 124), they: true, why: "128 characters is the most of MCP"},
		{name: "twice", old: `"dry_run":false`, new: `"dry_run":true,"dry_run":false`, they: true, why: "canonical JSON: two readers see two calls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(full, c.old) {
				t.Fatalf("no %s", c.old)
			}
			body := strings.Replace(full, c.old, c.new, 1)
			if c.name != "twice" { // Go's decoder would take the last
				if err := accepts(t, them, []byte(body)); (err == nil) != c.they {
					t.Errorf("Handshake: %v", err)
				}
			}
			res := w.Gate.CallRaw(t.Context(), who, []byte(body))
			if refused := res.Error != nil && res.Error.Code == "VAL-HTC-001"; refused == c.we {
				t.Errorf("our answer has the error %+v, accepted by us: %t", res.Error, c.we)
			}
			if res.Error != nil && res.Error.Code == "VAL-HTC-001" && res.Error.Kind != "validation" {
				t.Errorf("the error has kind %s, want validation", res.Error.Kind)
			}
			if (c.they != c.we) != (c.why != "") {
				t.Error("a difference has a reason, and nothing else has one")
			}
		})
	}
}

// Handshake's recorder refuses an event with a session, or with a key of other characters than its own keys, for that
// reason alone: without that member it accepts it. docs/tools/coming-from.md documents this.
func TestEventsHandshakeRefuses(t *testing.T) {
	event := theirs(t, "event")
	all := gate.RightsOf([]string{gate.All}, []string{gate.All})
	who := gate.Caller{Principal: gate.Principal{Name: "agent", Method: gate.ByToken, Rights: all}, Transport: gate.Other}
	for member, change := range map[string]func(*gate.Request){
		"session_id":      func(r *gate.Request) { r.SessionID = new("session-1") },
		"idempotency_key": func(r *gate.Request) { r.IdempotencyKey = new("the order of monday") },
	} {
		w := conformance.NewWorld(t, gate.Other, func(*testing.T, *gate.Gate, gate.Principal) conformance.Entry { return nil })
		req := gate.NewRequest("test.write", "1.2.3", json.RawMessage(`{}`))
		change(&req)
		if res := w.Gate.Call(context.WithoutCancel(t.Context()), who, req); res.Error != nil {
			t.Fatalf("a call with %s was refused: %v", member, res.Error)
		}
		records := w.Records()
		var e map[string]any
		must(t, json.Unmarshal(records[len(records)-1].Event, &e))
		if err := event.Validate(any(e)); err == nil {
			t.Errorf("Handshake's recorder takes an event with the %s %v, want a refusal", member, e[member])
		}
		delete(e, member)
		if err := event.Validate(any(e)); err != nil {
			t.Errorf("without %s Handshake's recorder refuses the event: %v", member, err)
		}
	}
}

// What Handshake's suite does with its gate, done with ours: each answer is one of its envelopes, each event one that its recorder takes,
// but for its session_id.
//
// proves HTC-08
func TestHandshakeSuite(t *testing.T) {
	w := conformance.NewWorld(t, gate.Other, func(*testing.T, *gate.Gate, gate.Principal) conformance.Entry { return nil })
	response, event := theirs(t, "response"), theirs(t, "event")
	caller := func(span string, caps ...string) gate.Caller {
		return gate.Caller{Principal: gate.Principal{Name: "agent", Method: gate.ByToken, Rights: gate.RightsOf(caps, []string{gate.All})},
			Transport: gate.Other, ParentSpanID: span}
	}
	all := caller("run.1234", gate.All)
	for _, c := range []struct {
		name       string
		who        gate.Caller
		tool, args string
		change     func(*gate.Request)
		kind, code string
	}{
		{"an allowed call", all, "test.read", `{"n":1}`, nil, "", ""},
		{"with a session", all, "test.read", `{}`, func(r *gate.Request) { s := "session-1"; r.SessionID = &s }, "", ""},
		{"without the capability", caller("", gate.CapRead), "test.execute", `{}`, nil, "capability", "capability_denied"},
		{"without any", gate.Caller{Transport: gate.Other}, "test.read", `{}`, nil, "capability", "capability_denied"},
		{"not among the allowed tools", all, "test.denied", `{}`, nil, "policy", "tool_denied"},
		{"unknown tool", all, "mcp.stub.echo", `{}`, nil, "validation", "tool_not_found"},
		{"unknown tool without a dot", all, gate.IDOf("echo"), `{}`, nil, "validation", "tool_not_found"},
		{"arguments that break the schema", all, "test.read", `{"n":"one"}`, nil, "validation", "ARGS-SCHEMA"},
		{"result that breaks the schema", all, "test.shape", `{}`, nil, "tool", "output_schema"},
		{"consent asked for", all, "test.asked", `{}`, nil, "policy", "consent_required"},
		{"timeout", all, "test.slow", `{}`, nil, "timeout", "timeout"},
		{"transport lost", all, "test.fails", `{"text":"transport"}`, nil, "transport", "test_transport"},
		{"tool failed", all, "test.fails", `{"text":"tool"}`, nil, "tool", "test_tool"},
		{"secret in the answer", all, "test.leaks", `{}`, nil, "", ""},
		{"secret in the arguments", all, "test.read", `{"text":"AKIAIOSFODNN7EXAMPLE"}`, nil, "validation", "secret_in_args"},
		{"more than 32 KiB", all, "test.read", `{"text":"` + strings.Repeat("x", 33<<10) + `"}`, nil, "validation", "args_too_large"},
		{"result of more than 32 KiB", all, "test.large", `{"n":40000}`, nil, "", ""},
		{"dry run", all, "test.write", `{}`, func(r *gate.Request) { r.DryRun = true }, "", ""},
		{"with a key", all, "test.execute", `{}`, func(r *gate.Request) { s := "0190a5c0-7d5e-7abc"; r.IdempotencyKey = &s }, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := gate.NewRequest(c.tool, "1.2.3", json.RawMessage(c.args))
			if c.change != nil {
				c.change(&req)
			}
			res := w.Gate.Call(context.WithoutCancel(t.Context()), c.who, req)
			raw := value(json.Marshal(res))(t)
			if err := accepts(t, response, raw); err != nil {
				t.Errorf("%v\n%s", err, raw)
			}
			decision := map[string]any{"consent_required": "escalate", "capability_denied": "deny", "tool_denied": "deny"}[c.code]
			if res.Error != nil && res.Error.Details["decision"] != decision {
				t.Errorf("the details have the decision %v, want %v", res.Error.Details["decision"], decision)
			}
			if c.code == "" && res.Error != nil || c.code != "" && (res.Error == nil || res.Error.Code != c.code || res.Error.Kind != c.kind) {
				t.Errorf("the call ended with %+v, want code %q and kind %q", res.Error, c.code, c.kind)
			}
		})
	}
	spans := 0
	for _, r := range w.Records() {
		var e map[string]any
		must(t, json.Unmarshal(r.Event, &e))
		delete(e, "session_id") // delete(e, "session_id") // HTC-08 has it inside the event; Handshake has it next to the event
		if err := event.Validate(any(e)); err != nil {
			t.Errorf("%v\n%s", err, r.Event)
		}
		if strings.Contains(string(r.Event), `"parent_span_id":"run.1234"`) {
			spans++
		}
	}
	if spans != 17 {
		t.Errorf("%d events have the caller's span", spans)
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value returns a result, and ends the test if an error came with it.
func value[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}
