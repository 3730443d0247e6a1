package conformance

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"slurmgate/gate"
)

// Run runs the suite over an entry point whose calls come by a transport.
func Run(t *testing.T, by gate.Transport, open Open) {
	RunFace(t, by, open)
	runAll(t, by, open, []check{{"Secrets", secrets}})
	// These wait for seconds, in a time of their own.
	for _, c := range []check{{"KeyAfterCrash", keyAfterCrash}, {"ConsentCovers", consentCovers}, {"Limits", limits}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(t, NewWorld(t, by, open)) })
		})
	}
}

// RunFace runs the part of the suite in which a face takes part: how it makes envelopes of its calls, and calls' answers its own. The rest,
// which takes most of the time, is the gate's alone.
func RunFace(t *testing.T, by gate.Transport, open Open) {
	runAll(t, by, open, []check{
		{"Envelope", envelope}, {"NoEnvelope", noEnvelope}, {"DeniedByDefault", deniedByDefault}, {"Registry", registry}, {"Sizes", sizes},
		{"Keys", keys}, {"KeysAndRights", keysAndRights}, {"ReadsNeedNoKeys", readsNeedNoKeys}, {"OneKeyManyCalls", oneKeyManyCalls},
		{"Consent", consent}, {"ConsentAndRights", consentAndRights}, {"OneEventForEachCall", oneEventForEachCall},
		{"Sensitive", sensitive}, {"Projects", projects}, {"DryRun", dryRun}, {"NextSteps", nextSteps},
	})
}

// check is one test of the suite.
type check struct {
	name string
	test func(*testing.T, *World)
}

func runAll(t *testing.T, by gate.Transport, open Open, checks []check) {
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) { c.test(t, NewWorld(t, by, open)) })
	}
}

// want checks an answer: code "" is success.
func (w *World) want(res gate.Response, kind, code string) {
	w.T.Helper()
	w.valid(res)
	switch {
	case code == "" && (!res.OK || res.Error != nil):
		w.T.Errorf("failed: %+v", res.Error)
	case code != "" && (res.OK || res.Error == nil || res.Error.Code != code || res.Error.Kind != kind):
		w.T.Errorf("got %+v %s, want %s %s", res.Error, res.Result, kind, code)
	}
}

// valid holds an answer against the schema: no face may bend it.
func (w *World) valid(res gate.Response) {
	w.T.Helper()
	raw, err := json.Marshal(res)
	if err == nil {
		err = gate.CheckResponse(raw)
	}
	if err != nil {
		w.T.Errorf("%v\n%s", err, raw)
	}
}

func envelope(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	r := request("test.read", `{"text":"hé","n":1}`, func(r *gate.Request) { s := "session"; r.SessionID = &s })
	res := w.call(e, r)
	w.want(res, "", "")
	if res.ToolCallID != r.ToolCallID || res.TraceID != r.TraceID || string(res.Result) != `{"args":{"n":1,"text":"hé"}}` {
		t.Errorf("%+v %s", res, res.Result)
	}
	w.want(w.call(e, request("test.shape", `{}`)), "tool", "output_schema")
	w.want(w.call(e, request("test.panic", `{}`)), "tool", "internal")
	for _, kind := range []string{"transport", "conflict", "not_found", "tool"} {
		if res := w.call(e, request("test.fails", `{"text":"`+kind+`"}`)); res.OK || res.Error.Code != "test_"+kind ||
			res.Error.Details["kind"] != kind {
			t.Errorf("%s: %+v", kind, res.Error)
		}
	}
}

