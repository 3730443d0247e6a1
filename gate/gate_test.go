package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/secrets"
)

const schema = `{"type":"object","additionalProperties":false,"required":["n"],"properties":{"n":{"type":"integer","minimum":1},"s":{"type":"string","pattern":"^[a-z]+$"}}}`

func echo(_ context.Context, c Call) (any, error) { return c.Args, nil }

func tool(id string, h Handler) Tool {
	return Tool{ID: id, Version: "1.2.3", ContractVersion: "v1", SideEffect: Execute, Idempotency: Idempotent, Determinism: Deterministic,
		Availability: OfflineOK,
		Capabilities: []string{CapSlurm}, Bindings: []Transport{Local}, Input: json.RawMessage(schema), Handle: h}
}

// book keeps what a gate records.
type book struct {
	mu    sync.Mutex
	calls []Record
}

func (b *book) Record(_ context.Context, records []Record) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, records...)
	return nil
}

type denyAll struct{}

func (denyAll) Rules(string) Rules { return Rules{} }

func (denyAll) AllowTool(name string) error {
	return fault.New(fault.Policy, "tool_denied", name+" is not on the list")
}

func newGate(t *testing.T, p Policy, h Handler) (*Gate, *book) {
	t.Helper()
	r := value(NewRegistry(tool("test.echo", h)))(t)
	b := &book{}
	g := New(Config{Registry: r, Policy: p, Journal: b, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	t.Cleanup(g.Close)
	return g, b
}

func call(g *Gate, id, args string) Response {
	return g.Call(context.Background(), Process(), NewRequest(id, "1.2.3", json.RawMessage(args)))
}

func wantError(t *testing.T, res Response, kind, code string) {
	t.Helper()
	if res.OK || res.Error == nil || res.Result != nil || res.Error.Kind != kind || res.Error.Code != code {
		t.Errorf("got %+v %s, want %s %s", res.Error, res.Result, kind, code)
	}
}

// Part of HTC-03.
func TestCallAnswers(t *testing.T) {
	g, b := newGate(t, nil, echo)
	req := NewRequest("test.echo", "1.2.3", json.RawMessage(`{"s": "a", "n": 1.0}`))
	res := g.Call(t.Context(), Process(), req)
	if !res.OK || res.Error != nil || string(res.Result) != `{"n":1,"s":"a"}` || res.ToolCallID != req.ToolCallID ||
		res.TraceID != req.TraceID || res.SchemaVersion != SchemaVersion {
		t.Errorf("Call returned ok %t, error %+v, result %s, schema %s, ids %s and %s; want result %s and the ids %s and %s of the request",
			res.OK, res.Error, res.Result, res.SchemaVersion, res.ToolCallID, res.TraceID, `{"n":1,"s":"a"}`, req.ToolCallID, req.TraceID)
	}
	if res.Timing.EndedAt.Before(res.Timing.StartedAt) || res.Timing.StartedAt.IsZero() || res.Timing.StartedAt.Location() != time.UTC {
		t.Error(res.Timing)
	}
	wire := value(json.Marshal(res))(t)
	for _, key := range []string{`"error":null`, `"result_ref":null`, `"artifacts":[]`, `"files":[]`, `"urls":[]`, `"workspace_ids":[]`} {
		if !strings.Contains(string(wire), key) {
			t.Errorf("no %s in %s", key, wire)
		}
	}
	g.Close()
	if len(b.calls) != 1 {
		t.Error("not recorded")
	}
}

// Every refusal is an answer in the envelope, with its kind and code, is recorded, and reaches no handler. Part of HTC-01, HTC-02, HTC-06.
func TestRefusals(t *testing.T) {
	reached := 0
	h := func(context.Context, Call) (any, error) { reached++; return nil, nil }
	ref, none := "artifact://art_x", "artifact://art_00000000000000000000000000"
	for _, c := range []struct {
		name       string
		change     func(*Request)
		policy     Policy
		kind, code string
	}{
		{"schema version", func(r *Request) { r.SchemaVersion = "htc-2.0" }, nil, "validation", "VAL-HTC-001"},
		{"call id", func(r *Request) { r.ToolCallID = "1" }, nil, "validation", "VAL-HTC-001"},
		{"trace id", func(r *Request) { r.TraceID = "" }, nil, "validation", "VAL-HTC-001"},
		{"actor", func(r *Request) { r.Actor.Kind = "root" }, nil, "validation", "VAL-HTC-001"},
		{"bad envelope before policy", func(r *Request) { r.TraceID = "" }, denyAll{}, "validation", "VAL-HTC-001"},
		{"unknown tool", func(r *Request) { r.ToolID = "test.other" }, nil, "validation", "tool_not_found"},
		{"name for id", func(r *Request) { r.ToolID = "test_echo" }, nil, "validation", "VAL-HTC-001"},
		{"no version", func(r *Request) { r.ToolVersion = "" }, nil, "validation", "VAL-HTC-001"},
		{"version", func(r *Request) { r.ToolVersion = "1.2.4" }, nil, "validation", "tool_version"},
		{"args beside an artifact", func(r *Request) { r.ArgsRef = &none }, nil, "validation", "args_ref_unsupported"},
		{"span", func(r *Request) { r.ParentSpanID = "a b" }, nil, "validation", "VAL-HTC-001"},
		{"args by a reference to nothing", func(r *Request) { r.ArgsRef, r.Args = &ref, json.RawMessage(`{}`) }, nil, "validation", "ARGS-REF"},
		{"policy", func(*Request) {}, denyAll{}, "policy", "tool_denied"},
		{"policy before arguments", func(r *Request) { r.Args = json.RawMessage(`{"n":0}`) }, denyAll{}, "policy", "tool_denied"},
		{"duplicate key", func(r *Request) { r.Args = json.RawMessage(`{"n":1,"n":2}`) }, nil, "validation", "VAL-HTC-001"},
		{"case twin", func(r *Request) { r.Args = json.RawMessage(`{"n":1,"N":2}`) }, nil, "validation", "VAL-HTC-001"},
		{"big number", func(r *Request) { r.Args = json.RawMessage(`{"n":9007199254740993}`) }, nil, "validation", "VAL-HTC-001"},
		{"not JSON", func(r *Request) { r.Args = json.RawMessage(`{`) }, nil, "validation", "VAL-HTC-001"},
		{"schema", func(r *Request) { r.Args = json.RawMessage(`{"n":0}`) }, nil, "validation", "ARGS-SCHEMA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, b := newGate(t, c.policy, h)
			req := NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))
			c.change(&req)
			res := g.Call(t.Context(), Process(), req)
			wantError(t, res, c.kind, c.code)
			g.Close()
			if len(b.calls) != 1 || b.calls[0].OK || b.calls[0].Chain != Refused {
				t.Error("not recorded")
			}
		})
	}
	if reached != 0 {
		t.Errorf("%d refused calls reached the tool", reached)
	}
}

