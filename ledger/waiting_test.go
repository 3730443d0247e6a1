package ledger

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/notify"
	"slurmgate/plan"
	"slurmgate/run"
)

// waits stores the i-th run that waits for outputs.
func waits(t testing.TB, l *Ledger, i int, of ...plan.Promise) run.View {
	t.Helper()
	w, created, err := l.AddWaiting(t.Context(), waitsFor(fmt.Sprintf(`{"waits":%d}`, i), of...))
	if err != nil || !created || !w.Waits() {
		t.Fatalf("AddWaiting = run %s in phase %s, created %v, %v; want a new run that waits", w.Run.ID, w.Run.Phase,
			created, err)
	}
	return w
}

// waitsFor makes a request for a run with some params that waits for outputs.
func waitsFor(params string, of ...plan.Promise) Waits {
	n := newRun(0)
	r, id := n.Run, plan.Identity{ToolName: "t_x", ContractVersion: "v1", PolicyHash: n.Run.PolicyHash, ParamsHash: plan.Hash([]byte(params))}
	r.ID, r.ParamsHash, r.PlanHash, r.ResultJSON = id.RunID(), id.ParamsHash, id.PlanHash(), nil
	return Waits{For: of, Most: 100, Policy: n.Policy,
		Run: r, Params: json.RawMessage(params), Args: json.RawMessage(`{}`), Caller: json.RawMessage(`{}`)}
}

// wantBecame fails the test unless a run that waited is another run now.
func (l *Ledger) wantBecame(t testing.TB, id, want string) {
	t.Helper()
	got, err := l.RunOf(t.Context(), id)
	must(t, err)
	if got != want {
		t.Errorf("%s became %q, want %q", id, got, want)
	}
	if v, err := l.View(t.Context(), id); err != nil || v.Run.ID != want || v.Waiting != nil {
		t.Errorf("View(%s) after it started = run %s, %v; want %s", id, v.Run.ID, err, want)
	}
	var rows int
	must(t, l.r.QueryRow("SELECT count(*) FROM runs WHERE run_id = ?", id).Scan(&rows))
	if rows != 0 {
		t.Errorf("%d rows of runs have the id %s, want none: an alias takes its place", rows, id)
	}
}

// ends ends a run.
func ends(t testing.TB, l *Ledger, v run.View, s run.State) run.View {
	t.Helper()
	zero := 0
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.FinishedAt, v.Run.ExitCode = s, run.Done, "why", &t0, &zero
	return apply(t, l, v, func(w *run.Write) { w.Run = v.Run })
}

func due(t testing.TB, l *Ledger) (ids []string) {
	t.Helper()
	list, err := l.DueWaiting(t.Context(), 100)
	must(t, err)
	for _, w := range list {
		ids = append(ids, w.Run.ID)
	}
	return ids
}

func (l *Ledger) waitingNow(t testing.TB, id string) run.View {
	t.Helper()
	v, err := l.View(t.Context(), id)
	must(t, err)
	if v.Waiting == nil {
		t.Fatalf("View(%s) is of a run that has an attempt, %s; want one that waits, or ended before it started", id, v.Run.ID)
	}
	return v
}

// endWaiting ends a run that waits, and returns it as it is then.
func (l *Ledger) endWaiting(t testing.TB, v run.View, s run.State, code string) run.View {
	t.Helper()
	v, err := l.Apply(t.Context(), run.EndWaiting(v, l.now(), s, code, "x"))
	must(t, err)
	return v
}

// waitsAgain sets a run waiting again with the rights of a caller.
func (l *Ledger) waitsAgain(t testing.TB, v run.View, name string) run.View {
	t.Helper()
	w := run.Write{From: &v, Run: v.Run, Asking: &run.Asking{Principal: run.Principal{Name: name}}, Caller: json.RawMessage(`{}`),
		Event: run.Event{Type: "run.retry", Data: map[string]any{"reason": "y"}}}
	w.Run.State, w.Run.Phase, w.Run.Reason, w.Run.Detail = run.Queued, run.WaitingForInputs, string(run.WaitingForInputs), ""
	w.Run.AttemptN, w.Run.FinishedAt = v.Run.AttemptN+1, nil
	v, err := l.Apply(t.Context(), w)
	must(t, err)
	return v
}

