package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"slurmgate/fault"
)

func stranger() error {
	return fault.New(fault.Auth, "", "unauthenticated", "no credentials in the request")
}

// A request of somebody nobody knows is recorded as a look, with ids of the gateway's own and a principal and a tool that nobody and
// nothing can have.
//
// proves HTC-08
func TestRefuse(t *testing.T) {
	g, b := newGate(t, nil, echo)
	res := g.Refuse(Source{Other, "192.0.2.7"}, stranger())
	wantError(t, res, "auth", "unauthenticated")
	if uuid.Validate(res.ToolCallID) != nil || res.ToolCallID == uuid.Nil.String() || res.Resources.Artifacts == nil {
		t.Errorf("%+v", res)
	}
	g.Malformed(t.Context(), Process(), "test.echo", fault.Invalid("", "", fault.Problem{Code: "QUERY", Field: "x", Msg: "unknown"}))
	raw := g.CallRaw(t.Context(), Process(), []byte("not JSON"))
	g.Close()
	if len(b.calls) != 3 {
		t.Fatal(len(b.calls))
	}
	for i, want := range []Record{{Principal: "unauthenticated@192.0.2.7", ToolID: "unknown", ToolCallID: res.ToolCallID},
		{Principal: "process", ToolID: "test.echo"}, {Principal: "process", ToolID: "unknown", ToolCallID: raw.ToolCallID}} {
		r := b.calls[i]
		if r.Chain != Looks || r.OK || r.Principal != want.Principal || r.ToolID != want.ToolID || r.ToolCallID == uuid.Nil.String() ||
			want.ToolCallID != "" && r.ToolCallID != want.ToolCallID || CheckEvent(r.Event) != nil {
			t.Errorf("%+v, want %+v", r, want)
		}
	}
}

// A flood of such requests costs two records a minute of each source, and no more than a fixed number of sources are counted apart. None
// is lost from the count.
func TestFloodOfStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, b := newGate(t, nil, echo)
		const each, sources = 500, 3 * maxRefusals
		for range each {
			for s := range sources {
				g.Refuse(Source{Other, fmt.Sprint("192.0.2.", s)}, stranger())
			}
		}
		time.Sleep(refusalPause + time.Second)
		synctest.Wait()
		g.Refuse(Source{Other, "192.0.2.1"}, stranger()) // a minute later it begins anew
		g.Close()
		if n := len(b.calls); n > 2*(maxRefusals+1)+1 {
			t.Error(n, "records")
		}
		counted := 0
		for _, r := range b.calls {
			var n int
			if at := strings.Index(string(r.Event), "the last of "); at < 0 {
				counted++
			} else if _, err := fmt.Sscanf(string(r.Event[at:]), "the last of %d", &n); err == nil {
				counted += n
			}
		}
		if counted != each*sources+1 || !slices.ContainsFunc(b.calls, func(r Record) bool { return r.Principal == "unauthenticated@elsewhere" }) {
			t.Errorf("%d of %d requests are in the record", counted, each*sources+1)
		}
	})
}

// While the journal is full, strangers get no room in it.
func TestStrangersAndAFullJournal(t *testing.T) {
	g, b := newGate(t, nil, echo)
	for range maxQueued {
		g.journal.room <- struct{}{}
	}
	start := time.Now()
	g.Refuse(Source{Other, "192.0.2.7"}, stranger())
	if d := time.Since(start); d > journalWait/2 {
		t.Error("it waited", d)
	}
	for range maxQueued {
		<-g.journal.room
	}
	g.Close()
	if len(b.calls) != 0 {
		t.Error(len(b.calls))
	}
}
