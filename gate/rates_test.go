package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// unchanged is the answer of a call that found what it asked for.
type unchanged struct{}

func (unchanged) Unchanged() bool { return true }

// A caller's permanently recorded calls are bounded in a minute and in a day, independently of other callers; calls
// that change nothing, calls that only read and those that the gateway makes itself do not count.
func TestRecordsOfACaller(t *testing.T) {
	read := tool("test.read", echo)
	read.SideEffect, read.Bindings = Read, []Transport{Local}
	same := tool("test.same", func(context.Context, Call) (any, error) { return unchanged{}, nil })
	r := value(NewRegistry(tool("test.echo", echo), read, same))(t)
	now := time.Unix(1_800_000_000, 0)
	g := New(Config{Registry: r, Limits: Limits{Records: Allowance{PerMinute: 3, PerDay: 5}}, Now: func() time.Time { return now }})
	defer g.Close()
	who := func(name string) Caller {
		return Caller{Principal: Principal{ID: "prn_" + name, Name: "user:" + name, Rights: Everything()}, Transport: Local}
	}
	// admitted makes calls and counts those that were not refused.
	admitted := func(who Caller, tool string, calls int) (n int, last *ErrorBody) {
		for i := range calls {
			res := g.Call(t.Context(), who, NewRequest(tool, "1.2.3", json.RawMessage(fmt.Sprintf(`{"n":%d}`, i+1))))
			switch last = res.Error; {
			case last == nil:
				n++
			case last.Code != codeManyRecords || !last.Retryable:
				t.Fatalf("a call of %s: %s, want success or %s, to be repeated", tool, last.Code, codeManyRecords)
			}
		}
		return n, last
	}
	n, last := admitted(who("ana"), "test.echo", 6)
	if n != 3 || last == nil || last.Details["retry_after_seconds"] != 20 {
		t.Errorf("6 calls at once: %d admitted and %+v, want 3, and the next one in 20 s", n, last)
	}
	if n, _ := admitted(who("bob"), "test.echo", 3); n != 3 {
		t.Errorf("3 calls of another caller: %d admitted, want 3", n)
	}
	loop := who("ana")
	loop.Continues = true
	for tool, who := range map[string]Caller{"test.read": who("ana"), "test.echo": loop, "test.same": who("cy")} {
		if n, _ := admitted(who, tool, 9); n != 9 {
			t.Errorf("9 calls of %s that leave nothing: %d admitted, want 9", tool, n)
		}
	}
	now = now.Add(time.Minute)
	if n, last = admitted(who("ana"), "test.echo", 3); n != 2 || last.Details["retry_after_seconds"].(int) < 17000 {
		t.Errorf("a minute later: %d admitted and %+v, want 2 of 5 in a day, and the next one in hours", n, last)
	}
	now = now.Add(24 * time.Hour)
	if n, _ = admitted(who("ana"), "test.echo", 6); n != 3 {
		t.Errorf("a day later: %d admitted, want 3", n)
	}
	if err := newRecords(Allowance{}).take("x", now); err != nil {
		t.Errorf("without limits a call is refused: %v", fault.Prose(err))
	}
}

// Calls wait for memory that others hold, one caller never holds more than half, and what a call held is free when it ends.
func TestMemoryOfCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(100)
		hold := func(caller string, bytes int64) (release func(), err error) {
			ctx, release := m.hold(t.Context(), caller)
			return release, Hold(ctx, bytes)
		}
		first := value(hold("ana", 30))(t)
		if _, err := hold("ana", 30); fault.CodeOf(err) != "too_much_memory" || !fault.KindOf(err).Retryable() {
			t.Errorf("a second call of a caller that holds 30 of its 50 gets %v for 30 more, want too_much_memory", err)
		}
		other, err := hold("bob", 1000) // more than any call gets: as much as it may have
		if err != nil || m.used != 80 {
			t.Errorf("another caller's large call: %v, %d of 100 are held, want 80", err, m.used)
		}
		got := make(chan error)
		go func() {
			_, err := hold("eve", 40)
			got <- err
		}()
		time.Sleep(time.Second)
		first()
		if err := <-got; err != nil {
			t.Errorf("a call that waited until another ended: %v, want its memory", err)
		}
		if other(); m.used != 40 || len(m.of) != 1 {
			t.Errorf("%d bytes of %d callers are held after two of three calls ended, want 40 of 1", m.used, len(m.of))
		}
	})
}

