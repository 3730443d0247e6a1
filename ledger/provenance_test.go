package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/run"
)

// A call that is a run is found by its id while its record is stored, by its callers and by principals that may see
// every call.
func TestCallRuns(t *testing.T) {
	l := fresh(t)
	const id = "run_00000000000000000000000000"
	for n := range 30 {
		r := aCall(gate.Looks, n, t0.Add(time.Duration(n)*time.Minute))
		if n%2 == 0 {
			r.Principal = "user:other"
		}
		if n < 25 {
			r.Provenance = &gate.Provenance{RunID: id, Identity: json.RawMessage(`{"params":{"n":1}}`)}
		}
		must(t, l.Record(t.Context(), []gate.Record{r}))
	}
	for who, want := range map[string]int64{"": 25, "user:lab": 12, "user:other": 13} {
		whose := &gate.Principal{Name: who}
		if who == "" {
			whose = nil
		}
		c, err := l.CallRun(t.Context(), id, whose)
		if err != nil || c.Calls != want || c.ToolID != "test.tool" || string(c.Identity) != `{"params":{"n":1}}` || c.Last.Before(c.First) ||
			len(c.CallIDs) != min(20, int(want)) {
			t.Errorf("CallRun for %q = %d calls of %s with %s, ids %q, %v; want %d calls of test.tool", who, c.Calls,
				c.ToolID, c.Identity, c.CallIDs, err, want)
		}
	}
	for who, want := range map[string]bool{"user:lab": true, "user:other": true, "user:third": false} {
		if asked, err := l.Asked(t.Context(), gate.Principal{Name: who}, id); err != nil || asked != want {
			t.Error(who, asked, err)
		}
	}
	if p, err := l.Calls(t.Context(), CallFilter{RunID: id, Limit: 10}); err != nil || len(p.Calls) != 10 || p.Total != (Total{25, true}) {
		t.Errorf("%d of %d calls, exact %t, %v; want 10 of 25", len(p.Calls), p.Total.N, p.Total.Exact, err)
	}
	if _, err := l.CallRun(t.Context(), id, &gate.Principal{ID: "prn_3", Name: "user:lab"}); !fault.Is(err,
		fault.NotFound) {
		t.Error(err)
	}
	_, err := l.DropCalls(t.Context(), gate.Looks, CallLimits{t0.Add(24 * time.Minute), 1000, 1 << 40})
	must(t, err)
	if c, err := l.CallRun(t.Context(), id, nil); err != nil || c.Calls != 1 {
		t.Errorf("after the others were dropped: %d calls, %v; want 1", c.Calls, err)
	}
	_, err = l.VerifyCalls(t.Context())
	must(t, err)
}

// The counts that lists show are those of the runs, whatever has happened to them, also in a ledger that is older than the counts.
func TestTotals(t *testing.T) {
	check := func(l *Ledger) {
		t.Helper()
		runs := dump(t, l, "SELECT project_id, tool_id, state, count(*) FROM runs GROUP BY 1, 2, 3 ORDER BY 1, 2, 3")
		if counts := dump(t, l, "SELECT project_id, tool_id, state, n FROM run_counts WHERE n > 0 ORDER BY 1, 2, 3"); counts != runs ||
			runs == "" {
			t.Errorf("counted\n%s\nthere are\n%s", counts, runs)
		}
	}
	l := fresh(t)
	for i := range 20 {
		v := insert(t, l, i)
		if i%3 == 0 {
			finish(t, l, v)
		}
	}
	check(l)
	counts, err := l.Counts(t.Context())
	if err != nil || counts["succeeded"] != 7 || counts["queued"] != 13 {
		t.Error(counts, err)
	}
	p, err := l.List(t.Context(), Filter{State: run.Succeeded, Limit: 3})
	if err != nil || len(p.Runs) != 3 || p.Total != (Total{7, true}) {
		t.Errorf("%d of %d runs, exact %t, %v; want 3 of 7", len(p.Runs), p.Total.N, p.Total.Exact, err)
	}
}

func dump(t *testing.T, l *Ledger, q string) (out string) {
	t.Helper()
	rows, err := l.r.Query(q)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var a, b, c string
		var n int64
		must(t, rows.Scan(&a, &b, &c, &n))
		out += fmt.Sprintln(a, b, c, n)
	}
	must(t, rows.Err())
	return out
}