func TestEverySchemaViolationIsTold(t *testing.T) {
	g, _ := newGate(t, nil, echo)
	res := call(g, "test.echo", `{"n":0,"s":"A","x":1,"y":{}}`)
	wantError(t, res, "validation", "ARGS-SCHEMA")
	problems, _ := res.Error.Details["problems"].([]fault.Problem)
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
		if p.Msg == "" {
			t.Error(p)
		}
	}
	slices.Sort(fields)
	if d := cmp.Diff([]string{"args", "args.n", "args.s"}, fields); d != "" {
		t.Error(d, problems)
	}
	for _, name := range []string{"x", "y"} {
		if !strings.Contains(res.Error.Message, "'"+name+"'") {
			t.Errorf("%s is not named in %s", name, res.Error.Message)
		}
	}
}

func TestPanicIsContained(t *testing.T) {
	g, b := newGate(t, nil, func(context.Context, Call) (any, error) { panic("secret /path") })
	res := call(g, "test.echo", `{"n":1}`)
	wantError(t, res, "tool", "internal")
	if res.Error.Details["kind"] != "internal" || strings.Contains(res.Error.Message, "secret") || strings.Contains(res.Error.Message,
		".go:") {
		t.Errorf("the error has the message %q and the details %v, want kind internal and no cause", res.Error.Message,
			res.Error.Details)
	}
	if res := call(g, "test.echo", `{"n":0}`); res.Error.Code != "ARGS-SCHEMA" {
		t.Error("the gate is gone")
	}
	if g.Close(); len(b.calls) != 2 || b.calls[0].Chain != Effects {
		t.Error(b.calls)
	}
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := func(ctx context.Context, _ Call) (any, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("stopped: %w", ctx.Err())
		}
		g, _ := newGate(t, nil, wait)
		start := time.Now()
		res := call(g, "test.echo", `{"n":1}`)
		wantError(t, res, "timeout", "timeout")
		if d := time.Since(start); d != defaultTimeout || res.Timing.DurationMS != d.Milliseconds() || !res.Error.Retryable {
			t.Error(d, res.Timing)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		wantError(t, g.Call(ctx, Process(), NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))), "canceled", "canceled")

		own, _ := newGate(t, nil, func(context.Context, Call) (any, error) {
			return nil, fault.Wrap(fault.Transport, "slurm_unreachable", "no answer within a second", context.DeadlineExceeded)
		})
		wantError(t, call(own, "test.echo", `{"n":1}`), "transport", "slurm_unreachable")
	})
}

