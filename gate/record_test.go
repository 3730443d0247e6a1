package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/secrets"
)

// eventFields has the members of one call's record about its arguments and its result.
type eventFields struct {
	ArgsHash   string `json:"args_hash"`
	ArgsRef    string `json:"args_ref"`
	ResultHash string `json:"result_hash"`
	ResultRef  string `json:"result_ref"`
	Actor      Actor
}

// recorded makes a call of a gate with these tools, and returns its record and those members of the record's event.
func recorded(t *testing.T, p Policy, who Caller, req Request, tools ...Tool) (Record, eventFields) {
	t.Helper()
	r := value(NewRegistry(tools...))(t)
	b := &book{}
	g := New(Config{Registry: r, Policy: p, Journal: b})
	g.Call(context.Background(), who, req)
	g.Close()
	var e eventFields
	if len(b.calls) != 1 {
		t.Fatalf("a call of %s has %d records", req.ToolID, len(b.calls))
	}
	must(t, json.Unmarshal(b.calls[0].Event, &e))
	return b.calls[0], e
}

// The record of a call that was refused has the hash of its arguments, whatever refused it; of a tool that is known also the arguments,
// redacted. Sensitive arguments are in neither.
//
// proves HTC-08 HTC-09
func TestRefusedCallsHaveTheirArgumentsHash(t *testing.T) {
	secret := tool("test.login", echo)
	secret.Sensitive, secret.Capabilities, secret.Work = []string{"s"}, []string{CapWorker}, Service
	secret.Idempotency, secret.Determinism, secret.Worker = IdempotentWithKey, NonDeterministic, &Worker{Type: "http", Endpoint: "/run"}
	weak := Caller{Principal: Principal{ID: "prn_1", Name: "user:weak", Rights: RightsOf([]string{CapRead}, []string{All})}, Transport: Local}
	for _, c := range []struct {
		what            string
		who             Caller
		policy          Policy
		tool, version   string
		args, redacted  string
		stored, outcome string
	}{
		{"capability", weak, nil, "test.echo", "1.2.3", `{"n":1}`, `{"n":1}`, "args", "capability_denied"},
		{"policy", Process(), denyAll{}, "test.echo", "1.2.3", `{"n":1}`, `{"n":1}`, "args", "tool_denied"},
		{"version", Process(), nil, "test.echo", "9.9.9", `{"n":1}`, `{"n":1}`, "args", "tool_version"},
		{"a secret", weak, nil, "test.echo", "1.2.3", `{"password":"hunter2hunter2"}`, `{"password":"` + Redacted + `"}`, "args", "capability_denied"},
		{"a sensitive argument", weak, nil, "test.login", "1.2.3", `{"n":1,"s":"abc"}`, `{"n":1,"s":"` + Redacted + `"}`, "args", "capability_denied"},
		{"no such tool", weak, nil, "none.such", "1.2.3", `{"n":1}`, `{"n":1}`, "", "tool_not_found"},
		{"long arguments", weak, nil, "test.echo", "1.2.3", `{"s":"` + strings.Repeat("a", maxRefusedArgs) + `"}`,
			`{"s":"` + strings.Repeat("a", maxRefusedArgs) + `"}`, "", "capability_denied"},
	} {
		kept, e := recorded(t, c.policy, c.who, NewRequest(c.tool, c.version, json.RawMessage(c.args)), tool("test.echo", echo), secret)
		want := hashOf(c.redacted)
		if e.ArgsHash != want {
			t.Errorf("%s: args_hash %q; want that of %s, %s", c.what, e.ArgsHash, fault.Clip(c.redacted), want)
		}
		var stored, payload string
		for _, p := range kept.Payloads {
			stored, payload = stored+p.Kind, string(p.JSON)
		}
		if stored != c.stored || stored != "" && payload != c.redacted || (e.ArgsRef != "") != (stored != "") {
			t.Errorf("%s: stored %q %s, args_ref %q; want %q", c.what, stored, fault.Clip(payload), e.ArgsRef, c.stored)
		}
		if !strings.Contains(string(kept.Event), c.outcome) {
			t.Errorf("%s: %s; want %s", c.what, kept.Event, c.outcome)
		}
	}
}