// noEnvelope: what is no envelope is answered in one, reaches nothing, and is recorded. An entry that has no envelopes of its own has
// nothing to get wrong.
func noEnvelope(t *testing.T, w *World) {
	raw, ok := w.as(everyone("a")).(RawEntry)
	if !ok {
		return
	}
	good, err := json.Marshal(request("test.write", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	with := func(old, new string) string {
		if !strings.Contains(string(good), old) {
			t.Fatalf("no %s in %s", old, good)
		}
		return strings.Replace(string(good), old, new, 1)
	}
	bodies := map[string]string{
		"nothing": "", "not JSON": "{", "list": "[]", "null": "null", "trailing": string(good) + "{}", "unknown key": with(`"dry_run"`,
			`"x":1,"dry_run"`), "duplicate key": with(`"dry_run":false`, `"dry_run":false,"dry_run":true`),
		"case twin": with(`"dry_run"`, `"Dry_run":true,"dry_run"`), "wrong type": with(`"dry_run":false`, `"dry_run":"no"`),
		"key in capitals": with(`"tool_id"`, `"Tool_ID"`), "version": with("htc-1.0", "htc-0.9"),
		"no dry_run": with(`,"dry_run":false`, ``), "args not an object": with(`"args":{}`, `"args":[]`), "args null": with(`"args":{}`,
			`"args":null`), "no args": with(`"args":{},`, ``),
		"tool version": with(`"1.2.3"`, `"1.2"`), "tool version with suffix": with(`"1.2.3"`, `"1.2.3-rc1"`),
		"no actor": with(`"actor":{"kind":"human"},`, ``), "actor kind": with(`"human"`, `"root"`), "actor's other key": with(`"human"`,
			`"human","x":1`),
		"empty key": with(`"dry_run"`, `"idempotency_key":"","dry_run"`), "long key": with(`"dry_run"`,
			`"idempotency_key":"`+strings.Repeat("k", 257)+`","dry_run"`), "args_ref": with(`"dry_run"`,
			`"args_ref":"http://example.org/x","dry_run"`),
		"no dot in the id": with(`"test.write"`, `"test_write"`), "capitals in the id": with(`"test.write"`, `"Test.write"`),
		"long id": with(`"test.write"`, `"test.`+strings.Repeat("x", 124)+`"`), "long args_ref": with(`"dry_run"`,
			`"args_ref":"artifact://`+strings.Repeat("a", 2048)+`","dry_run"`), "call id": strings.Replace(string(good), `"tool_call_id":"`,
			`"tool_call_id":"urn:uuid:`, 1),
		"trace id": strings.Replace(string(good), `"trace_id":"`, `"trace_id":"x`, 1), "deep": with(`"args":{}`,
			`"args":{"list":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`), "big number": with(`"args":{}`,
			`"args":{"n":9007199254740993}`),
		"lone surrogate": with(`"args":{}`, `"args":{"text":"\ud800"}`), "huge": with(`"args":{}`, `"args":{"text":"`+strings.Repeat("x",
			2<<20)+`"}`),
	}
	for name, body := range bodies {
		res, err := raw.CallRaw(t.Context(), []byte(body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		w.want(res, "validation", "VAL-HTC-001")
	}
	if n := w.count("test.write"); n != 0 {
		t.Errorf("%d calls without an envelope reached the tool", n)
	}
	if n := len(w.Records()); n != len(bodies) {
		t.Errorf("%d records of %d calls", n, len(bodies))
	}
}

func deniedByDefault(t *testing.T, w *World) {
	all := gate.Capabilities()
	for tool, needs := range map[string][]string{"test.read": {gate.CapRead}, "test.write": w.own(gate.CapImport),
		"test.execute": {gate.CapSlurm}, "test.admin": w.own(gate.CapAdmin)} {
		for _, missing := range needs {
			rest := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == missing })
			w.want(w.call(w.as(principal("p", rest...)), request(tool, `{}`)), "capability", "capability_denied")
		}
		w.want(w.call(w.as(gate.Principal{Name: "nobody"}), request(tool, `{}`)), "capability", "capability_denied")
		w.want(w.call(w.as(principal("just", needs...)), request(tool, `{}`)), "", "")
		if n := w.count(tool); n != 1 {
			t.Errorf("%s was reached %d times", tool, n)
		}
	}
	w.want(w.call(w.as(everyone("a")), request("test.denied", `{}`)), "policy", "tool_denied")
}

func registry(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	for tool, code := range map[string]string{"test.none": "tool_not_found", "test_read": "VAL-HTC-001", "TEST.READ": "VAL-HTC-001",
		"test.elsewhere": "tool_not_found"} {
		if code != "VAL-HTC-001" || can(e, ToolIDs) {
			w.want(w.call(e, request(tool, `{}`)), "validation", code)
		}
	}
	if can(e, ToolVersion) {
		w.want(w.call(e, request("test.read", `{}`, func(r *gate.Request) { r.ToolVersion = "1.2.4" })), "validation", "tool_version")
	}
	w.want(w.call(e, request("test.read", `{"unknown":1}`)), "validation", "ARGS-SCHEMA")
	w.want(w.call(e, request("test.read", `{"n":"1"}`)), "validation", "ARGS-SCHEMA")
	if n := w.count("test.read"); n != 0 {
		t.Errorf("reached %d times", n)
	}
}

func sizes(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	text := func(n int) string { return `{"text":"` + strings.Repeat("x", n-len(`{"text":""}`)) + `"}` }
	w.want(w.call(e, request("test.write", text(gate.MaxInline))), "", "")
	w.want(w.call(e, request("test.write", text(gate.MaxInline+1))), "validation", "args_too_large")
	if can(e, ArgsRef) {
		w.references(e, text)
	} else if n := w.count("test.write"); n != 1 {
		t.Errorf("reached %d times", n)
	}
	small := w.call(e, request("test.large", fmt.Sprintf(`{"n":%d}`, gate.MaxInline-len(`{"data":""}`))))
	w.want(small, "", "")
	if small.ResultRef != nil || len(small.Result) != gate.MaxInline {
		t.Errorf("%d bytes, %v", len(small.Result), small.ResultRef)
	}
	over := gate.MaxInline - len(`{"data":""}`) + 1 // one byte more than fits
	large := w.call(e, request("test.large", fmt.Sprintf(`{"n":%d}`, over)))
	w.want(large, "", "")
	if large.ResultRef == nil || !strings.HasPrefix(*large.ResultRef, "artifact://art_") || string(large.Result) != "null" &&
		large.Result != nil {
		t.Fatalf("a result of %d bytes has the reference %v and %d bytes, want a reference alone", gate.MaxInline+1, large.ResultRef,
			len(large.Result))
	}
	// It is the caller's alone, not its project's.
	ask := `{"text":"` + *large.ResultRef + `"}`
	w.want(w.call(e, request("test.read", ask)), "", "")
	w.want(w.call(w.as(everyone("another of the project")), request("test.read", ask)), "validation", "artifact_not_found")
	got, err := w.Read(t.Context(), strings.TrimPrefix(*large.ResultRef, "artifact://"), 1<<20)
	if err != nil || string(got) != `{"data":"`+strings.Repeat("x", over)+`"}` {
		t.Errorf("the artifact of a result of %d bytes has %d: %v", gate.MaxInline+1, len(got), err)
	}
}

// references: arguments that stand in an artifact.
func (w *World) references(e Entry, text func(int) string) {
	w.T.Helper()
	byRef := func(ref string) func(*gate.Request) { return func(r *gate.Request) { r.ArgsRef = &ref } }
	big := w.artifact(mine, text(100_000))
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact://"+big))), "", "")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact:"+big))), "", "")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact:"+big+":/args.json"))), "", "")
	w.want(w.call(e, request("test.write", `{"n":1}`, byRef("artifact://"+big))), "validation", "ARGS-REF")
	w.want(w.call(e, request("test.write", `{"n":1}`, byRef("artifact://"+w.artifact(mine, ` { "n" : 1 }`)))), "", "")
	// The record that a Handshake client keeps of the same arguments: not ours, not opened.
	own := "artifact:0190a5c0-7d5e-7000-8000-000000000001:data/flight_recorder/tool_payloads/0190a5c0-7d5e-7000-8000-000000000001/args.json"
	w.want(w.call(e, request("test.write", `{"n":2}`, byRef(own))), "", "")
	w.want(w.call(e, request("test.write", `{}`, byRef(own))), "validation", "ARGS-REF")
	w.want(w.call(e, request("test.write", `{}`, byRef(gate.PayloadRef("0190a5c0-7d5e-7000-8000-000000000001", "args", strings.Repeat("0", 64))))), "validation", "ARGS-REF")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact://"+w.artifact(theirs, text(100))))), "validation", "artifact_not_found")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact://art_00000000000000000000000000"))), "validation", "artifact_not_found")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact:///etc/passwd"))), "validation", "ARGS-REF")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact://"+w.artifact(mine, `["no object"]`)))), "validation", "ARGS-REF")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact://"+w.artifact(mine, `{"unknown":1}`)))), "validation", "ARGS-SCHEMA")
	w.want(w.call(e, request("test.write", `{}`, byRef("artifact://"+w.artifact(mine, `{"n":1,"n":2}`)))), "validation", "JSON-DUPLICATE-KEY")
	if n := w.count("test.write"); n != 6 {
		w.T.Errorf("reached %d times", n)
	}
}

// oneEventForEachCall: refused and failed ones too, each of the schema, in chains that verify.
func oneEventForEachCall(t *testing.T, w *World) {
	e, weak := w.as(everyone("a")), w.as(principal("weak"))
	calls := []struct {
		entry Entry
		req   gate.Request
		chain string
	}{
		{e, request("test.read", `{"n":1}`), gate.Looks}, {e, request("test.write", `{"n":1}`), gate.Effects},
		{e, request("test.execute", `{"n":1}`, withKey("key 1")), gate.Effects}, {weak, request("test.execute", `{"n":1}`), gate.Refused},
		{e, request("test.nothing", `{}`), gate.Refused}, {e, request("test.read", `{"x":1}`), gate.Refused}, {e, request("test.asked", `{}`),
			gate.Refused}, {e, request("test.fails", `{"text":"tool"}`), gate.Effects}, {e, request("test.panic", `{}`), gate.Effects},
		{e, request("test.execute", `{"n":1}`, withKey("key 1")), gate.Looks}, {e, request("test.slow", `{}`), gate.Looks},
		{e, request("test.denied", `{}`), gate.Refused},
	}
	if can(e, DryRun) {
		dry := calls[0]
		dry.req = request("test.write", `{}`, func(r *gate.Request) { r.DryRun = true })
		calls = append(calls, dry)
	}
	for i := range calls {
		w.valid(w.call(calls[i].entry, calls[i].req))
	}
	found := w.Records()
	if len(found) != len(calls) {
		t.Errorf("%d records of %d calls", len(found), len(calls))
	}
	byCall := map[string]int{}
	for i, c := range calls {
		byCall[c.req.ToolCallID] = i
	}
	for _, r := range found {
		if err := gate.CheckEvent(r.Event); err != nil {
			t.Errorf("%v\n%s", err, r.Event)
		}
		var e struct {
			ToolCallID string `json:"tool_call_id"`
			ToolID     string `json:"tool_id"`
			Transport  gate.Transport
			ArgsHash   string `json:"args_hash"`
			ArgsRef    string `json:"args_ref"`
			ResultRef  string `json:"result_ref"`
		}
		if err := json.Unmarshal(r.Event, &e); err != nil {
			t.Fatal(err)
		}
		i, known := byCall[e.ToolCallID]
		asked := calls[i].req.ToolID
		byName := gate.IDOf(strings.ReplaceAll(asked, ".", "_")) // of a tool that is not there, over a way that has names
		if !known || e.ToolID != asked && e.ToolID != byName || r.Chain != calls[i].chain || e.Transport != w.Transport || r.Principal != "a" &&
			r.Principal != "weak" {
			t.Errorf("%s of %s: %s", r.Chain, r.Principal, r.Event)
			continue
		}
		delete(byCall, e.ToolCallID)
		_, payloads, _, err := w.Ledger.Call(t.Context(), e.ToolCallID)
		if err != nil {
			t.Error(err)
		}
		refs := map[string]string{"args": e.ArgsRef, "result": e.ResultRef}
		for _, p := range payloads {
			if p.Kind == "args" && p.SHA256 != e.ArgsHash || refs[p.Kind] != gate.PayloadRef(e.ToolCallID, p.Kind, p.SHA256) {
				t.Errorf("%+v, %s", p, r.Event)
			}
			delete(refs, p.Kind)
		}
		for kind, ref := range refs {
			if ref != "" {
				t.Errorf("the event refers to a %s that is not there: %s", kind, r.Event)
			}
		}
		if strings.Contains(string(r.Event), `"event_id"`) || strings.Contains(string(r.Event), `"timestamp"`) || r.EventID == "" {
			t.Errorf("%q %s", r.EventID, r.Event)
		}
	}
	if len(byCall) > 0 {
		t.Errorf("%d calls have no record", len(byCall))
	}
	if states, err := w.Ledger.VerifyCalls(t.Context()); err != nil || states[0].Kept != 4 ||
		states[1].Kept+states[2].Kept != int64(len(calls)-4) || states[2].Kept != 5 {
		t.Error(states, err)
	}
}

func dryRun(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	if !can(e, DryRun) {
		return // there is nothing that could be got wrong
	}
	dry := func(r *gate.Request) { r.DryRun = true }
	for tool, would := range map[string]string{"test.write": `{"would":"write"}`, "test.execute": "null", "test.asked": "null"} {
		res := w.call(e, request(tool, `{"n":1}`, dry, withKey("k")))
		w.want(res, "", "")
		var r gate.Rehearsal
		if err := json.Unmarshal(res.Result, &r); err != nil || !r.DryRun || r.ToolID != tool || string(r.Args) != `{"n":1}` ||
			string(r.Would) != would || r.ConsentRequired != (tool == "test.asked") {
			t.Errorf("%s: %s %v", tool, res.Result, err)
		}
		if w.count(tool) != 0 {
			t.Errorf("%s was reached", tool)
		}
	}
	w.want(w.call(e, request("test.write", `{"x":1}`, dry)), "validation", "ARGS-SCHEMA")
	w.want(w.call(w.as(principal("weak")), request("test.write", `{}`, dry)), "capability", "capability_denied")
	// The key is not bound, and no person was asked.
	w.want(w.call(e, request("test.execute", `{"n":2}`, withKey("k"))), "", "")
	if asked, _, _, err := w.Ledger.Approvals(t.Context(), nil, true); err != nil || len(asked) != 0 {
		t.Error(asked, err)
	}
	w.want(w.call(e, request("test.read", `{"n":1}`, dry)), "", "")
}

// nextSteps: an error ends with what the caller can do, as the words of its face have it.
func nextSteps(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	words := []string{"Next: do run.list", "do tool.show tool_id=test.read", "do approval.answer approval_id=apr_"}
	for i, req := range []gate.Request{request("test.read", `{"run_id":"run_00000000000000000000000000"}`), request("test.read", `{"x":1}`),
		request("test.asked", `{}`)} {
		if res := w.call(e, req); res.Error == nil || !strings.Contains(res.Error.Message, words[i]) {
			t.Errorf("no %q in %+v", words[i], res.Error)
		}
	}
}

func limits(t *testing.T, w *World) {
	e := w.as(everyone("a"))
	w.want(w.call(e, request("test.slow", `{}`)), "timeout", "timeout")
	done := make(chan gate.Response, 1)
	go func() {
		res, err := e.Call(t.Context(), request("test.wait", `{}`))
		if err != nil {
			t.Error(err)
		}
		done <- res
	}()
	synctest.Wait()
	second := make(chan gate.Response, 1)
	go func() {
		res, err := w.as(everyone("b")).Call(t.Context(), request("test.wait", `{}`))
		if err != nil {
			t.Error(err)
		}
		second <- res
	}()
	w.want(w.call(e, request("test.read", `{}`)), "", "") // another tool has separate places
	w.want(<-second, "transport", "too_many_calls")
	close(w.release)
	w.want(<-done, "", "")
	if n := w.count("test.wait"); n != 1 {
		t.Errorf("reached %d times", n)
	}
	w.want(w.call(e, request("test.wait", `{}`)), "", "")
}

func ptr(s string) *string { return &s }

// clip makes a text short enough for an envelope's field.
func clip(s string) *string { return ptr(clipped(s, 250)) }

func clipped(s string, n int) string { return strings.ReplaceAll(s, "\n", " ")[:min(len(s), n)] }

// toolRune makes a tool id of any text.
func toolRune(r rune) rune {
	if r < 128 && (r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._-", r)) {
		return r
	}
	return -1
}
