package ledger

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/notify"
	"slurmgate/plan"
	"slurmgate/run"
)

// A notice is due in the transaction that ends its run, at once if that was before, and settled once. proves MANY-05
func TestNotices(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	v := insert(t, l, 1)
	ask := func(id, url, by string) (notify.Notice, error) {
		return l.AddNotice(ctx, notify.Notice{ID: "ntc_" + id, RunID: v.Run.ID, URL: url, Origin: "https://a", By: by, ByID: "prn_" + by}, 2)
	}
	one, err := ask("1", "https://a/1", "ana")
	must(t, err)
	again, err := ask("2", "https://a/1", "ana")
	if must(t, err); again.ID != one.ID || one.DueAt != nil || one.NextAt != nil {
		t.Errorf("%+v %+v", one, again)
	}
	_, err = ask("3", "https://a/3", "ana")
	must(t, err)
	if _, err := ask("4", "https://a/4", "ana"); fault.CodeOf(err) != "too_many_notices" {
		t.Error(err)
	}
	if _, err := l.AddNotice(ctx, notify.Notice{ID: "ntc_x", RunID: "run_none", URL: "https://a", Origin: "https://a"}, 2); !fault.Is(err,
		fault.NotFound) {
		t.Error(err)
	}
	far := l.now().Add(24 * time.Hour)
	due := func(at time.Time) (out []string) {
		list, err := l.DueNotices(ctx, at, 2)
		must(t, err)
		for _, n := range list {
			out = append(out, n.ID)
		}
		return out
	}
	if got := due(far); len(got) != 0 {
		t.Error(got)
	}
	v = finish(t, l, v)
	_, err = ask("5", "https://a/5", "bob")
	must(t, err)
	if got := due(far); fmt.Sprint(got) != "[ntc_1 ntc_3]" { // at most two of an origin
		t.Error(got)
	}
	said, err := l.NoticeEvent(ctx, one)
	e, _ := said.(notify.EventData)
	if must(t, err); e.RunID != v.Run.ID || e.State != string(v.Run.State) || e.FinishedAt.IsZero() || e.GatewayID != l.ID() {
		t.Errorf("%+v", e)
	}
	must(t, l.NoticeTried(ctx, "ntc_1", "answered with status 204", true, nil))
	must(t, l.NoticeTried(ctx, "ntc_1", "late", false, &far)) // it is settled
	must(t, l.HoldNotices(ctx, "https://a", l.now().Add(time.Minute), far))
	if got := due(l.now().Add(time.Hour)); len(got) != 0 {
		t.Error(got)
	}
	if n, err := l.NoticesDelivered(ctx, "https://a", l.now().Add(-time.Hour)); n != 1 || err != nil {
		t.Error(n, err)
	}
	list, err := l.Notices(ctx, notify.Notice{RunID: v.Run.ID})
	if must(t, err); len(list) != 3 || !list[0].Delivered || list[0].SettledAt == nil || list[0].Result != "answered with status 204" ||
		list[1].SettledAt != nil {
		t.Errorf("%+v", list)
	}
	_, signature, err := l.SignNotice(ctx, []byte("x"))
	if must(t, err); len(signature) != 64 {
		t.Error(len(signature))
	}
}

// A notice of a run that waits for its inputs goes over to the run that it becomes, and tells of that one's end; if the inputs never come,
// it tells of that.
//
// proves MANY-04 MANY-05
func TestNoticesOfWaitingRuns(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	x := finish(t, l, insert(t, l, 1))
	promise := plan.Promise{RunID: x.Run.ID, Role: "out"}
	a, b := waits(t, l, 1, promise), waits(t, l, 2, promise)
	ask := func(id, runID string) notify.Notice {
		t.Helper()
		n, err := l.AddNotice(ctx, notify.Notice{ID: "ntc_" + id, RunID: runID, URL: "https://a/" + id, Origin: "https://a", By: "ana",
			ByID: "prn_ana"}, 8)
		must(t, err)
		return n
	}
	due := func() (out []notify.Notice) {
		t.Helper()
		out, err := l.DueNotices(ctx, l.now().Add(24*time.Hour), 9)
		must(t, err)
		return out
	}
	said := func(n notify.Notice) notify.EventData {
		t.Helper()
		e, err := l.NoticeEvent(ctx, n)
		must(t, err)
		return e.(notify.EventData)
	}
	if n := ask("1", a.ID); n.RunID != a.ID || n.WaitedAs != a.ID || n.DueAt != nil {
		t.Errorf("%+v", n)
	}
	ask("2", b.ID)

	n := newRun(2)
	n.Waited = a.ID
	y, _, err := l.Insert(ctx, n)
	must(t, err)
	if got := due(); len(got) != 0 {
		t.Errorf("due when the run began: %+v", got)
	}
	finish(t, l, y)
	got := due()
	if len(got) != 1 || got[0].ID != "ntc_1" {
		t.Fatalf("%+v", got)
	}
	if e := said(got[0]); e.RunID != y.Run.ID || e.WaitedAs != a.ID || e.State != "succeeded" {
		t.Errorf("%+v", e)
	}
	must(t, l.NoticeTried(ctx, "ntc_1", "answered with status 204", true, nil))

	fail := func(attempt int) {
		t.Helper()
		if w, err := l.EndWaiting(ctx, b.ID, WaitingFailed, "input_failed", "x"); err != nil || w.AttemptN != attempt {
			t.Fatalf("%+v %v", w, err)
		}
	}
	fail(1)
	if got = due(); len(got) != 1 || got[0].ID != "ntc_2" {
		t.Fatalf("%+v", got)
	}
	if e := said(got[0]); e.RunID != b.ID || e.WaitedAs != "" || e.State != "failed" || e.Reason != "input_failed" {
		t.Errorf("%+v", e)
	}
	// Set waiting again before anybody was told: the next end is told.
	if _, err := l.WaitAgain(ctx, b.ID, 1, "y", run.Principal{Name: "ana"}, json.RawMessage(`{}`)); err != nil {
		t.Fatal(err)
	}
	if got = due(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	fail(2)
	if got = due(); len(got) != 1 || said(got[0]).Attempt != 2 {
		t.Errorf("%+v", got)
	}

	// A run that waited becomes one that is over: it is told of at once.
	c := waits(t, l, 3, promise)
	ask("3", c.ID)
	must(t, l.StartWaiting(ctx, c.ID, y.Run.ID))
	if list, err := l.Notices(ctx, notify.Notice{RunID: c.ID}); err != nil || len(list) != 1 || list[0].RunID != y.Run.ID ||
		list[0].DueAt == nil {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := l.Notices(ctx, notify.Notice{RunID: y.Run.ID}); err != nil || len(list) != 2 {
		t.Errorf("%+v %v", list, err)
	}
	if n := ask("4", c.ID); n.DueAt == nil || n.RunID != y.Run.ID { // by the name under which it waited
		t.Errorf("%+v", n)
	}
	must(t, l.Integrity(ctx))
}
