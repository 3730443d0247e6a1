package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
	"slurmgate/notify"
	"slurmgate/run"
)

// A notice of a batch is due in the transaction that ends its last open row, and has the states of the rows then; a
// retry opens the batch again, and its next end is reported again. A notice of a finished batch is due at once.
//
// proves MANY-05
func TestBatchNotices(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	var rows []BatchRow
	for i := range 4 {
		rows = append(rows, BatchRow{N: i + 2, Sample: fmt.Sprint("S", i), Args: json.RawMessage(`{}`)})
	}
	b, _, err := l.NewBatch(ctx, Batch{ID: "batch_a", ProjectID: project, Name: "a", ToolID: "t.x", ToolVersion: "1.0.0", RowsHash: "h",
		Caller: json.RawMessage(`{}`)}, rows)
	must(t, err)
	ask := func(id, url string) (notify.Notice, error) {
		return l.AddNotice(ctx, notify.Notice{ID: "ntc_" + id, BatchID: b.ID, URL: url, Origin: "https://a", By: "ana", ByID: "prn_ana"}, 2)
	}
	due := func() (out []notify.Notice) {
		t.Helper()
		out, err := l.DueNotices(ctx, time.Now().Add(24*time.Hour), 9)
		must(t, err)
		return out
	}
	n, err := ask("1", "https://a/1")
	if must(t, err); n.DueAt != nil || n.BatchID != b.ID || n.RunID != "" {
		t.Errorf("a new notice has the batch %q, run %q, due %v; want batch %s, no run, not due", n.BatchID, n.RunID,
			n.DueAt, b.ID)
	}
	if again, err := ask("2", "https://a/1"); err != nil || again.ID != n.ID {
		t.Errorf("the same notice again is %s, %v; want %s", again.ID, err, n.ID)
	}
	_, err = ask("3", "https://a/3")
	must(t, err)
	if _, err := ask("4", "https://a/4"); fault.CodeOf(err) != "too_many_notices" {
		t.Error(err)
	}
	// Three rows end in three ways; the fourth is open until its run ends.
	one, two := insert(t, l, 1), insert(t, l, 2)
	must(t, l.RowIsRun(ctx, run.RowRef{BatchID: b.ID, N: 2}, one.Run.ID))
	must(t, l.RowIsRun(ctx, run.RowRef{BatchID: b.ID, N: 3}, one.Run.ID))
	todo, err := l.BatchTodo(ctx, 9, nil)
	must(t, err)
	must(t, l.RowRefused(ctx, todo[0], "capability_denied", "no"))
	finish(t, l, one)
	if got := due(); len(got) != 0 {
		t.Errorf("%d notices are due before the last row ended, want none", len(got))
	}
	finish(t, l, two)
	must(t, l.RowIsRun(ctx, run.RowRef{BatchID: b.ID, N: 5}, two.Run.ID)) // a run that was over before
	got := due()
	if len(got) != 2 || fmt.Sprint(got[0].Counts) != "map[refused:1 succeeded:3]" {
		t.Fatalf("due are %+v, want 2 notices with 1 row refused and 3 succeeded", got)
	}
	e, err := l.NoticeEvent(ctx, got[0])
	if d, ok := e.(notify.BatchData); err != nil || !ok || d.BatchID != b.ID || d.Name != "a" || d.Rows != 4 || d.Counts["succeeded"] != 3 ||
		d.FinishedAt.IsZero() {
		t.Errorf("the event is %+v, %v; want batch %s, name a, 4 rows, 3 of them succeeded, and a time", e, err, b.ID)
	}
	must(t, l.NoticeTried(ctx, got[0], "answered with status 204", true, nil))
	must(t, l.NoticeTried(ctx, got[1], "given up: answered with status 410", false, nil))
	// A retry opens the batch: the notice that was delivered waits again, the one that was given up does not.
	if n, _, err := l.RetryBatches(ctx, []string{b.ID}, false, nil); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	all, err := l.Notices(ctx, notify.Notice{BatchID: b.ID})
	if must(t, err); len(all) != 3 || all[2].URL != "https://a/1" || all[2].DueAt != nil || len(due()) != 0 {
		t.Errorf("%d notices, %d due: %+v; want 3, none due, the last to https://a/1", len(all), len(due()), all)
	}
	three := insert(t, l, 3)
	must(t, l.RowIsRun(ctx, run.RowRef{BatchID: b.ID, N: 4}, three.Run.ID))
	if len(due()) != 0 {
		t.Errorf("%d notices are due while a row runs, want none", len(due()))
	}
	apply(t, l, three, func(w *run.Write) {
		w.Run.State, w.Run.Phase, w.Run.Reason, w.Run.FinishedAt = run.Failed, run.Done, "tool_failed", &t0
		a := three.Attempt
		a.Ending = run.EndedToolFailed
		w.Attempts = []run.Attempt{a}
	})
	if got = due(); len(got) != 1 || got[0].ID != all[2].ID || fmt.Sprint(got[0].Counts) != "map[failed:1 succeeded:3]" {
		t.Fatalf("due are %+v, want notice %s with 1 row failed and 3 succeeded", got, all[2].ID)
	}
	must(t, l.NoticeTried(ctx, got[0], "answered with status 200", true, nil))
	if _, err := ask("5", "https://a/5"); err != nil {
		t.Fatal(err)
	}
	if got = due(); len(got) != 1 || got[0].ID != "ntc_5" || got[0].Counts["failed"] != 1 || got[0].DueAt.After(got[0].AskedAt) ||
		got[0].DueAt.Before(b.CreatedAt) {
		t.Errorf("due are %+v, want ntc_5 with 1 row failed, due between the batch's time and the request", got)
	}
	must(t, l.Integrity(ctx))
}