func hashOf(text string) string {
	var d document
	d.Bytes = []byte(text)
	return d.hash()
}

// An answer that is an artifact already has its hash and its handle in the event of the call, and of a call that repeats it with the
// same key.
//
// proves HTC-08 HTC-09
func TestStoredResultIsRecorded(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	const id = "art_00000000000000000000000001"
	x := tool("test.echo", func(context.Context, Call) (any, error) { return Stored{ArtifactID: id, SHA256: sum}, nil })
	_, e := recorded(t, nil, Process(), NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`)), x)
	if e.ResultHash != sum || e.ResultRef != refPrefix+id {
		t.Errorf("result_hash %q, result_ref %q; want %s, %s", e.ResultHash, e.ResultRef, sum, refPrefix+id)
	}
}

// A handle resolves to the arguments of its own event, although another call had the same id.
//
// proves HTC-09
func TestHandlesOfCallsWithOneID(t *testing.T) {
	id, refs := uuid.NewString(), map[string]bool{}
	for i := range 3 {
		req := NewRequest("test.echo", "1.2.3", json.RawMessage(fmt.Sprintf(`{"n":%d}`, i+1)))
		req.ToolCallID = id
		_, e := recorded(t, nil, Process(), req, tool("test.echo", echo))
		if of, kind, hash, ok := ParsePayloadRef(e.ArgsRef); !ok || of != id || kind != "args" || hash != e.ArgsHash {
			t.Errorf("handle %q of the arguments with hash %s", e.ArgsRef, e.ArgsHash)
		}
		refs[e.ArgsRef] = true
	}
	if len(refs) != 3 {
		t.Errorf("3 calls with one id and other arguments have %d handles", len(refs))
	}
}

// A secret in a caller's description of itself reaches no handler and no record.
//
// proves HTC-09
func TestSecretInTheActor(t *testing.T) {
	const secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	var got Request
	x := tool("test.echo", func(_ context.Context, c Call) (any, error) {
		got = c.Request
		return c.Args, nil
	})
	req := NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))
	agent, session := "agent "+secret, "session "+secret
	req.Actor.AgentID, req.Actor.ModelID, req.SessionID = &agent, &agent, &session
	r, _ := recorded(t, nil, Process(), req, x)
	seen := value(json.Marshal(got))(t)
	if strings.Contains(string(seen), secret) || strings.Contains(string(r.Event), secret) {
		t.Errorf("the handler got %s, the record has %s; want no secret in either", seen, r.Event)
	}
}

// What is hashed is what is stored: arguments and results without their secrets.
//
// proves HTC-09
func TestHashAfterRedaction(t *testing.T) {
	x := tool("test.echo", func(context.Context, Call) (any, error) {
		return map[string]any{"token": "made", "note": "password=hunter2hunter2"}, nil
	})
	x.Reveals = []string{"token"}
	kept, e := recorded(t, nil, Process(), NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`)), x)
	if want := hashOf(`{"note":"password=` + Redacted + `","token":"` + Redacted + `"}`); e.ResultHash != want {
		t.Errorf("a result with a secret has the hash %s, want that of the redacted one, %s", e.ResultHash, want)
	}
	for _, p := range kept.Payloads {
		if p.SHA256 != hashOf(string(p.JSON)) {
			t.Errorf("the stored %s %s have the hash %s, want their own", p.Kind, p.JSON, p.SHA256)
		}
	}
}