// What a call has once it need not ask for again, and nothing is counted outside of a call or without a bound.
func TestHoldAgain(t *testing.T) {
	m := newMemory(100)
	ctx, release := m.hold(t.Context(), "ana")
	defer release()
	for range 3 {
		if err := Hold(ctx, 40); err != nil || m.used != 40 {
			t.Fatalf("Hold(40) again: %v, %d held, want 40", err, m.used)
		}
	}
	free, done := newMemory(0).hold(t.Context(), "ana")
	defer done()
	for _, ctx := range []context.Context{free, t.Context()} {
		if err := Hold(ctx, 1<<40); err != nil {
			t.Errorf("Hold without a bound: %v, want none", err)
		}
	}
}

// An error's body has its steps as data, and its message has them as words writes them, those of its causes and problems too.
func TestBodyHasSteps(t *testing.T) {
	inner := fault.New(fault.NotFound, "run_not_found", "no run run_X").WithSteps(fault.Do("run.list"))
	problem := fault.Problem{Code: "P-1", Field: "reads", Rule: "an artifact id", Msg: "is a path", Hint: "import the file first",
		Next: []fault.Step{fault.Do("artifact.import", "path", "x.bam")}}
	words := fault.Words(func(s fault.Step) string { return "do " + s.String() })
	for _, c := range []struct {
		err  error
		want string
		next string
	}{
		{fault.Wrap("", "", "looking", inner).WithNext("look again"),
			"looking: no run run_X. Next: look again; do run.list", `[{"verb":"run.list","args":{}}]`},
		{fmt.Errorf("outer: %w", inner), "outer: no run run_X. Next: do run.list", `[{"verb":"run.list","args":{}}]`},
		{fault.New(fault.Tool, "c", "ended.").WithNext("correct it").WithSteps(fault.Do("doctor")),
			"ended. Next: correct it: do doctor", `[{"verb":"doctor","args":{}}]`},
		{fault.Invalid("", problem), "reads: is a path (an artifact id); import the file first: do artifact.import path=x.bam",
			`[{"verb":"artifact.import","args":{"path":"x.bam"}}]`},
		{fault.Invalid("bad", problem, problem).WithSteps(fault.Do("tool.list")), "",
			`[{"verb":"tool.list","args":{}},{"verb":"artifact.import","args":{"path":"x.bam"}}]`},
		{fault.New(fault.Tool, "c", "ended"), "ended", "null"},
	} {
		body := BodyOf(words, c.err)
		next, _ := json.Marshal(body.Details["next"])
		if c.want != "" && body.Message != c.want || string(next) != c.next {
			t.Errorf("%q %s, want %q %s", body.Message, next, c.want, c.next)
		}
		if problems, _ := body.Details["problems"].([]fault.Problem); len(problems) > 0 && !strings.Contains(problems[0].Hint,
			"import the file first: ") {
			t.Error(problems[0].Hint)
		}
	}
	if got := inner.Error(); got != "no run run_X. Next: run.list" {
		t.Error(got)
	}
}