// A waiting run becomes due at the end of what it waits for, also of a run that waited itself, in the transaction
// that ends it; until then it waits.
//
// proves MANY-04
func TestWaitingIsDue(t *testing.T) {
	l := fresh(t)
	x := insert(t, l, 1)
	a := waits(t, l, 1, plan.Promise{RunID: x.Run.ID, Role: "out"})
	b := waits(t, l, 2, plan.Promise{RunID: a.Run.ID, Role: "out"})
	for _, w := range []run.View{a, b} {
		if ready, err := l.SettleWaiting(t.Context(), w.WaitRef(), nil); ready || err != nil {
			t.Fatal(ready, err)
		}
	}
	if ids := due(t, l); len(ids) != 0 {
		t.Fatal(ids)
	}
	ends(t, l, x, run.Succeeded)
	if ids := due(t, l); len(ids) != 1 || ids[0] != a.Run.ID {
		t.Fatal(ids)
	}
	if ready, err := l.SettleWaiting(t.Context(), a.WaitRef(), nil); !ready || err != nil {
		t.Fatal(ready, err)
	}
	n := newRun(2)
	n.Waited = new(a.WaitRef())
	y, created, err := l.Insert(t.Context(), n)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	l.wantBecame(t, a.Run.ID, y.Run.ID)
	if ready, err := l.SettleWaiting(t.Context(), b.WaitRef(), nil); ready || err != nil { // it is another name of a run that is not over
		t.Fatal(ready, err)
	}
	if ids, n, err := l.WaitersOf(t.Context(), y.Run.ID, 5); err != nil || n != 1 || ids[0] != b.Run.ID {
		t.Error(ids, n, err)
	}
	ends(t, l, y, run.Failed)
	of := l.waitingNow(t, b.Run.ID).Waiting.For
	if ids := due(t, l); len(ids) != 1 || len(of) != 1 || !of[0].Broken() || of[0].Actual != y.Run.ID {
		t.Errorf("due are %q, waiting for %+v; want one run with one broken source, %s", ids, of, y.Run.ID)
	}
	must(t, l.Integrity(t.Context()))
}

// The row of a run that waits is one of runs, and no slip brings it to a site: it is not staged, not deleted before it is an alias, and not
// counted among the runs that have started. What has started does not wait.
//
// proves MANY-04
func TestWaitingRowNeverStages(t *testing.T) {
	l := fresh(t)
	x := insert(t, l, 1)
	w := waits(t, l, 1, plan.Promise{RunID: x.Run.ID, Role: "out"})
	for _, q := range []string{"UPDATE runs SET rev = rev + 1, phase = 'staging' WHERE run_id = '" + w.Run.ID + "'",
		"UPDATE runs SET rev = rev + 1, phase = 'waiting_for_inputs' WHERE run_id = '" + x.Run.ID + "'",
		"DELETE FROM runs WHERE run_id = '" + w.Run.ID + "'", "DELETE FROM waits WHERE run_id = '" + w.Run.ID + "'"} {
		if _, err := l.w.Exec(q); err == nil {
			t.Errorf("the database accepts: %s", q)
		}
	}
	page, err := l.List(t.Context(), Filter{})
	must(t, err)
	counts, err := l.Counts(t.Context())
	must(t, err)
	list, n, err := l.Waitings(t.Context(), Filter{})
	if err != nil || page.Total.N != 1 || len(page.Runs) != 1 || counts["queued"] != 1 || n != 1 || len(list) != 1 || list[0].ID != w.Run.ID {
		t.Errorf("List = %d of %d runs, Counts = %v, Waitings = %d, %v; want one that started and %s", len(page.Runs), page.Total.N, counts, n,
			err, w.Run.ID)
	}
	must(t, l.Integrity(t.Context()))
}