func TestResults(t *testing.T) {
	for _, c := range []struct {
		result     any
		want, code string
	}{
		{map[string]any{"b": 1, "a": []string(nil)}, `{"a":[],"b":1}`, ""},
		{struct {
			A *string `json:"a"`
		}{}, `{"a":null}`, ""},
		{json.RawMessage(`{"z":1, "a":"\u00e9"}`), `{"a":"é","z":1}`, ""},
		{nil, `null`, ""},
		{math.NaN(), "", "result_not_json"},
		{map[string]any{"n": int64(1) << 60}, "", "result_not_json"},
		{"\xff", "", "result_not_json"},
		{make(chan int), "", "result_not_json"},
		{strings.Repeat("x", 2<<20), "", "result_not_json"},
	} {
		g, _ := newGate(t, nil, func(context.Context, Call) (any, error) { return c.result, nil })
		res := call(g, "test.echo", `{"n":1}`)
		if c.code != "" {
			wantError(t, res, "tool", c.code)
		} else if !res.OK || string(res.Result) != c.want {
			t.Errorf("the call returned %s, error %+v; want %s", res.Result, res.Error, c.want)
		}
	}
}

// Each kind has one place in the envelope and comes back from it as it was.
func TestKindsInTheEnvelope(t *testing.T) {
	allowed := []string{"validation", "auth", "capability", "timeout", "tool", "transport", "canceled", "policy"}
	for _, k := range []fault.Kind{fault.Internal, fault.Validation, fault.NotFound, fault.Auth, fault.Capability, fault.Policy,
		fault.Conflict, fault.Tool, fault.Canceled, fault.Timeout, fault.Transport, fault.Unknown} {
		g, _ := newGate(t, nil, func(context.Context, Call) (any, error) {
			return nil, fault.New(k, "some_code", "some words").WithNext("do this")
		})
		res := call(g, "test.echo", `{"n":1}`)
		wire := value(json.Marshal(res))(t)
		var back Response
		must(t, json.Unmarshal(wire, &back))
		e := back.Error
		if !slices.Contains(allowed, e.Kind) || e.Retryable != k.Retryable() || e.Fault().Kind != k || fault.CodeOf(e.Fault()) != "some_code" ||
			!strings.Contains(e.Fault().Error(), "do this") {
			t.Errorf("kind %s came back from the envelope as %s, code %s, retryable %t: %v", k, e.Fault().Kind,
				fault.CodeOf(e.Fault()), e.Retryable, e.Fault())
		}
	}
	plain, _ := newGate(t, nil, func(context.Context, Call) (any, error) { return nil, errors.New("plain") })
	wantError(t, call(plain, "test.echo", `{"n":1}`), "tool", "internal")
	if k := (&ErrorBody{Kind: "policy"}).Fault().Kind; k != fault.Policy {
		t.Error(k)
	}
}

