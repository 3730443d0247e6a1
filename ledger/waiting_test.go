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
	"slurmgate/plan"
	"slurmgate/run"
)

// waits stores the i-th run that waits for outputs.
func waits(t testing.TB, l *Ledger, i int, of ...plan.Promise) WaitingRun {
	t.Helper()
	params := fmt.Sprintf(`{"waits":%d}`, i)
	id := plan.Identity{ToolName: "t_x", ContractVersion: "v1", PolicyHash: "p", ParamsHash: plan.Hash([]byte(params))}
	w, created, err := l.AddWaiting(t.Context(), WaitingRun{ID: id.RunID(), ProjectID: project, ToolID: "t.x", ToolName: "t_x",
		ToolVersion: "1.0.0",
		Contract:    "v1", PolicyHash: "p", ParamsHash: id.ParamsHash, Params: json.RawMessage(params), Args: json.RawMessage(`{}`),
		Caller: json.RawMessage(`{}`), Actor: "human"}, of, nil, 100)
	if err != nil || !created || w.State != WaitingOn {
		t.Fatalf("%+v %v %v", w, created, err)
	}
	return w
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
		ids = append(ids, w.ID)
	}
	return ids
}

func (l *Ledger) waitingNow(t testing.TB, id string) WaitingRun {
	t.Helper()
	w, err := l.Waiting(t.Context(), id)
	must(t, err)
	return w
}

// A run that waits hears of the end of what it waits for, also of a run that waited itself, in the transaction that ends it; until then
// it goes on waiting.
//
// proves MANY-04
func TestWaitingIsDue(t *testing.T) {
	l := fresh(t)
	x := insert(t, l, 1)
	a := waits(t, l, 1, plan.Promise{RunID: x.Run.ID, Role: "out"})
	b := waits(t, l, 2, plan.Promise{RunID: a.ID, Role: "out"})
	for _, w := range []WaitingRun{a, b} {
		if still, err := l.StillWaits(t.Context(), w.ID); !still || err != nil {
			t.Fatal(still, err)
		}
	}
	if ids := due(t, l); len(ids) != 0 {
		t.Fatal(ids)
	}
	ends(t, l, x, run.Succeeded)
	if ids := due(t, l); len(ids) != 1 || ids[0] != a.ID {
		t.Fatal(ids)
	}
	if still, err := l.StillWaits(t.Context(), a.ID); still || err != nil {
		t.Fatal(still, err)
	}
	n := newRun(2)
	n.Waited = a.ID
	y, created, err := l.Insert(t.Context(), n)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	if w := l.waitingNow(t, a.ID); w.State != WaitingStarted || w.Became != y.Run.ID {
		t.Fatalf("%+v", w)
	}
	if still, err := l.StillWaits(t.Context(), b.ID); !still || err != nil { // it is another name of a run that is not over
		t.Fatal(still, err)
	}
	if ids, n, err := l.WaitersOf(t.Context(), y.Run.ID, 5); err != nil || n != 1 || ids[0] != b.ID {
		t.Error(ids, n, err)
	}
	ends(t, l, y, run.Failed)
	of, err := l.WaitingSources(t.Context(), b.ID)
	if ids := due(t, l); err != nil || len(ids) != 1 || len(of) != 1 || !of[0].Broken() || of[0].Actual != y.Run.ID {
		t.Errorf("%v %+v %v", ids, of, err)
	}
	must(t, l.Integrity(t.Context()))
}