// In any order, the request with the artifact and the run that waited for it are one run with one content, and the
// other id is its alias. A run that no longer waits starts nothing: not even the run of its call exists.
//
// proves MANY-04
func TestWaitingBecomesOneRun(t *testing.T) {
	l := fresh(t)
	x := ends(t, l, insert(t, l, 1), run.Succeeded)
	promise := plan.Promise{RunID: x.Run.ID, Role: "out"}

	there := insert(t, l, 2) // the artifact came first
	a := waits(t, l, 1, promise)
	n := newRun(2)
	n.Waited = new(a.WaitRef())
	if v, created, err := l.Insert(t.Context(), n); err != nil || created || v.Run.ID != there.Run.ID {
		t.Fatal(v.Run.ID, created, err)
	}
	b, c := waits(t, l, 2, promise), waits(t, l, 3, promise) // two that wait, and then the artifact
	for _, w := range []run.View{b, c} {
		n := newRun(3)
		n.Waited = new(w.WaitRef())
		_, _, err := l.Insert(t.Context(), n)
		must(t, err)
	}
	v, created, err := l.Insert(t.Context(), newRun(3))
	if err != nil || created {
		t.Fatal(created, err)
	}
	for _, w := range []run.View{b, c} {
		l.wantBecame(t, w.Run.ID, v.Run.ID)
		must(t, l.StartWaiting(t.Context(), w.WaitRef(), v.Run.ID)) // again
	}
	l.wantBecame(t, a.Run.ID, there.Run.ID)

	d := waits(t, l, 4, promise)
	l.endWaiting(t, d, run.Cancelled, "cancelled")
	n = newRun(4)
	n.Waited = new(d.WaitRef())
	_, _, err = l.Insert(t.Context(), n)
	wantFault(t, err, fault.Conflict, "not_waiting")
	if _, err := l.View(t.Context(), n.Run.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a cancelled run was started: %v", err)
	}
	wantFault(t, l.StartWaiting(t.Context(), d.WaitRef(), v.Run.ID), fault.Conflict, "not_waiting")
	must(t, l.Integrity(t.Context()))
}

// What was decided about a run when it waited for the first time changes nothing once it was cancelled and another
// caller has it wait again: neither is it started with the rights of the first, nor ended or put back by what those
// were refused.
//
// proves MANY-04
func TestWaitingAnewIsAnother(t *testing.T) {
	l := fresh(t)
	x := ends(t, l, insert(t, l, 1), run.Succeeded)
	first := waits(t, l, 1, plan.Promise{RunID: x.Run.ID, Role: "out"})
	l.waitsAgain(t, l.endWaiting(t, first, run.Cancelled, "cancelled"), "user:ana")
	n := newRun(2)
	n.Waited = new(first.WaitRef())
	_, _, err := l.Insert(t.Context(), n)
	wantFault(t, err, fault.Conflict, "not_waiting")
	must(t, l.EndWaiting(t.Context(), first.WaitRef(), "capability_denied", "x"))
	_, err = l.Apply(t.Context(), run.EndWaiting(first, l.now(), run.Cancelled, "cancelled", "x"))
	wantFault(t, err, fault.Conflict, "stale_run")
	must(t, l.PutBackWaiting(t.Context(), first.WaitRef(), time.Hour, true, "quota_exceeded", "x"))
	if ready, err := l.SettleWaiting(t.Context(), first.WaitRef(), nil); ready || err != nil {
		t.Errorf("SettleWaiting of attempt 1 = %v, %v after the run waits anew, want false", ready, err)
	}
	w := l.waitingNow(t, first.Run.ID)
	if !w.Waits() || w.Run.AttemptN != 2 || w.Waiting.Tries != 0 || w.Waiting.Code != "" || !slices.Contains(due(t, l), w.Run.ID) {
		t.Errorf("run that waits anew: state %s, attempt %d, %d tries, code %q; want it waiting at attempt 2, due, as it was set", w.Run.State,
			w.Run.AttemptN, w.Waiting.Tries, w.Waiting.Code)
	}
	n.Waited = new(w.WaitRef())
	_, _, err = l.Insert(t.Context(), n)
	must(t, err)
}

// A source that is retried before the gateway handles what waits for it ends nothing: the transaction that would end
// the run checks whether the source will come.
//
// proves MANY-04
func TestBrokenSourceIsAskedAgain(t *testing.T) {
	l := fresh(t)
	x := ends(t, l, insert(t, l, 1), run.Failed)
	w := waits(t, l, 1, plan.Promise{RunID: x.Run.ID, Role: "out"})
	x.Run.State, x.Run.Phase, x.Run.FinishedAt, x.Run.AttemptN = run.Queued, run.Staging, nil, 2
	_, err := l.Apply(t.Context(), run.Write{Run: x.Run, Attempts: []run.Attempt{{RunID: x.Run.ID, N: 2}},
		Event: run.Event{Type: "run.retry", Data: map[string]any{}}})
	must(t, err)
	why := func(s run.Source) (string, string) {
		t.Errorf("source %s at attempt %d counts as one that will not come, although it was retried", s.RunID, s.Attempt)
		return "input_failed", "x"
	}
	if ready, err := l.SettleWaiting(t.Context(), w.WaitRef(), why); ready || err != nil {
		t.Errorf("SettleWaiting = %v, %v, want the run to wait on", ready, err)
	}
}