// Part of HTC-05.
// A format in a tool's schema is a rule, not a remark: what is no time is refused as such, before the handler decodes it.
func TestFormats(t *testing.T) {
	x := tool("test.since", echo)
	x.Input = json.RawMessage(`{"type":"object","properties":{"since":{"type":"string","format":"date-time"}}}`)
	r := value(NewRegistry(x))(t)
	e := value(r.find("test.since"))(t)
	for args, good := range map[string]bool{`{"since":"2026-11-21T08:00:00Z"}`: true, `{"since":"yesterday"}`: false,
		`{"since":"2026-11-21"}`: false} {
		v := value(jsonschema.UnmarshalJSON(strings.NewReader(args)))(t)
		if err := e.schema.Validate(v); (err == nil) != good {
			t.Errorf("%s: %v", args, err)
		}
	}
}

func TestRegistry(t *testing.T) {
	r := value(NewRegistry(tool("b.two", echo), tool("a.one", echo), tool("a.one.more", echo)))(t)
	var ids []string
	for _, x := range r.List() {
		ids = append(ids, x.ID)
	}
	if d := cmp.Diff([]string{"a.one", "a.one.more", "b.two"}, ids); d != "" {
		t.Error(d)
	}
	if x, err := r.Find("a.one.more"); err != nil || x.Name() != "a_one_more" {
		t.Error(x, err)
	}
	if _, err := r.Find("none"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
	with := func(s string) Tool { x := tool("x.y", echo); x.Input = json.RawMessage(s); return x }
	for name, c := range map[string]struct {
		tools []Tool
		code  string
	}{
		"two of one name":                 {[]Tool{tool("a.one", echo), tool("a.one", echo)}, "tool_name_twice"},
		"two of one name, by underscores": {[]Tool{tool("a.b_c", echo), tool("a.b.c", echo)}, "tool_name_twice"},
		"id with capitals":                {[]Tool{tool("a.B", echo)}, "tool_definition"},
		"id with a dash":                  {[]Tool{tool("a.b-c", echo)}, "tool_definition"},
		"long id":                         {[]Tool{tool("a."+strings.Repeat("x", 127), echo)}, "tool_definition"},
		"reserved":                        {[]Tool{tool("gateway.unknown.x", echo)}, "tool_reserved"},
		"id without dot":                  {[]Tool{tool("a", echo)}, "tool_definition"},
		"no handler":                      {[]Tool{tool("a.b", nil)}, "tool_definition"},
		"schema not JSON":                 {[]Tool{with(`{`)}, "tool_schema"},
		"no schema":                       {[]Tool{with(``)}, "tool_schema"},
		"schema not valid":                {[]Tool{with(`{"type":"nonsense"}`)}, "tool_schema"},
		"schema from afar":                {[]Tool{with(`{"$ref":"https://example.org/x.json"}`)}, "tool_schema"},
		"schema from a file":              {[]Tool{with(`{"$ref":"file:///etc/passwd"}`)}, "tool_schema"},
	} {
		if _, err := NewRegistry(c.tools...); fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The arguments are read once: a handler gets them canonical and as the value that the schema was checked with. A
// call is cheap enough for frequent reads.
func TestReadOnce(t *testing.T) {
	r := value(NewRegistry(tool("test.echo", func(_ context.Context, c Call) (any, error) {
		again, err := plan.Read(c.Args)
		if err != nil || !reflect.DeepEqual(again.Value, c.Value) {
			t.Errorf("%s is not %v (%v)", c.Args, c.Value, err)
		}
		var a struct{ N int }
		if err := c.Into(&a); err == nil {
			t.Error("a key in another case was accepted")
		}
		return c.Value, nil
	})))(t)
	g := New(Config{Registry: r})
	req := NewRequest("test.echo", "1.2.3", json.RawMessage(` {"n": 1e0} `))
	raw := value(json.Marshal(req))(t)
	for _, res := range []Response{g.Call(t.Context(), Process(), req), g.CallRaw(t.Context(), Process(), raw)} {
		if !res.OK || string(res.Result) != `{"n":1}` {
			t.Errorf("the call returned %s, error %+v; want %s", res.Result, res.Error, `{"n":1}`)
		}
	}
	const most = 340 // it took 373 when the arguments were read seven times
	quiet := value(NewRegistry(tool("test.echo", echo)))(t)
	g = New(Config{Registry: quiet})
	if n := testing.AllocsPerRun(100, func() { g.Call(t.Context(), Process(), req) }); n > most {
		t.Errorf("%v allocations a call, at most %d", n, most)
	}
}

// The number of concurrent calls is limited; a call that finds no place within a while has no effect, and its caller
// is asked to repeat it.
//
// proves AX-08
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, reached := make(chan struct{}), atomic.Int64{}
		r, err := NewRegistry(tool("test.echo", func(context.Context, Call) (any, error) { reached.Add(1); <-release; return nil, nil }))
		must(t, err)
		g := New(Config{Registry: r, Together: 2})
		answers := make(chan Response, 4)
		for range 4 {
			go func() { answers <- call(g, "test.echo", `{"n":1}`) }()
		}
		synctest.Wait()
		start := time.Now()
		for range 2 {
			res := <-answers
			wantError(t, res, "transport", "too_many_calls")
			if !res.Error.Retryable {
				t.Error("it may be tried again")
			}
		}
		if d := time.Since(start); d != limiterWait || reached.Load() != 2 {
			t.Error(d, reached.Load())
		}
		close(release)
		for range 2 {
			if res := <-answers; !res.OK {
				t.Errorf("the call ended with %+v, want success", res.Error)
			}
		}
		if res := call(g, "test.echo", `{"n":1}`); !res.OK {
			t.Errorf("the call ended with %+v, want success", res.Error)
		}
	})
}