// The event of a call names the session that the caller gave, and no session where there was none.
//
// proves HTC-08
func TestSessionInTheEvent(t *testing.T) {
	session := "lab notebook 7"
	for _, given := range []*string{&session, nil} {
		req := NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))
		req.SessionID = given
		r, _ := recorded(t, nil, Process(), req, tool("test.echo", echo))
		var e map[string]any
		must(t, json.Unmarshal(r.Event, &e))
		got, there := e["session_id"]
		if there != (given != nil) || there && got != session {
			t.Errorf("session_id of the event = %v (present: %v), want %v", got, there, given)
		}
	}
}

// A response that breaks the envelope's schema is not returned: the caller gets an error that keeps the schema, and the log the reason.
//
// proves HTC-03
func TestResponsesAreChecked(t *testing.T) {
	g, _ := newGate(t, nil, func(context.Context, Call) (any, error) {
		return nil, fault.New(fault.Validation, strings.Repeat("long_", 100), "a code that no envelope has room for")
	})
	wantError(t, call(g, "test.echo", `{"n":1}`), "tool", "response_schema")
}

// A chat does not see where the gateway keeps things; the shell and programs do.
//
// proves ARC-01
func TestConceal(t *testing.T) {
	r := value(NewRegistry())(t)
	r.Conceal(map[string]string{"/var/lib/sg": "[state_dir]", "/var/lib/sg/artifacts": "[artifact_dir]", "/shared/runs": "[runs_dir]",
		"": "[none]"})
	const text = "free space below /var/lib/sg; /var/lib/sg/artifacts/objects and /shared/runs/run_X/a1/ctl/claim"
	for by, want := range map[Transport]string{Local: text, Other: text,
		MCP: "free space below [state_dir]; [artifact_dir]/objects and [runs_dir]/run_X/a1/ctl/claim"} {
		if got := r.Hide(by, text); got != want {
			t.Errorf("%s: %q", by, got)
		}
	}
	if got := r.Hide(MCP, "#SBATCH --chdir=/shared/runs/x"); got != "#SBATCH --chdir=[runs_dir]/x" {
		t.Error(got)
	}
}

// The gateway's own errors keep their field paths, file names, ids and digests.
func TestRedactKeepsOwnErrors(t *testing.T) {
	const sum = "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	for _, p := range []fault.Problem{
		{Field: "io.inputs[0].checksum_sha256", Msg: "it is not the checksum of the artifact, " + sum},
		{Field: "args.api_key", Msg: "a number is wanted"}, {Field: "args.access_token", Msg: "it is missing", Rule: "required"},
		{Field: "http.client_secret", Msg: "unknown key"},
		{File: "/data/site/credentials", Line: 12, Column: 3, Field: "gateway.token", Msg: "unknown key"}, {File: "/d/my.secret",
			Msg: "it cannot be read"},
		{File: "packs/private_key.tool.yaml", Line: 4, Field: "inputs[0].password", Msg: "expected a string"}, {File: "/d/secret", Line: 1,
			Column: 814, Msg: "the key \"version\" appears twice"},
		{Field: "path", Msg: "/data/token/" + sum[7:] + "/secrets is not a regular file"},
		{Field: "run_id", Msg: "run_0X8Z4D1X467KV94K4TXG0D9BXT has no job sg-0x8z4d1x467kv94k4txg0d9bxt"},
	} {
		err := fault.Invalid("a rule is broken", p)
		if got := ScrubMessage(err.Error(), fault.ProblemsOf(err)); got != err.Error() {
			t.Errorf("%s → %s", err, got)
		}
	}
	for _, text := range []string{
		"open /etc/slurmgate/credentials: permission denied", "open /data/my-secret: no such file or directory",
		"read /d/api_key: is a directory",
		"art_183BZJHEYXMKZBB4A0X74BNFSS is not an input; tok_1 has no capability", "cannot read the plan \"/home/a/token.json\"",
	} {
		if got := ScrubMessage(text, nil); got != text {
			t.Errorf("%s → %s", text, got)
		}
	}
}

