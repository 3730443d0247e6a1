package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"slurmgate/fault"
)

func anonymous() error {
	return fault.New(fault.Auth, "unauthenticated", "no credentials in the request")
}

// A request of a caller who could not be identified is recorded as refused, with new ids of the gateway and with a
// principal and a tool that cannot exist. So is a body that is not an envelope.
//
// proves HTC-08
func TestRefuse(t *testing.T) {
	g, b := newGate(t, nil, echo)
	res := g.Refuse(Source{Transport: Other, From: "192.0.2.7"}, anonymous())
	wantError(t, res, "auth", "unauthenticated")
	if uuid.Validate(res.ToolCallID) != nil || res.ToolCallID == uuid.Nil.String() || res.Resources.Artifacts == nil {
		t.Errorf("Refuse returned the call id %q and the artifacts %v, want a new id and a list", res.ToolCallID,
			res.Resources.Artifacts)
	}
	g.Malformed(t.Context(), Process(), "test.echo", fault.Invalid("", fault.Problem{Code: "QUERY", Field: "x", Msg: "unknown"}))
	raw := g.CallRaw(t.Context(), Process(), []byte("not JSON"))
	g.CallRaw(t.Context(), Process(), envelope(t, "no such tool"))
	g.CallRaw(t.Context(), Process(), envelope(t, LoginCall))
	g.Refuse(Source{Transport: Other, From: "192.0.2.7"}, fault.New(fault.Validation, "host", "not this host"))
	g.Close()
	if len(b.calls) != 6 {
		t.Fatal(len(b.calls))
	}
	for i, want := range []Record{{Principal: "unauthenticated@192.0.2.7", ToolID: LoginCall, ToolCallID: res.ToolCallID},
		{Principal: "process", ToolID: "test.echo"}, {Principal: "process", ToolID: InvalidCall, ToolCallID: raw.ToolCallID},
		{Principal: "process", ToolID: InvalidCall}, {Principal: "process", ToolID: UnknownTool},
		{Principal: "unauthenticated@192.0.2.7", ToolID: InvalidCall}} {
		r := b.calls[i]
		if r.Chain != Refused || r.OK || r.Principal != want.Principal || r.ToolID != want.ToolID || r.ToolCallID == uuid.Nil.String() ||
			want.ToolCallID != "" && r.ToolCallID != want.ToolCallID || CheckEvent(r.Event) != nil {
			t.Errorf("record %d: chain %s, ok %t, principal %s, tool %s, call %s; want chain %s, principal %s, tool %s, call %q", i, r.Chain,
				r.OK, r.Principal, r.ToolID, r.ToolCallID, Refused, want.Principal, want.ToolID, want.ToolCallID)
		}
	}
}

// A flood of such requests costs two records a minute of each source, and no more than a fixed number of sources are counted apart. None
// is lost from the count.
//
// no race: each of its millions of steps is like the one before
func TestFloodOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b := newGate(t, nil, echo)
		const each, sources = 100, 3 * maxRefusals
		for range each {
			for s := range sources {
				g.Refuse(Source{Transport: Other, From: fmt.Sprint("192.0.2.", s)}, anonymous())
			}
		}
		time.Sleep(refusalPause + time.Second)
		synctest.Wait()
		g.Refuse(Source{Transport: Other, From: "192.0.2.1"}, anonymous())
		g.Close()
		if n := len(b.calls); n > 2*(maxRefusals+1)+1 {
			t.Error(n, "records")
		}
		counted := 0
		for _, r := range b.calls {
			counted += int(r.Count)
			if r.Count > 1 && !strings.Contains(string(r.Event), fmt.Sprint("the last of ", r.Count)) {
				t.Errorf("%s", r.Event)
			}
		}
		if counted != each*sources+1 || !slices.ContainsFunc(b.calls, func(r Record) bool { return r.Principal == "unauthenticated@elsewhere" }) {
			t.Errorf("%d of %d requests are in the record", counted, each*sources+1)
		}
	})
}