// Whoever comes first, the request with the artifact or the run that waited for it, one content is one run, and the other is a name of
// it. A run that no longer waits starts nothing: not even the run that its call would have made is there.
//
// proves MANY-04
func TestWaitingBecomesOneRun(t *testing.T) {
	l := fresh(t)
	x := ends(t, l, insert(t, l, 1), run.Succeeded)
	promise := plan.Promise{RunID: x.Run.ID, Role: "out"}

	there := insert(t, l, 2) // the artifact came first
	a := waits(t, l, 1, promise)
	n := newRun(2)
	n.Waited = a.ID
	if v, created, err := l.Insert(t.Context(), n); err != nil || created || v.Run.ID != there.Run.ID {
		t.Fatal(v.Run.ID, created, err)
	}
	b, c := waits(t, l, 2, promise), waits(t, l, 3, promise) // two that wait, and then the artifact
	for _, w := range []WaitingRun{b, c} {
		n := newRun(3)
		n.Waited = w.ID
		_, _, err := l.Insert(t.Context(), n)
		must(t, err)
	}
	v, created, err := l.Insert(t.Context(), newRun(3))
	if err != nil || created {
		t.Fatal(created, err)
	}
	for _, w := range []WaitingRun{b, c} {
		if now := l.waitingNow(t, w.ID); now.Became != v.Run.ID {
			t.Errorf("%+v", now)
		}
		must(t, l.StartWaiting(t.Context(), w.ID, v.Run.ID)) // again
	}
	if l.waitingNow(t, a.ID).Became != there.Run.ID {
		t.Error("the run that was there first is not the one")
	}

	d := waits(t, l, 4, promise)
	if _, err := l.EndWaiting(t.Context(), d.ID, WaitingCancelled, "cancelled", "x"); err != nil {
		t.Fatal(err)
	}
	n = newRun(4)
	n.Waited = d.ID
	_, _, err = l.Insert(t.Context(), n)
	wantFault(t, err, fault.Conflict, "not_waiting")
	if _, err := l.View(t.Context(), n.Run.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("a cancelled run was started: %v", err)
	}
	wantFault(t, l.StartWaiting(t.Context(), d.ID, v.Run.ID), fault.Conflict, "not_waiting")
	must(t, l.Integrity(t.Context()))
}