// At the same time: many runs that wait, requests with the artifact, and cancels. One run is made, and each that waited either is that run
// or was cancelled.
//
// proves MANY-04
func TestWaitingRaces(t *testing.T) {
	l := fresh(t)
	x := ends(t, l, insert(t, l, 1), run.Succeeded)
	var list []run.View
	for i := range 16 {
		list = append(list, waits(t, l, i, plan.Promise{RunID: x.Run.ID, Role: "out"}))
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for i, w := range list {
		all.Go(func() {
			n := newRun(2)
			if n.Waited = new(w.WaitRef()); i%4 == 0 {
				n.Waited = nil
			}
			_, created, err := l.Insert(t.Context(), n)
			if err != nil && fault.CodeOf(err) != "not_waiting" {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if created {
				made++
			}
		})
		if i%2 == 0 {
			all.Go(func() {
				_, err := l.Apply(t.Context(), run.EndWaiting(w, l.now(), run.Cancelled, "cancelled", "x"))
				if err != nil && fault.CodeOf(err) != "stale_run" {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if made != 1 {
		t.Errorf("%d runs were made", made)
	}
	for i, w := range list {
		is, err := l.RunOf(t.Context(), w.Run.ID)
		must(t, err)
		switch {
		case i%4 == 1 || is != w.Run.ID:
			l.wantBecame(t, w.Run.ID, newRun(2).Run.ID)
		case i%4 == 0:
			if now := l.waitingNow(t, w.Run.ID); now.Run.State != run.Cancelled {
				t.Errorf("run %d that was cancelled while it waited is %s, want cancelled", i, now.Run.State)
			}
		}
	}
}

// One that failed waits again when asked to, after the attempt that is named; an artifact that a run takes when it starts stays until then.
//
// proves MANY-04
func TestWaitingAgain(t *testing.T) {
	l := fresh(t)
	x := insert(t, l, 1)
	w := waits(t, l, 1, plan.Promise{RunID: x.Run.ID, Role: "out"})
	now := l.waitsAgain(t, l.endWaiting(t, w, run.Failed, "input_failed"), "user:ana")
	if !now.Waits() || now.Run.AttemptN != 2 || now.Waiting.Principal.Name != "user:ana" || now.Waiting.Code != "" {
		t.Errorf("run that waits again: %s, attempt %d, for %q, code %q; want it waiting at attempt 2 for user:ana", now.Run.Phase,
			now.Run.AttemptN, now.Waiting.Principal.Name, now.Waiting.Code)
	}
	a := artifact(7)
	a.Source = "import"
	_, _, err := l.AddArtifact(t.Context(), a)
	must(t, err)
	q := waitsFor(`{"other":1}`, plan.Promise{RunID: x.Run.ID, Role: "out"})
	q.Artifacts = []string{a.ID}
	v, _, err := l.AddWaiting(t.Context(), q)
	must(t, err)
	marked, err := l.MarkUnused(t.Context(), l.now().AddDate(1, 0, 0), 10)
	if err != nil || len(marked) != 0 {
		t.Errorf("%v %v: a run waits that takes it", marked, err)
	}
	l.endWaiting(t, v, run.Cancelled, "cancelled")
	if marked, err = l.MarkUnused(t.Context(), l.now().AddDate(1, 0, 0), 10); err != nil || len(marked) != 1 {
		t.Errorf("%v %v", marked, err)
	}
	q = waitsFor(`{"third":1}`)
	q.Most = 1
	_, _, err = l.AddWaiting(t.Context(), q)
	wantFault(t, err, fault.Transport, "too_many_runs")
}

// A deferred run queues behind what is due: a run that cannot start hides no other, however many there are. It is due
// again when its time has passed, or when what it waits for happens.
//
// proves MANY-04
func TestPutBack(t *testing.T) {
	l := fresh(t)
	now := t0
	l.now = func() time.Time { return now }
	x := ends(t, l, insert(t, l, 1), run.Succeeded)
	promise := plan.Promise{RunID: x.Run.ID, Role: "out"}
	a, b, c := waits(t, l, 1, promise), waits(t, l, 2, promise), waits(t, l, 3, promise)
	next := func() string {
		t.Helper()
		list, err := l.DueWaiting(t.Context(), 1)
		must(t, err)
		if len(list) == 0 {
			return ""
		}
		return list[0].Run.ID
	}
	must(t, l.PutBackWaiting(t.Context(), a.WaitRef(), time.Hour, true, "consent_required", "asked as apr_X"))
	must(t, l.PutBackWaiting(t.Context(), b.WaitRef(), time.Minute, false, "quota_exceeded", "used up"))
	if got := next(); got != c.Run.ID {
		t.Errorf("%s is next, want the one that was not put back", got)
	}
	must(t, l.PutBackWaiting(t.Context(), c.WaitRef(), 2*time.Minute, false, "quota_exceeded", "used up"))
	if got := next(); got != "" {
		t.Errorf("%s is next; all were put back", got)
	}
	now = now.Add(3 * time.Minute)
	if got := due(t, l); fmt.Sprint(got) != fmt.Sprint([]string{b.Run.ID, c.Run.ID}) {
		t.Errorf("%v, want first the one whose time came first", got)
	}
	must(t, l.BringForward(t.Context(), "apr_X"))
	if w := l.waitingNow(t, a.Run.ID); next() != a.Run.ID || w.Waiting.Tries != 1 || w.Waiting.Code != "consent_required" {
		t.Errorf("the waiting run has %d tries, code %q; want it due, 1 try, consent_required", w.Waiting.Tries, w.Waiting.Code)
	}
	if w := l.waitsAgain(t, l.endWaiting(t, l.waitingNow(t, a.Run.ID), run.Failed, "x"), "ana").Waiting; w.Tries != 0 || w.Code != "" {
		t.Errorf("run that waits again has %d tries and the code %q, want none", w.Tries, w.Code)
	}
}

// What waits as a row of an approved batch has the approval from the transaction that stores it, so that whatever is due at once starts
// under it. What waited before is due again under it, if it is the same caller's.
//
// proves MANY-04 HTC-07
func TestWaitingUnderAnApproval(t *testing.T) {
	l := fresh(t)
	x := ends(t, l, insert(t, l, 1), run.Succeeded)
	of := []plan.Promise{{RunID: x.Run.ID, Role: "out"}}
	for _, c := range []struct {
		name          string
		first, second Waits
		want          string
	}{
		{"stored with it", Waits{ApprovalID: "apr_1"}, Waits{}, "apr_1"},
		{"joined by a batch", Waits{}, Waits{ApprovalID: "apr_2"}, "apr_2"},
		{"another caller's batch", Waits{}, Waits{ApprovalID: "apr_3", Run: run.Run{Principal: run.Principal{ID: "prn_other"}}}, ""},
	} {
		for i, w := range []Waits{c.first, c.second} {
			q := waitsFor(`{"n":"`+c.name+`"}`, of...)
			q.ApprovalID, q.Run.Principal.ID = w.ApprovalID, cmp.Or(w.Run.Principal.ID, "prn_one")
			w, created, err := l.AddWaiting(t.Context(), q)
			if err != nil || created != (i == 0) {
				t.Fatal(c.name, created, err)
			}
			if c.want != "" && i == 1 && !slices.Contains(due(t, l), w.Run.ID) {
				t.Errorf("%s: it is not due", c.name)
			}
			if now := l.waitingNow(t, w.Run.ID); i == 1 && now.Waiting.ApprovalID != c.want {
				t.Errorf("%s: under %q, want %q", c.name, now.Waiting.ApprovalID, c.want)
			}
		}
	}
}

// What was put back, or is to be tried again, by a clock that was a day ahead waits no day once the clock is right.
//
// proves MANY-04
func TestClockThatWasAhead(t *testing.T) {
	l := fresh(t)
	now := t0.Add(24 * time.Hour)
	l.now = func() time.Time { return now }
	v := ends(t, l, insert(t, l, 1), run.Succeeded)
	w := waits(t, l, 1, plan.Promise{RunID: v.Run.ID, Role: "out"})
	must(t, l.PutBackWaiting(t.Context(), w.WaitRef(), time.Minute, false, "quota_exceeded", "used up"))
	n, err := l.AddNotice(t.Context(), notify.Notice{ID: "ntc_1", RunID: v.Run.ID, URL: "https://a/1", Origin: "https://a", By: "ana"}, 1)
	must(t, err)
	next := now.Add(time.Minute)
	must(t, l.NoticeTried(t.Context(), n, "no answer", false, &next))
	notices := func() int {
		list, err := l.DueNotices(t.Context(), now, 9)
		must(t, err)
		return len(list)
	}
	if runs, n := due(t, l), notices(); len(runs)+n != 0 {
		t.Errorf("a minute too early the runs %v and %d notices are due, want none", runs, n)
	}
	now = t0
	if runs, n := due(t, l), notices(); len(runs) != 1 || n != 1 {
		t.Errorf("after the clock was set back a day the runs %v and %d notices are due, want one of each", runs, n)
	}
}