// While the journal is full, callers who could not be identified get no room in it and wait for none; they are counted.
func TestStrangersAndAFullJournal(t *testing.T) { synctest.Test(t, strangersAndAFullJournal) }

func strangersAndAFullJournal(t *testing.T) {
	g, b := newGate(t, nil, echo)
	for range maxQueued {
		g.journal.room <- struct{}{}
	}
	start := time.Now()
	g.Refuse(Source{Transport: Other, From: "192.0.2.7"}, anonymous())
	if d := time.Since(start); d > 0 {
		t.Error("it waited", d)
	}
	for range maxQueued {
		<-g.journal.room
	}
	g.Close()
	if len(b.calls) != 1 || b.calls[0].Count != 1 {
		t.Errorf("%d records after the close, want one of one call", len(b.calls))
	}
}

// envelope returns a valid envelope for a tool.
func envelope(t *testing.T, toolID string) []byte {
	t.Helper()
	b := value(json.Marshal(NewRequest(toolID, "1.2.3", json.RawMessage("{}"))))(t)
	return b
}

// What is no envelope cannot choose the ids of its record, and nothing of it is in the record.
//
// proves HTC-08
func TestInvalidCallsChooseNoIDs(t *testing.T) {
	g, b := newGate(t, nil, echo)
	good := g.CallRaw(t.Context(), Process(), envelope(t, "test.echo"))
	body := fmt.Sprintf(`{"tool_call_id":%q,"trace_id":%q,"tool_id":"test.echo","unknown":1}`, good.ToolCallID, good.TraceID)
	bad := g.CallRaw(t.Context(), Process(), []byte(body))
	g.Close()
	if bad.OK || bad.ToolCallID == good.ToolCallID || bad.TraceID == good.TraceID || uuid.Validate(bad.ToolCallID) != nil {
		t.Errorf("a bad envelope was answered with ok %t and the ids %q and %q, want an error and new ids", bad.OK,
			bad.ToolCallID, bad.TraceID)
	}
	if r := b.calls[1]; r.ToolCallID != bad.ToolCallID || r.ToolID != InvalidCall || strings.Contains(string(r.Event), good.ToolCallID) {
		t.Errorf("the record has the call id %q and the tool %q, want %q and %q, and %q nowhere", r.ToolCallID, r.ToolID,
			bad.ToolCallID, InvalidCall, good.ToolCallID)
	}
}

// No tool can have the id of a record that is about none.
func TestReservedIDs(t *testing.T) {
	for _, id := range ReservedIDs() {
		if _, err := NewRegistry(tool(id, echo)); fault.CodeOf(err) != "tool_reserved" {
			t.Error(id, err)
		}
	}
}

// A principal whose calls are refused again and again gets some single records and then a few with counts; another's
// refused call gets its own record meanwhile. No refusal is lost from the count, and later ones get single records
// again.
//
// proves HTC-08
// no race: each of its millions of steps is like the one before
func TestFloodOfRefusedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b := newGate(t, nil, echo)
		ask := func(name, tool string) {
			who := Caller{Principal: Principal{Name: name, Method: ByToken}, Transport: Local}
			if res := g.Call(t.Context(), who, NewRequest(tool, "1.2.3", json.RawMessage("{}"))); res.OK {
				t.Fatal(res)
			}
		}
		const flood = 4000
		for i := range flood {
			ask("token:hostile", []string{"test.echo", fmt.Sprint("no.such", i)}[i%2])
		}
		ask("token:honest", "test.echo")
		time.Sleep(24 * time.Hour)
		ask("token:hostile", "test.echo")
		g.Close()
		records, counted := map[string]int{}, map[string]int64{}
		for _, r := range b.calls {
			records[r.Principal]++
			counted[r.Principal] += max(1, r.Count)
			if err := CheckEvent(r.Event); err != nil || r.Chain != Refused {
				t.Error(r.Chain, err)
			}
		}
		if n := records["token:hostile"]; n > allowance+maxOwnRefusals+2 || counted["token:hostile"] != flood+1 {
			t.Errorf("%d records count %d refused calls, want at most %d records of %d calls", n, counted["token:hostile"],
				allowance+maxOwnRefusals+2, flood+1)
		}
		if records["token:honest"] != 1 {
			t.Error(records)
		}
	})
}