// fitSchema has every keyword that a quick check supports.
const fitSchema = `{"type":"object","required":["a"],"additionalProperties":false,"$defs":{"id":{"type":"string","minLength":2,"maxLength":4,"pattern":"^[a-z]+$"}},
 "properties":{"a":{"$ref":"#/$defs/id"},"n":{"type":"integer","minimum":-3,"maximum":5},"f":{"type":["number","null"],"minimum":0},
 "l":{"type":"array","minItems":1,"maxItems":2,"items":{"enum":["x",null,true]}},"c":{"const":"k"},"at":{"type":"string","format":"date-time"},"no":false,
 "any":{"anyOf":[{"type":"string"},{"allOf":[{"type":"number"},{"maximum":2}]}]},
 "by":{"type":"object","properties":{"own":{}},"additionalProperties":{"type":"string"}}},
 "if":{"properties":{"c":{"const":"k"}},"required":["c"]},"then":{"required":["n"]},"else":{"required":["f"]}}`

// The quick check of a schema and the library's agree on every document.
func FuzzFits(f *testing.F) {
	for _, doc := range []string{`{"a":"ab","f":null}`, `{"a":"ab","c":"k","n":5}`, `{"a":"ab","c":"k","n":5.5}`, `{"a":"ab","c":"k","n":6}`, `{"a":"ab","c":"k"}`,
		`{"a":"é","f":1}`, `{"a":"abcde","f":1}`, `{"a":"AB","f":1}`, `{"a":1,"f":1}`, `{"a":"ab","f":-1}`, `{"a":"ab","f":1,"l":[]}`,
		`{"a":"ab","f":1,"l":["x",true]}`, `{"a":"ab","f":1,"l":["x",null,true]}`, `{"a":"ab","f":1,"l":["y"]}`, `{"a":"ab","f":1,"l":[{}]}`,
		`{"a":"ab","f":1,"at":"2026-11-22T12:00:00Z"}`, `{"a":"ab","f":1,"at":"noon"}`, `{"a":"ab","f":1,"no":1}`, `{"a":"ab","f":1,"other":1}`,
		`{"a":"ab","f":1,"any":"x"}`, `{"a":"ab","f":1,"any":2}`, `{"a":"ab","f":1,"any":3}`, `{"a":"ab","f":1,"by":{"x":"y","own":1}}`, `{"a":"ab","f":1,"by":{"x":1}}`, `{"a":"ab","f":1,"c":["k"]}`, `{"f":1}`, `[]`, `null`, `1e300`} {
		f.Add(doc)
	}
	own := value(compileAll([]byte(fitSchema), ""))(f)
	envelope := value(compileEnvelopes())(f)
	all := append(own, envelope.request, envelope.response, envelope.event)
	for i, s := range all {
		if !s.quick {
			f.Fatalf("schema %d is not quick", i)
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		doc, err := plan.Read([]byte(raw))
		if err != nil {
			return
		}
		for i, s := range all {
			if err := s.Validate(doc.Value); s.obeyed(doc.Value) != (err == nil) {
				t.Errorf("schema %d, %s: the quick check returned %t, the library %v", i, raw, s.obeyed(doc.Value), err)
			}
		}
	})
}

// Schemas with other keywords are left to the library.
func TestOnlyKnownKeywordsAreQuick(t *testing.T) {
	for _, raw := range []string{`{"$ref":"#"}`, `{"properties":{"a":{"$ref":"#"}}}`, `{"items":{"uniqueItems":true}}`, `{"anyOf":[{"not":{}}]}`, `{"oneOf":[{}]}`,
		`{"enum":["a",1]}`, `{"const":{}}`, `{"minimum":0.1}`, `{"maximum":1e30}`, `{"additionalProperties":{"not":{}}}`, `{"additionalProperties":{"$ref":"#"}}`,
		`{"patternProperties":{"a":{}}}`, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"string"}`, `{"unevaluatedProperties":false}`,
		`{"multipleOf":2}`, `{"prefixItems":[{}]}`, `{"minProperties":1}`, `{"contains":{}}`, `{"dependentRequired":{"a":["b"]}}`} {
		s, err := compile("schema", json.RawMessage(raw))
		if err != nil || s.quick {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
