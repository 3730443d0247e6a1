package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// holdCalls holds the calls that the gateway makes for rows, after the first ones, until release. held is closed when it holds one.
func holdCalls(g *Gateway, first int) (held <-chan struct{}, release func()) {
	one, free := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	calls := 0
	g.Again = func(_ context.Context, p gate.Principal) (gate.Principal, error) {
		mu.Lock()
		calls++
		n := calls
		mu.Unlock()
		if n == first+1 {
			close(one)
		}
		if n > first {
			<-free
		}
		return p, nil
	}
	return one, func() { close(free) }
}

// sheetOf returns a sheet with a row for each artifact.
func sheetOf(ids []string) string {
	var b strings.Builder
	b.WriteString("sample,reads\n")
	for i, id := range ids {
		fmt.Fprintf(&b, "S%d,%s\n", i, id)
	}
	return b.String()
}

// rowsByState counts the rows of a batch.
func (g *Gateway) rowsByState(t *testing.T, batch string) map[string]int64 {
	t.Helper()
	b, err := g.Ledger.Batch(t.Context(), batch)
	must(t, err)
	return b.Counts
}

// A cancel that is acknowledged while rows are being submitted is final: no further row becomes a run, including rows
// read before the cancel and rows whose call is in progress, and the end of each existing run has been requested.
//
// proves MANY-01
func TestCancelWhileRowsAreSubmitted(t *testing.T) {
	for _, before := range []int{0, 5, 40} {
		t.Run(fmt.Sprint(before, " rows submitted before"), func(t *testing.T) {
			g := batchGateway(t)
			var began BatchStarted
			g.does(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": sheetOf(g.reads(t, 64))}, &began)
			held, release := holdCalls(g, before)
			g.StartLoop(t.Context())
			defer g.StopLoop()
			<-held
			var changed BatchChanged
			g.does(t, "batch.cancel", map[string]any{"batch": "b"}, &changed)
			acknowledged := g.runIDs(t)
			open := 0
			for _, id := range acknowledged {
				v, err := g.Ledger.View(t.Context(), id)
				must(t, err)
				if v.Run.CancelAt == nil {
					open++
				}
			}
			if open > 0 {
				t.Errorf("%d of %d runs have no request to cancel when batch.cancel answers, want 0", open, len(acknowledged))
			}
			release()
			g.settle(t)
			if now := g.runIDs(t); len(now) != len(acknowledged) {
				t.Errorf("%d runs after the cancel was acknowledged, %d when it was; want none more", len(now), len(acknowledged))
			}
			if n := g.rowsByState(t, began.BatchID); n["cancelled"] != 64 {
				t.Errorf("rows by state = %v, want 64 cancelled", n)
			}
		})
	}
}

// A retry of a batch that is cancelled while the gateway processes its rows opens no attempt.
func TestCancelWhileRowsAreRetried(t *testing.T) {
	g := batchGateway(t)
	var began BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": sheetOf(g.reads(t, 8))}, &began)
	for g.rowsByState(t, began.BatchID)["waiting"] > 0 {
		if _, err := g.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range g.runIDs(t) {
		g.isOver(t, id, run.Failed)
	}
	var changed BatchChanged
	g.does(t, "batch.retry", map[string]any{"batch": "b"}, &changed)
	held, release := holdCalls(g, 0)
	g.StartLoop(t.Context())
	defer g.StopLoop()
	<-held
	g.does(t, "batch.cancel", map[string]any{"batch": "b"}, &changed)
	release()
	g.settle(t)
	for _, id := range g.runIDs(t) {
		if v, err := g.Ledger.View(t.Context(), id); err != nil || v.Run.AttemptN != 1 {
			t.Errorf("run %s is at attempt %d (%v) after the retry was cancelled, want 1", id, v.Run.AttemptN, err)
		}
	}
}

// Rows of a later step that are being recorded as waiting when their chain is cancelled do not wait, so that no run
// starts when the earlier step ends.
func TestCancelWhileStepsAreSubmitted(t *testing.T) {
	g := chainGateway(t)
	const steps = "steps:\n  - {name: a, tool: a.one}\n  - {name: b, tool: b.two, from: {x: a.out}}\n"
	var began BatchStarted
	g.does(t, "batch.run", map[string]any{"steps": steps, "name": "c", "sheet": "sample,a.x\n" + strings.TrimPrefix(sheetOf(g.reads(t, 8)),
		"sample,reads\n")}, &began)
	held, release := holdCalls(g, 8) // the rows of the first step, then some of the second
	g.StartLoop(t.Context())
	defer g.StopLoop()
	<-held
	var changed BatchChanged
	g.does(t, "batch.cancel", map[string]any{"batch": "c"}, &changed)
	release()
	g.settle(t)
	if _, n, err := g.Ledger.Waitings(t.Context(), ledger.Filter{State: run.Queued}); n != 0 || err != nil {
		t.Errorf("%d runs wait after their chain was cancelled (%v), want none", n, err)
	}
}

// A batch's cancel concerns the attempts open at that time: it leaves alone an attempt that another caller opens
// later, even if the gateway had not processed the row by then.
func TestCancelSparesALaterAttempt(t *testing.T) {
	g := batchGateway(t)
	var began BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": sheetOf(g.reads(t, 1))}, &began)
	if _, err := g.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := g.runIDs(t)[0]
	var changed BatchChanged
	g.does(t, "batch.cancel", map[string]any{"batch": "b"}, &changed)
	g.isOver(t, id, run.Cancelled)
	var again run.SubmitAnswer
	g.does(t, "slurm.job.retry", map[string]any{"run_id": id, "after_attempt": 1}, &again)
	if _, err := g.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := g.Ledger.View(t.Context(), id); err != nil || v.Run.AttemptN != 2 || v.Run.CancelAt != nil || v.Run.State.Terminal() {
		t.Errorf("attempt %d of the run is %s with a request to cancel at %v (%v), want an open attempt 2 that none cancelled",
			v.Run.AttemptN, v.Run.State, v.Run.CancelAt, err)
	}
}

// Cancelled rows can be submitted again, even before the gateway has processed the cancel; for a run whose cancel is
// in progress the answer reports that.
func TestRetryRightAfterCancel(t *testing.T) {
	g := batchGateway(t)
	var began BatchStarted
	g.does(t, "batch.run", map[string]any{"tool_id": "seqkit.stats", "name": "b", "sheet": sheetOf(g.reads(t, 2))}, &began)
	if _, err := g.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	var changed BatchChanged
	g.does(t, "batch.cancel", map[string]any{"batch": "b"}, &changed)
	over := g.runIDs(t)[0]
	g.isOver(t, over, run.Cancelled)
	g.does(t, "batch.retry", map[string]any{"batch": "b", "cancelled": true}, &changed)
	if changed.Changed != 1 || !strings.Contains(changed.Message, "the runs of 1 are still being cancelled") {
		t.Errorf("batch.retry of one run that is over and one that is being cancelled: %d changed, %q, want 1 and word of the other",
			changed.Changed, changed.Message)
	}
	if _, err := g.turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, err := g.Ledger.View(t.Context(), over); err != nil || v.Run.AttemptN != 2 {
		t.Errorf("the cancelled run is at attempt %d after the retry (%v), want 2", v.Run.AttemptN, err)
	}
}