// Secrets in the same messages are still found.
func TestRedactFindsSecretsInErrors(t *testing.T) {
	for _, c := range []struct {
		p      fault.Problem
		secret string
	}{
		{fault.Problem{Field: "args.api_key", Msg: "got password: hunter2hunter2"}, "hunter2hunter2"},
		{fault.Problem{Field: "args.x", Msg: "got AKIAIOSFODNN7EXAMPLE"}, "AKIAIOSFODNN7EXAMPLE"},
		{fault.Problem{Field: "args.ghp_abcdefghijklmnopqrstuvwxyz0123456789", Msg: "unknown key"}, "ghp_abc"},
		{fault.Problem{Field: "args.a", File: "/d/secret=hunter2hunter2", Msg: "no"}, "hunter2"},
		{fault.Problem{Field: "secret", Msg: "api_key=hunter2hunter2", Rule: "secret: hunter3hunter3"}, "hunter2"},
		{fault.Problem{Field: "a", Msg: "b", Rule: "secret: hunter3hunter3"}, "hunter3"},
		{fault.Problem{Field: "https://u:hunter2@example.org/x", Msg: "no"}, "hunter2"},
	} {
		err := fault.Invalid("a rule is broken", c.p)
		if got := ScrubMessage(err.Error(), fault.ProblemsOf(err)); strings.Contains(got, c.secret) || !strings.Contains(got, Redacted) {
			t.Errorf("%s → %s", err, got)
		}
	}
	if got := ScrubMessage("open /d/x: password: hunter2hunter2", nil); strings.Contains(got, "hunter2") {
		t.Error(got)
	}
}

// Most answers have a key that could name a secret, such as exit_code, and hold none. They are searched once, and not copied.
func TestDocumentWithoutSecretsIsNotCopied(t *testing.T) {
	doc, err := plan.Read([]byte(`{"state":"queued","exit_code":null,"waits":{"n":1,"list":["a","b"]},"token_id":"tok_1"}`))
	must(t, err)
	g := &Gate{secrets: secrets.Default()}
	if !g.secrets.Suspicious(doc.Bytes) {
		t.Error("the document is not suspicious, so this tests nothing")
	}
	clean, found, err := g.redact(document{Doc: doc}, false)
	if err != nil || len(found) > 0 || !clean.harmless {
		t.Errorf("found %v in it, harmless is %t: %v", found, clean.harmless, err)
	}
	r := redactor{secrets: g.secrets, keys: &g.keys, byName: true}
	if n := testing.AllocsPerRun(100, func() { r.walk(doc.Value) }); n != 0 {
		t.Errorf("walking it makes %v allocations", n)
	}
}

// A principal's own data is private: another principal with the same name does not see it, nor does a project of a
// similar name.
func TestOwnIsOnesOwn(t *testing.T) {
	read := RightsOf([]string{CapGateway, CapRead}, []string{"proj_x"})
	old := Principal{ID: "prn_1", Name: "token:ci", Rights: read}
	young := Principal{ID: "prn_2", Name: "token:ci", Rights: read}
	before := Principal{Name: "token:ci"}.Own() // without a ledger
	for _, c := range []struct {
		what    string
		who     Principal
		project string
		sees    bool
	}{
		{"its own", old, old.Own(), true}, {"its own", young, young.Own(), true},
		{"a namesake's", young, old.Own(), false}, {"a namesake's, the other way", old, young.Own(), false},
		{"what a principal without id has", young, before, false},
	} {
		if c.who.Can(CapRead, c.project) != c.sees || c.who.Can(CapSlurm, c.project) || c.who.Can(CapImport, c.project) {
			t.Errorf("%s: %t", c.what, !c.sees)
		}
	}
	for _, name := range []string{"answers to prn_1", "answers to " + old.Name, " answers to prn_1", "\u00a0answers to prn_1"} {
		if plan.CheckProject(name) == "" && plan.ProjectOf(name) == old.Own() {
			t.Errorf("the project %q is a principal's own", name)
		}
	}
}