// stuck is a journal whose disk is full until it is mended.
type stuck struct {
	book
	full bool
}

func (s *stuck) Record(ctx context.Context, records []Record) error {
	s.mu.Lock()
	full := s.full
	s.mu.Unlock()
	if full {
		return fault.New(fault.Transport, "ledger_disk_full", "the disk is full")
	}
	return s.book.Record(ctx, records)
}

// While records cannot be written, read-only calls continue as long as there is room for their records; an effect is
// answered as not recorded; without room no call is made. Afterwards each of them is in the record, once.
func TestFullJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reached := 0
		h := func(_ context.Context, c Call) (any, error) { reached++; return nil, nil }
		look := tool("test.look", h)
		look.SideEffect = Read
		r := value(NewRegistry(tool("test.echo", h), look))(t)
		s := &stuck{full: true}
		g := New(Config{Registry: r, Journal: s, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		defer g.Close()
		wantError(t, call(g, "test.echo", `{"n":1}`), "transport", "not_recorded")
		for range maxQueued - 1 {
			if res := call(g, "test.look", `{"n":1}`); !res.OK {
				t.Fatalf("the call ended with %+v, want success", res.Error)
			}
		}
		before := reached
		wantError(t, call(g, "test.look", `{"n":1}`), "transport", "journal_full")
		if reached != before {
			t.Error("a call that cannot be recorded was made")
		}
		s.mu.Lock()
		s.full = false
		s.mu.Unlock()
		time.Sleep(2 * retryPause)
		if res := call(g, "test.look", `{"n":1}`); !res.OK {
			t.Fatalf("the call ended with %+v, want success", res.Error)
		}
		g.Close()
		seen := map[string]bool{}
		for _, c := range s.calls {
			seen[c.ToolCallID] = true
		}
		if len(s.calls) != maxQueued+1 || len(seen) != len(s.calls) {
			t.Errorf("%d records of %d calls", len(s.calls), maxQueued+1)
		}
	})
}