// A cancel of a batch that shares its transaction with a refused change is carried out a second time: the batch is
// cancelled by that, for the one who alone asked for it, and does not go on.
//
// proves MANY-01
func TestBatchIsCancelledThoughAChangeBesideItIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) {
		l, ana := openAt(t, path), run.Principal{Name: "ana", ID: "prn_ana"}
		asks := run.Asking{Principal: ana}
		rows := []BatchRow{{N: 2, Sample: "S1", Args: json.RawMessage(`{}`)}, {N: 3, Sample: "S2", Args: json.RawMessage(`{}`)}}
		_, _, err := l.NewBatch(t.Context(), Batch{ID: "batch_a", ProjectID: project, Name: "a", ToolID: "t.x", ToolVersion: "1.0.0",
			RowsHash: "h", Principal: ana, Asking: asks, Caller: json.RawMessage(`{}`)}, rows)
		must(t, err)
		free := make(chan bool)
		begin := func(do func() error) <-chan error {
			ended := make(chan error, 1)
			go func() { ended <- do() }()
			synctest.Wait() // it waits, behind the others
			return ended
		}
		first := begin(func() error {
			return l.tx(t.Context(), func(context.Context, *sql.Conn) error { <-free; return nil })
		})
		var did BatchCancelled
		cancelled := begin(func() (err error) {
			did, err = l.CancelBatch(t.Context(), "batch_a", "", run.Withdrawal{By: ana, Of: asks}, false)
			return err
		})
		refused := begin(func() error {
			return l.tx(t.Context(), func(context.Context, *sql.Conn) error { return errors.New("refused") })
		})
		close(free)
		must(t, <-first)
		must(t, <-cancelled)
		if <-refused == nil {
			t.Error("the change that returns an error was carried out, want it refused")
		}
		if did.Dropped != 2 || len(did.Held) > 0 {
			t.Errorf("the cancel dropped %d rows and left the batch to %v, want 2 rows, and left to no one", did.Dropped, did.Held)
		}
		if b, err := l.Batch(t.Context(), "batch_a"); err != nil || b.Todo != 0 || b.Counts["cancelled"] != 2 {
			t.Errorf("after the cancel %d rows are to be submitted and the rows are %v (%v), want 0 and 2 cancelled", b.Todo, b.Counts, err)
		}
	})
}