// At the same time: many runs that wait, requests with the artifact, and cancels. One run is made, and each that waited either is that run
// or was cancelled.
//
// proves MANY-04
func TestWaitingRaces(t *testing.T) {
	l := fresh(t)
	x := ends(t, l, insert(t, l, 1), run.Succeeded)
	var list []WaitingRun
	for i := range 16 {
		list = append(list, waits(t, l, i, plan.Promise{RunID: x.Run.ID, Role: "out"}))
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for i, w := range list {
		all.Go(func() {
			n := newRun(2)
			if n.Waited = w.ID; i%4 == 0 {
				n.Waited = ""
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
				if _, err := l.EndWaiting(t.Context(), w.ID, WaitingCancelled, "cancelled", "x"); err != nil {
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
		now := l.waitingNow(t, w.ID)
		if now.State == WaitingStarted && now.Became != newRun(2).Run.ID || i%4 == 1 && now.State != WaitingStarted ||
			i%4 == 0 && now.State != WaitingCancelled {
			t.Errorf("%d: %+v", i, now)
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
	if _, err := l.EndWaiting(t.Context(), w.ID, WaitingFailed, "input_failed", "x"); err != nil {
		t.Fatal(err)
	}
	again := func(after int) WaitingRun {
		t.Helper()
		now, err := l.WaitAgain(t.Context(), w.ID, after, "y", run.Principal{Name: "user:ana"}, json.RawMessage(`{}`))
		must(t, err)
		return now
	}
	if now := again(1); now.State != WaitingOn || now.AttemptN != 2 || now.Principal.Name != "user:ana" || now.Code != "" {
		t.Errorf("%+v", now)
	}
	if now := again(1); now.AttemptN != 2 {
		t.Errorf("asked again: %+v", now)
	}
	a := artifact(7)
	a.Source = "import"
	_, _, err := l.AddArtifact(t.Context(), a)
	must(t, err)
	v := w
	v.ID = plan.Identity{ToolName: "other"}.RunID()
	if _, _, err := l.AddWaiting(t.Context(), v, []plan.Promise{{RunID: x.Run.ID, Role: "out"}}, []string{a.ID}, 100); err != nil {
		t.Fatal(err)
	}
	marked, err := l.MarkUnused(t.Context(), l.now().AddDate(1, 0, 0), 10)
	if err != nil || len(marked) != 0 {
		t.Errorf("%v %v: a run waits that takes it", marked, err)
	}
	if _, err := l.EndWaiting(t.Context(), v.ID, WaitingCancelled, "cancelled", "x"); err != nil {
		t.Fatal(err)
	}
	if marked, err = l.MarkUnused(t.Context(), l.now().AddDate(1, 0, 0), 10); err != nil || len(marked) != 1 {
		t.Errorf("%v %v", marked, err)
	}
	_, _, err = l.AddWaiting(t.Context(), WaitingRun{ID: plan.Identity{ToolName: "third"}.RunID(), ProjectID: project}, nil, nil, 1)
	wantFault(t, err, fault.Transport, "too_many_runs")
}

// What is put back goes behind what is due: a run that cannot start hides no other, however many there are. It comes again when its time
// is over, or when what it waits for happens.
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
		return list[0].ID
	}
	must(t, l.PutBackWaiting(t.Context(), a.ID, time.Hour, true, "consent_required", "asked as apr_X"))
	must(t, l.PutBackWaiting(t.Context(), b.ID, time.Minute, false, "quota_exceeded", "used up"))
	if got := next(); got != c.ID {
		t.Errorf("%s is next, want the one that was not put back", got)
	}
	must(t, l.PutBackWaiting(t.Context(), c.ID, 2*time.Minute, false, "quota_exceeded", "used up"))
	if got := next(); got != "" {
		t.Errorf("%s is next; all were put back", got)
	}
	now = now.Add(3 * time.Minute)
	if got := due(t, l); fmt.Sprint(got) != fmt.Sprint([]string{b.ID, c.ID}) {
		t.Errorf("%v, want first the one whose time came first", got)
	}
	must(t, l.BringForward(t.Context(), "apr_X"))
	if w := l.waitingNow(t, a.ID); next() != a.ID || w.Tries != 1 || w.Code != "consent_required" {
		t.Errorf("%+v", w)
	}
	if _, err := l.EndWaiting(t.Context(), a.ID, WaitingFailed, "x", "x"); err != nil {
		t.Fatal(err)
	}
	if w, err := l.WaitAgain(t.Context(), a.ID, 1, "y", run.Principal{}, json.RawMessage(`{}`)); err != nil || w.Tries != 0 || w.Code != "" {
		t.Errorf("%+v %v", w, err)
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
		first, second WaitingRun
		want          string
	}{
		{"stored with it", WaitingRun{ApprovalID: "apr_1"}, WaitingRun{}, "apr_1"},
		{"joined by a batch", WaitingRun{}, WaitingRun{ApprovalID: "apr_2"}, "apr_2"},
		{"another caller's batch", WaitingRun{}, WaitingRun{ApprovalID: "apr_3", Principal: run.Principal{ID: "prn_other"}}, ""},
	} {
		for i, w := range []WaitingRun{c.first, c.second} {
			id := plan.Identity{ToolName: "t_x", ContractVersion: "v1", PolicyHash: "p", ParamsHash: c.name}
			w.ID, w.ProjectID, w.ToolID, w.ToolName, w.ToolVersion, w.Contract = id.RunID(), project, "t.x", "t_x", "1.0.0", "v1"
			w.PolicyHash, w.ParamsHash, w.Params, w.Args, w.Caller, w.Actor = "p", c.name, json.RawMessage(`{"n":"`+c.name+`"}`),
				json.RawMessage(`{}`), json.RawMessage(`{}`), "human"
			w.Principal.ID = cmp.Or(w.Principal.ID, "prn_one")
			if _, created, err := l.AddWaiting(t.Context(), w, of, nil, 100); err != nil || created != (i == 0) {
				t.Fatal(c.name, created, err)
			}
			if c.want != "" && i == 1 && !slices.Contains(due(t, l), w.ID) {
				t.Errorf("%s: it is not due", c.name)
			}
			if now := l.waitingNow(t, w.ID); i == 1 && now.ApprovalID != c.want {
				t.Errorf("%s: under %q, want %q", c.name, now.ApprovalID, c.want)
			}
		}
	}
}
