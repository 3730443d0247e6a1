package ledger

import (
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
		t.Errorf("the same notice again is %s, want %s; due %v, next %v, want neither", again.ID, one.ID, one.DueAt, one.NextAt)
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
		list, err := l.DueNotices(ctx, at, 1)
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
	if got := due(far); fmt.Sprint(got) != "[ntc_1 ntc_5]" {
		t.Errorf("due, at most one for each caller: %v, want ntc_1 of ana and ntc_5 of bob", got)
	}
	one = l.notice(t, v.Run.ID, "ntc_1")
	said, err := l.NoticeEvent(ctx, one)
	e, _ := said.(notify.EventData)
	if must(t, err); e.RunID != v.Run.ID || e.State != string(v.Run.State) || e.FinishedAt.IsZero() || e.GatewayID != l.ID() {
		t.Errorf("the event is %+v, want run %s, state %s, gateway %s and a time", e, v.Run.ID, v.Run.State, l.ID())
	}
	must(t, l.NoticeTried(ctx, one, "answered with status 204", true, nil))
	must(t, l.NoticeTried(ctx, one, "late", false, &far)) // it is settled
	soon := l.now().Add(time.Hour)
	must(t, l.HoldPlace(ctx, notify.Notice{URL: "https://a/3"}, l.now().Add(time.Minute), soon.Add(time.Minute)))
	if got := due(soon); fmt.Sprint(got) != "[ntc_5]" {
		t.Errorf("due while the place of ntc_3 is held: %v, want ntc_5", got)
	}
	must(t, l.HoldCaller(ctx, notify.Notice{Origin: "https://a", By: "bob", ByID: "prn_bob"}, l.now().Add(time.Minute), soon.Add(time.Minute)))
	if got := due(soon); len(got) != 0 {
		t.Errorf("due while bob's notices are held too: %v, want none", got)
	}
	for by, want := range map[string]int{"ana": 1, "bob": 0} {
		of := notify.Notice{Origin: "https://a", By: by, ByID: "prn_" + by}
		if own, all, err := l.NoticesDelivered(ctx, of, l.now().Add(-time.Hour)); own != want || all != 1 || err != nil {
			t.Errorf("delivered in an hour: %d of %s and %d of all (%v), want %d and 1", own, by, all, err, want)
		}
	}
	list, err := l.Notices(ctx, notify.Notice{RunID: v.Run.ID})
	if must(t, err); len(list) != 3 || !list[0].Delivered || list[0].SettledAt == nil || list[0].Result != "answered with status 204" ||
		list[1].SettledAt != nil {
		t.Errorf("the run has the notices %+v, want 3, the first delivered with status 204, the second not settled", list)
	}
	_, signature, err := l.SignNotice(ctx, []byte("x"))
	if must(t, err); len(signature) != 64 {
		t.Error(len(signature))
	}
}

// notice reads a notice of a run.
func (l *Ledger) notice(t testing.TB, runID, id string) notify.Notice {
	t.Helper()
	list, err := l.Notices(t.Context(), notify.Notice{RunID: runID})
	must(t, err)
	for _, n := range list {
		if n.ID == id {
			return n
		}
	}
	t.Fatalf("run %s has no notice %s", runID, id)
	return notify.Notice{}
}