func TestRedact(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"a":"b","n":1,"x":[null,true]}`, ``},
		{`{"password":"x"}`, `{"password":"[redacted]"}`},
		{`{"dbPassword":"x","max_tokens":5,"token_id":"tok_1","tokens":"many","keyboard":"qwerty"}`,
			`{"dbPassword":"[redacted]","keyboard":"qwerty","max_tokens":5,"token_id":"tok_1","tokens":"many"}`},
		{`{"API-Key":["a"],"secret":{"a":"b"},"authorization":null,"cookie":"","passphrase":true}`,
			`{"API-Key":"[redacted]","authorization":null,"cookie":"","passphrase":true,"secret":"[redacted]"}`},
		{`{"t":"use AKIAIOSFODNN7EXAMPLE now"}`, `{"t":"use [redacted] now"}`},
		{`{"t":"MKAKIAVLGRSTKDEEELIKKAQGSRWWWW AKIAVLGRSTKDEEELIKKAQGSRAAAA"}`, ``}, // proteins
		{`{"t":"basic documentation of bearer authentication"}`, ``},
		{`{"t":"http://example.org:80/a@b"}`, ``},
		{`{"t":"https://u:pw@example.org/x"}`, `{"t":"https://u:[redacted]@example.org/x"}`},
		{`{"t":"run_0X8Z4D1X467KV94K4TXG0D9BXT sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03 token=01a7124a341dbf080e10b8c742ca977e"}`, ``},
		{`{"ghp_abcdefghijklmnopqrstuvwxyz0123456789":1}`, `{"[redacted]":1}`},
	} {
		if c.want == "" {
			c.want = c.in
		}
		in := value(plan.Read([]byte(c.in)))(t)
		got, _, err := plainGate.redact(document{Doc: in}, true)
		if err != nil || string(got.Bytes) != c.want {
			t.Errorf("%s → %s %v", c.in, got.Bytes, err)
		}
		if again, err := plan.Canonical([]byte(c.in)); err != nil || string(in.Bytes) != string(again) {
			t.Errorf("%s: the document itself was changed to %s", c.in, in.Bytes)
		}
	}
}

// plainGate has no patterns of a site.
var plainGate = &Gate{secrets: secrets.Default()}

// What was redacted once holds nothing more to redact, and stays JSON.
func FuzzRedact(f *testing.F) {
	for _, s := range []string{`{"password":"x"}`, `"AKIAIOSFODNN7EXAMPLE"`, `[{"a":"://u:p@h"}]`, `"-----BEGIN PRIVATE KEY-----"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		doc, err := plan.Read([]byte(s))
		if err != nil {
			return
		}
		once, _, err := plainGate.redact(document{Doc: doc}, true)
		if err != nil {
			return // keys that become the same are refused, never passed on
		}
		twice, found, err := plainGate.redact(document{Doc: once.Doc}, true)
		if err != nil || string(twice.Bytes) != string(once.Bytes) && len(found) == 0 {
			t.Errorf("%q → %q → %q %v", s, once.Bytes, twice.Bytes, err)
		}
		if !json.Valid(once.Bytes) {
			t.Errorf("%q → %q", s, once.Bytes)
		}
	})
}