// An endless flood costs any source a hundred records a day.
func TestFloodWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b := newGate(t, nil, echo)
		const seconds = 24 * 60 * 60
		for range seconds / 10 {
			g.Refuse(Source{Transport: Other, From: "192.0.2.7"}, anonymous())
			time.Sleep(10 * time.Second)
		}
		g.Close()
		counted := int64(0)
		for _, r := range b.calls {
			counted += r.Count
		}
		if len(b.calls) > 110 || counted != seconds/10 {
			t.Errorf("%d records count %d refused calls, want at most 110 records of %d calls", len(b.calls), counted, seconds/10)
		}
	})
}

// consenting is a policy that requires an approval for some tools.
type consenting map[string]bool

func (consenting) AllowTool(string) error { return nil }

func (c consenting) Rules(name string) Rules {
	if c[name] {
		return Rules{Consent: &ConsentRule{}}
	}
	return Rules{}
}

// A handler starts no job of a tool whose approval rule the gate has not checked: a handler that forgets to name a
// tool fails, and no approval is requested. A tool that is named needs what its rule requires.
//
// proves HTC-07
func TestStartIsJudged(t *testing.T) {
	for _, c := range []struct {
		what         string
		policy       consenting
		names        []string // tools whose jobs the tool may start
		starts, code string
	}{
		{"its own", nil, nil, "test_echo", ""},
		{"another's, named", nil, []string{"other_tool"}, "other_tool", ""},
		{"another's, not named", nil, nil, "other_tool", "start_unjudged"},
		{"another's, not named, with a rule", consenting{"other_tool": true}, nil, "other_tool", "start_unjudged"},
		{"another's, named, with a rule", consenting{"other_tool": true}, []string{"other_tool"}, "other_tool", "consent_denied"},
		{"its own, with a rule", consenting{"test_echo": true}, nil, "test_echo", "consent_denied"},
	} {
		started := false
		x := tool("test.echo", func(_ context.Context, call Call) (any, error) {
			if err := call.MayStart(c.starts); err != nil {
				return nil, err
			}
			started = true
			return call.Args, nil
		})
		x.Starts = func(context.Context, Call) ([]string, error) { return c.names, nil }
		r := value(NewRegistry(x))(t)
		g := New(Config{Registry: r, Policy: c.policy, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}) // no approval can be requested
		code := ""
		if res := call(g, "test.echo", `{"n":1}`); res.Error != nil {
			code = res.Error.Code
		}
		if code != c.code || started != (c.code == "") {
			t.Errorf("%s: outcome %q, started %v; want %q", c.what, code, started, c.code)
		}
	}
	later := Call{Unapproved: true, judged: []string{"a"}}
	if err := later.MayStart("a"); fault.CodeOf(err) != "approval_later" {
		t.Errorf("a start in a call that was said to start nothing: %v; want approval_later", err)
	}
}

// A document that breaks its schema in a hundred thousand places gets a short answer.
func TestManyViolations(t *testing.T) {
	g, _ := newGate(t, nil, echo)
	unknown, nested := map[string]any{}, []any{}
	for i := range 30_000 {
		unknown[fmt.Sprint("key", i)] = i
		nested = append(nested, map[string]any{strings.Repeat("k", 20): i})
	}
	for name, doc := range map[string]map[string]any{"keys": unknown, "long keys": {strings.Repeat("k", 900_000): 1},
		"nested": {"actor": nested}} {
		raw := value(json.Marshal(doc))(t)
		res := g.CallRaw(t.Context(), Process(), raw)
		answer, err := json.Marshal(res)
		if err != nil || res.Error == nil || len(answer) > 16<<10 {
			t.Errorf("%s: %d bytes, %v", name, len(answer), err)
		}
	}
}