// A run that is retried before its end was reported has not ended: the sender that had read the notice learns that,
// its attempts settle nothing, and the notice reports the next end.
//
// proves MANY-05
func TestNoticeOfARetriedRun(t *testing.T) {
	l, ctx := fresh(t), t.Context()
	x := insert(t, l, 1)
	_, err := l.AddNotice(ctx, notify.Notice{ID: "ntc_1", RunID: x.Run.ID, URL: "https://a/1", Origin: "https://a", By: "ana"}, 2)
	must(t, err)
	x = ends(t, l, x, run.Failed)
	read := l.notice(t, x.Run.ID, "ntc_1")
	x.Run.State, x.Run.Phase, x.Run.FinishedAt, x.Run.AttemptN = run.Queued, run.Staging, nil, 2
	x, err = l.Apply(ctx, run.Write{Run: x.Run, Attempts: []run.Attempt{{RunID: x.Run.ID, N: 2}},
		Event: run.Event{Type: "run.retry", Data: map[string]any{}}})
	must(t, err)
	if e, err := l.NoticeEvent(ctx, read); e != nil || err != nil {
		t.Errorf("NoticeEvent of a run that was retried = %+v, %v, want nothing", e, err)
	}
	must(t, l.NoticeTried(ctx, read, "answered with status 204", true, nil))
	if n := l.notice(t, x.Run.ID, "ntc_1"); n.DueAt != nil || n.NextAt != nil || n.SettledAt != nil {
		t.Errorf("notice after the retry: due %v, next try %v, settled %v, want none of them", n.DueAt, n.NextAt, n.SettledAt)
	}
	ends(t, l, x, run.Succeeded)
	due, err := l.DueNotices(ctx, l.now().Add(time.Hour), 2)
	if must(t, err); len(due) != 1 {
		t.Fatalf("%d notices are due after the second end, want 1", len(due))
	}
	e, err := l.NoticeEvent(ctx, due[0])
	if d, ok := e.(notify.EventData); err != nil || !ok || d.Attempt != 2 || d.State != "succeeded" {
		t.Errorf("NoticeEvent after the second end = %+v, %v, want attempt 2, succeeded", e, err)
	}
}

// A notice of a run that waits for its inputs moves to the run that replaces it, and reports that one's end; if the
// inputs never come, it reports that.
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
	if n := ask("1", a.Run.ID); n.RunID != a.Run.ID || n.WaitedAs != "" || n.DueAt != nil {
		t.Errorf("the notice has the run %q, waited as %q, due %v; want run %s, not due", n.RunID, n.WaitedAs, n.DueAt, a.Run.ID)
	}
	ask("2", b.Run.ID)

	n := newRun(2)
	n.Waited = new(a.WaitRef())
	y, _, err := l.Insert(ctx, n)
	must(t, err)
	if got := due(); len(got) != 0 {
		t.Errorf("%d notices are due when the run began, want none", len(got))
	}
	finish(t, l, y)
	got := due()
	if len(got) != 1 || got[0].ID != "ntc_1" {
		t.Fatalf("due are %+v, want ntc_1", got)
	}
	if e := said(got[0]); e.RunID != y.Run.ID || e.WaitedAs != a.Run.ID || e.State != "succeeded" {
		t.Errorf("the event is %+v, want run %s, waited as %s, succeeded", e, y.Run.ID, a.Run.ID)
	}
	must(t, l.NoticeTried(ctx, got[0], "answered with status 204", true, nil))

	fail := func(attempt int) {
		t.Helper()
		must(t, l.EndWaiting(ctx, run.WaitRef{RunID: b.Run.ID, Attempt: attempt}, "input_failed", "x"))
	}
	fail(1)
	if got = due(); len(got) != 1 || got[0].ID != "ntc_2" {
		t.Fatalf("due are %+v, want ntc_2", got)
	}
	if e := said(got[0]); e.RunID != b.Run.ID || e.WaitedAs != "" || e.State != "failed" || e.Reason != "input_failed" {
		t.Errorf("the event is %+v, want run %s, failed, input_failed", e, b.Run.ID)
	}
	// Set waiting again before the notice was sent: the next end is reported.
	l.waitsAgain(t, l.waitingNow(t, b.Run.ID), "ana")
	if got = due(); len(got) != 0 {
		t.Errorf("%d notices are due while the run waits again, want none", len(got))
	}
	fail(2)
	if got = due(); len(got) != 1 || said(got[0]).Attempt != 2 {
		t.Errorf("due are %+v, want one notice of attempt 2", got)
	}

	// A run that waited is replaced by a finished one: its notice is due at once.
	c := waits(t, l, 3, promise)
	ask("3", c.Run.ID)
	must(t, l.StartWaiting(ctx, c.WaitRef(), y.Run.ID))
	if list, err := l.Notices(ctx, notify.Notice{RunID: y.Run.ID}); err != nil || len(list) != 2 || list[1].WaitedAs != c.Run.ID ||
		list[1].DueAt == nil {
		t.Errorf("notices of the run that two waiting runs became = %+v, %v; want 2, the second as %s and due", list, err, c.Run.ID)
	}
	must(t, l.Integrity(ctx))
}