func FuzzCallRaw(f *testing.F) {
	good := value(json.Marshal(NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))))(f)
	f.Add(good)
	f.Add([]byte(`{"tool_call_id":5}`))
	r := value(NewRegistry(tool("test.echo", echo)))(f)
	g := New(Config{Registry: r, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	f.Fuzz(func(t *testing.T, body []byte) {
		raw, err := json.Marshal(g.CallRaw(t.Context(), Process(), body))
		doc, unread := plan.Read(raw)
		found := violations(r.envelopes.response, doc.Value, badEnvelope, "", "")
		if err != nil || unread != nil || len(found) > 0 {
			t.Errorf("%q: %v %v %v", body, err, unread, found)
		}
	})
}

type done bool

func (d done) Unchanged() bool { return bool(d) }

// A repeated call that changes nothing counts as read-only: repeated requests do not fill the permanent record.
func TestUnchanged(t *testing.T) {
	was := false
	g, b := newGate(t, nil, func(context.Context, Call) (any, error) { defer func() { was = true }(); return done(was), nil })
	for range 3 {
		if res := call(g, "test.echo", `{"n":1}`); !res.OK {
			t.Fatalf("the call ended with %+v, want success", res.Error)
		}
	}
	g.Close()
	var chains []string
	for _, c := range b.calls {
		chains = append(chains, c.Chain)
	}
	if d := cmp.Diff([]string{Effects, Looks, Looks}, chains); d != "" {
		t.Error(d)
	}
}

// A dry run's answer too large for an envelope loses its largest parts and names them: a dry run stores no artifact.
func TestLargeRehearsal(t *testing.T) {
	big := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		would any
		left  []string
	}{
		"small":       {map[string]any{"a": "b"}, []string{}},
		"one":         {map[string]any{"run_id": "r", "script": big(40_000)}, []string{"would.script"}},
		"two":         {map[string]any{"run_id": "r", "script": big(40_000), "params": big(30_000)}, []string{"would.script", "would.params"}},
		"no object":   {big(40_000), []string{"would"}},
		"many things": {strings.Split(big(20_000), ""), []string{"would"}},
	} {
		r, err := NewRegistry(Tool{ID: "test.write", Version: "1.0.0", SideEffect: Write, Idempotency: Idempotent, Determinism: BestEffort,
			Availability: OfflineOK, Capabilities: []string{CapRead}, Bindings: []Transport{Local},
			Input: json.RawMessage(`{"type":"object"}`), Handle: func(context.Context, Call) (any, error) { return nil, nil },
			DryRun: func(context.Context, Call) (any, error) { return c.would, nil }})
		must(t, err)
		req := NewRequest("test.write", "1.0.0", json.RawMessage(`{}`))
		req.DryRun = true
		res := New(Config{Registry: r, Artifacts: nothingKept{t}}).Call(t.Context(), Process(), req)
		var got Rehearsal
		if res.Error != nil || len(res.Result) > MaxInline || json.Unmarshal(res.Result, &got) != nil || !slices.Equal(got.LeftOut, c.left) {
			t.Errorf("%s: error %+v, parts left out %v, %d bytes; want success, %v, at most %d bytes", name, res.Error,
				got.LeftOut, len(res.Result), c.left, MaxInline)
		}
	}
}

// nothingKept is a store that nothing may be put into.
type nothingKept struct{ t *testing.T }

func (n nothingKept) Read(context.Context, string, int64) ([]byte, error) {
	return nil, fault.New(fault.NotFound, "artifact_not_found", "nothing is here")
}

func (n nothingKept) Keep(context.Context, Principal, string, []byte) (string, error) {
	n.t.Error("a dry run keeps an artifact")
	return "", nil
}

// ownerless is a ledger without a thing in it, and a dry run that has supposed one.
type ownerless struct{ id, project, principal string }

func (ownerless) OwnerSeen(string) string { return "" }

func (o ownerless) Owner(_ context.Context, id string) (string, error) {
	return "", fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+id)
}

