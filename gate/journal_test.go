package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// picky is a journal that refuses the records of one principal, and every record while it is full.
type picky struct {
	stuck
	refuses string
}

func (p *picky) Record(ctx context.Context, records []Record) error {
	for _, r := range records {
		if r.Principal == p.refuses {
			return fault.New(fault.Internal, "ledger_refused", "the ledger refused the change")
		}
	}
	return p.stuck.Record(ctx, records)
}

func journalGate(t *testing.T, j Journal, log io.Writer, tools ...Tool) *Gate {
	t.Helper()
	r := value(NewRegistry(tools...))(t)
	return New(Config{Registry: r, Journal: j, Log: slog.New(slog.NewTextHandler(log, nil))})
}

func callAs(g *Gate, name string, req Request) Response {
	who := Process()
	who.Name = name
	return g.Call(context.Background(), who, req)
}

// The caller of an effect whose record the ledger refuses gets that error, though the record was written together
// with accepted ones.
//
// proves HTC-08
func TestRefusedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := &picky{refuses: "bad"}
		g := journalGate(t, p, io.Discard, tool("test.echo", func(context.Context, Call) (any, error) { <-release; return nil, nil }))
		defer g.Close()
		answers := map[string]chan Response{}
		for _, name := range []string{"a", "bad", "b"} {
			answer := make(chan Response, 1)
			answers[name] = answer
			go func() { answer <- callAs(g, name, NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))) }()
		}
		synctest.Wait()
		close(release) // all three records wait at once
		for _, name := range []string{"a", "b"} {
			if res := <-answers[name]; !res.OK {
				t.Error(name, res.Error)
			}
		}
		res := <-answers["bad"]
		wantError(t, res, "transport", "not_recorded")
		if res.Error.Retryable || !strings.Contains(res.Error.Message, "no record of this call will be written") {
			t.Errorf("the error is retryable: %t, message %q; want a final error without a record", res.Error.Retryable,
				res.Error.Message)
		}
		g.Close()
		if len(p.calls) != 2 {
			t.Error(len(p.calls), "records, want those of a and b")
		}
	})
}

// A gateway that stops tries the records behind a few more times, and names in its log what it could not write.
func TestStoppingWithRecordsBehind(t *testing.T) {
	for mended, want := range map[bool]int{true: 1, false: 0} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			p := &picky{stuck: stuck{full: true}}
			g := journalGate(t, p, &log, tool("test.echo", echo))
			wantError(t, call(g, "test.echo", `{"n":1}`), "transport", "not_recorded")
			closed := make(chan struct{})
			go func() { g.Close(); close(closed) }()
			synctest.Wait()
			p.mu.Lock()
			p.full = !mended
			p.mu.Unlock()
			start := time.Now()
			<-closed
			if d := time.Since(start); d > (lastTries+1)*retryPause {
				t.Error("closing took", d)
			}
			if len(p.calls) != want || strings.Contains(log.String(), "the gateway stops") == mended {
				t.Errorf("mended %t: %d records, log %s", mended, len(p.calls), log.String())
			}
		})
	}
}

// A call that ends after the journal was closed is recorded all the same.
func TestCallAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, p := make(chan struct{}), &picky{}
		g := journalGate(t, p, io.Discard, tool("test.echo", func(context.Context, Call) (any, error) { <-release; return nil, nil }))
		answer := make(chan Response, 1)
		go func() { answer <- call(g, "test.echo", `{"n":1}`) }()
		synctest.Wait()
		g.Close()
		close(release)
		if res := <-answer; !res.OK || len(p.calls) != 1 {
			t.Error(res.Error, len(p.calls))
		}
	})
}

// Redaction may make a caller's text longer than the event's schema allows; the effect is recorded all the same.
func TestLongTextsInTheRecord(t *testing.T) {
	g, b := newGate(t, nil, echo)
	long := strings.Repeat("a://:x@ ", 32) // 256 characters
	req := NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))
	req.SessionID, req.Actor.AgentID, req.Actor.ModelID = &long, &long, &long
	if Scrub(long) == long || len(Scrub(long)) <= maxTextID {
		t.Fatal("the text is not a case of this test: ", Scrub(long))
	}
	if res := g.Call(t.Context(), Process(), req); !res.OK {
		t.Errorf("the call ended with %+v, want success", res.Error)
	}
	g.Close()
	if len(b.calls) != 1 || CheckEvent(b.calls[0].Event) != nil {
		t.Errorf("%d records", len(b.calls))
	}
}

// An event that breaks the schema is replaced by a bare one: no text of a caller prevents an effect from being
// recorded.
func TestBareRecord(t *testing.T) {
	p := &picky{}
	g := journalGate(t, p, io.Discard, tool("test.echo", echo))
	req := NewRequest("test.echo", "1.2.3", json.RawMessage(`{"n":1}`))
	req.Actor.Kind = "neither" // as no face could send it
	res := g.call(t.Context(), Process(), req, plan.Doc{Bytes: req.Args, Value: map[string]any{"n": 1.0}}, nil)
	g.Close()
	if !res.OK || len(p.calls) != 1 || p.calls[0].Chain != Effects || CheckEvent(p.calls[0].Event) != nil {
		t.Errorf("ok %t with error %+v, %d records; want success and one valid record in %s", res.OK, res.Error,
			len(p.calls), Effects)
	}
}

// An error after a tool was reached is retryable only if a repeat does nothing more. An unknown outcome never is.
func TestRetryable(t *testing.T) {
	for _, c := range []struct {
		repeat string
		kind   fault.Kind
		want   bool
	}{{Idempotent, fault.Transport, true}, {Idempotent, fault.Timeout, true}, {Idempotent, fault.Unknown, false},
		{IdempotentWithKey, fault.Transport, false},
		{NonIdempotent, fault.Transport, false}, {NonIdempotent, fault.Timeout, false}} {
		x := tool("test.echo", func(context.Context, Call) (any, error) { return nil, fault.New(c.kind, "test", "it failed") })
		x.Idempotency = c.repeat
		g := journalGate(t, &picky{}, io.Discard, x)
		if res := call(g, "test.echo", `{"n":1}`); res.Error == nil || res.Error.Retryable != c.want {
			t.Errorf("%+v: the call ended with %+v", c, res.Error)
		}
		g.Close()
	}
}
