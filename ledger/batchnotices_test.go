package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/notify"
	"slurmgate/run"
)

// A notice of a batch is due in the transaction that ends its last open row, and says how the rows ended then; a retry opens the batch
// again, and its next end is told once more. One of a batch that is over is due at once.
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
		t.Errorf("%+v", n)
	}
	if again, err := ask("2", "https://a/1"); err != nil || again.ID != n.ID {
		t.Errorf("%+v %v", again, err)
	}
	_, err = ask("3", "https://a/3")
	must(t, err)
	if _, err := ask("4", "https://a/4"); fault.CodeOf(err) != "too_many_notices" {
		t.Error(err)
	}
	// Three rows end in three ways; the fourth is open until its run ends.
	one, two := insert(t, l, 1), insert(t, l, 2)
	must(t, l.RowIsRun(ctx, b.ID, 2, one.Run.ID))
	must(t, l.RowIsRun(ctx, b.ID, 3, one.Run.ID))
	todo, err := l.BatchTodo(ctx, 9, nil)
	must(t, err)
	must(t, l.RowRefused(ctx, todo[0], "capability_denied", "no"))
	finish(t, l, one)
	if got := due(); len(got) != 0 {
		t.Errorf("due before the last row: %+v", got)
	}
	finish(t, l, two)
	must(t, l.RowIsRun(ctx, b.ID, 5, two.Run.ID)) // a run that was over before
	got := due()
	if len(got) != 2 || fmt.Sprint(got[0].Counts) != "map[refused:1 succeeded:3]" {
		t.Fatalf("%+v", got)
	}
	e, err := l.NoticeEvent(ctx, got[0])
	if d, ok := e.(notify.BatchData); err != nil || !ok || d.BatchID != b.ID || d.Name != "a" || d.Rows != 4 || d.Counts["succeeded"] != 3 ||
		d.FinishedAt.IsZero() {
		t.Errorf("%+v %v", e, err)
	}
	must(t, l.NoticeTried(ctx, "ntc_1", "answered with status 204", true, nil))
	must(t, l.NoticeTried(ctx, "ntc_3", "given up: answered with status 410", false, nil))
	// A retry opens the batch: the place that was told waits again, the one that was given up does not.
	if n, err := l.RetryBatch(ctx, b.ID, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	all, err := l.Notices(ctx, notify.Notice{BatchID: b.ID})
	if must(t, err); len(all) != 3 || all[2].URL != "https://a/1" || all[2].DueAt != nil || len(due()) != 0 {
		t.Errorf("%+v", all)
	}
	three := insert(t, l, 3)
	must(t, l.RowIsRun(ctx, b.ID, 4, three.Run.ID))
	if len(due()) != 0 {
		t.Errorf("%+v", due())
	}
	apply(t, l, three, func(w *run.Write) {
		w.Run.State, w.Run.Phase, w.Run.Reason, w.Run.FinishedAt = run.Failed, run.Done, "tool_failed", &t0
		a := three.Attempt
		a.Ending = run.EndedToolFailed
		w.Attempts = []run.Attempt{a}
	})
	if got = due(); len(got) != 1 || got[0].ID != all[2].ID || fmt.Sprint(got[0].Counts) != "map[failed:1 succeeded:3]" {
		t.Fatalf("%+v", got)
	}
	must(t, l.NoticeTried(ctx, got[0].ID, "answered with status 200", true, nil))
	if _, err := ask("5", "https://a/5"); err != nil {
		t.Fatal(err)
	}
	if got = due(); len(got) != 1 || got[0].ID != "ntc_5" || got[0].Counts["failed"] != 1 || got[0].DueAt.After(got[0].AskedAt) ||
		got[0].DueAt.Before(b.CreatedAt) {
		t.Errorf("%+v", got)
	}
	must(t, l.Integrity(ctx))
}