func (ownerless) Asked(context.Context, Principal, string) (bool, error) { return false, nil }

func (o ownerless) Supposed(who Principal, id string) (string, bool) {
	return o.project, id == o.id && who.Name == o.principal
}

// mindful is a ledger that remembers whose its one thing is.
type mindful struct {
	ownerless
	asked int
}

func (m *mindful) OwnerSeen(id string) string {
	if id == m.id {
		return m.project
	}
	return ""
}

func (m *mindful) Owner(ctx context.Context, id string) (string, error) {
	if m.asked++; id == m.id {
		return m.project, nil
	}
	return m.ownerless.Owner(ctx, id)
}

// Memory answers only who has a right on the thing. For anybody else the ledger is asked each time, as for what is not there.
func TestScopeFromMemory(t *testing.T) {
	const id, none = "art_45G7QPW5RFS0CCAGQR83T82KBN", "art_00000000000000000000000000"
	m := &mindful{ownerless: ownerless{id: id, project: plan.ProjectID("mine")}}
	x := tool("test.read", func(context.Context, Call) (any, error) { return map[string]any{}, nil })
	x.Input = json.RawMessage(`{"type":"object"}`)
	r := value(NewRegistry(x))(t)
	g := New(Config{Registry: r, Owners: m})
	for _, c := range []struct {
		project, id string
		there       bool
		asked       int
	}{{"mine", id, true, 0}, {"mine", none, false, 1}, {"other", id, false, 1}, {"other", none, false, 1}} {
		m.asked = 0
		who := Caller{Principal: Principal{Name: "a", Rights: RightsOf([]string{All}, []string{plan.ProjectID(c.project)})}, Transport: Local}
		res := g.Call(t.Context(), who, NewRequest("test.read", "1.2.3", json.RawMessage(`{"in":"`+c.id+`"}`)))
		if res.OK != c.there || m.asked != c.asked {
			t.Errorf("%+v: ok %t with error %+v, owner asked %d times", c, res.OK, res.Error, m.asked)
		}
	}
}

// What a dry run has supposed is there for dry runs of the same principal, and for nothing else.
func TestSupposedScope(t *testing.T) {
	const id = "art_45G7QPW5RFS0CCAGQR83T82KBN"
	o := ownerless{id, plan.ProjectID("mine"), "a"}
	tool := func(id string, effect SideEffect) Tool {
		return Tool{ID: id, Version: "1.0.0", SideEffect: effect, Idempotency: Idempotent, Determinism: BestEffort, Availability: OfflineOK,
			Capabilities: []string{CapRead}, Bindings: []Transport{Local},
			Input: json.RawMessage(`{"type":"object"}`), Handle: func(context.Context, Call) (any, error) { return map[string]any{}, nil }}
	}
	r := value(NewRegistry(tool("test.write", Write), tool("test.read", Read)))(t)
	for _, c := range []struct {
		principal, project, tool, id string
		dry, there                   bool
	}{
		{"a", "mine", "test.write", id, true, true}, {"a", "mine", "test.write", id, false, false}, {"b", "mine", "test.write", id, true,
			false}, {"a", "other", "test.write", id, true, false},
		{"a", "mine", "test.read", id, true, false}, {"a", "mine", "test.write", "art_00000000000000000000000000", true, false},
	} {
		who := Caller{Principal: Principal{Name: c.principal, Rights: RightsOf([]string{All}, []string{plan.ProjectID(c.project)})},
			Transport: Local}
		req := NewRequest(c.tool, "1.0.0", json.RawMessage(`{"deep":[{"in":"`+c.id+`"}]}`))
		req.DryRun = c.dry
		if res := New(Config{Registry: r, Owners: o, Supposer: o}).Call(t.Context(), who, req); res.OK != c.there {
			t.Errorf("%+v: ok %t with error %+v", c, res.OK, res.Error)
		}
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
