package ledger

import (
	"slices"
	"sync"
	"testing"

	"slurmgate/run"
)

func askingOf(name, id string) run.Asking {
	return run.Asking{Principal: run.Principal{Name: name, ID: id}}
}

// A run keeps the principal whose call made it, and later requesters, once each. Lists filter by either, by name or
// id.
//
// proves OPS-03
func TestAskings(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	alice := askingOf("user:alice", "prn_A")
	n := newRun(1)
	n.Run.Principal, n.Asking = alice.Principal, &alice
	v, _, err := l.Insert(ctx, n)
	must(t, err)
	other := insert(t, l, 2)
	if got, err := l.View(ctx, v.Run.ID); err != nil || got.Run.Principal != alice.Principal || v.Run.Principal != alice.Principal {
		t.Errorf("the run has the principal %+v, %v; want %+v", got.Run.Principal, err, alice.Principal)
	}
	for _, who := range []run.Asking{alice, askingOf("token:bob", "prn_B"), askingOf("token:bob", "prn_B"), askingOf("token:bob", "prn_C")} {
		_, err := l.AskFor(ctx, v.Run.ID, who, nil)
		must(t, err)
	}
	askers, err := l.Askings(ctx, v.Run.ID)
	var ids []string
	for _, a := range askers {
		ids = append(ids, a.ID)
	}
	if err != nil || !slices.Equal(ids, []string{"prn_A", "prn_B", "prn_C"}) {
		t.Errorf("askings = %v, %v; want one each of prn_A, prn_B and prn_C", askers, err)
	}
	for who, want := range map[string]int{"user:alice": 1, "prn_A": 1, "token:bob": 1, "prn_C": 1, "user:bob": 0, "": 2} {
		page, err := l.List(ctx, Filter{Principal: who})
		if err != nil || len(page.Runs) != want || page.Total.N != int64(want) || want == 1 && page.Runs[0].Principal != alice.Principal {
			t.Errorf("the list of %q has %d runs, %v; want %d", who, len(page.Runs), err, want)
		}
	}
	if got, err := l.View(ctx, other.Run.ID); err != nil || got.Run.Principal != (run.Principal{}) {
		t.Errorf("a run without a principal has %+v, %v; want none", got.Run.Principal, err)
	}
	db := rawDB(t, l)
	for _, q := range []string{"UPDATE runs SET principal = 'x'", "UPDATE runs SET site = 'x'", "UPDATE runs SET principal_id = 'x'",
		"UPDATE askings SET asked_at = 1", "UPDATE askings SET person = 'x'", "DELETE FROM askings"} {
		if _, err := db.Exec(q); err == nil {
			t.Error("the database lets pass: " + q)
		}
	}
}

// A request for a run at the moment at which its last requester cancels it either keeps it running, or is answered
// with a run that is being cancelled.
//
// proves OPS-04
func TestAskingAgainstTheLastCancel(t *testing.T) {
	l := fresh(t)
	alice, bob := askingOf("user:alice", "prn_A"), askingOf("user:bob", "prn_B")
	kept, ended := 0, 0
	for i := range 200 {
		n := newRun(i)
		n.Asking = &alice
		v, _, err := l.Insert(t.Context(), n)
		must(t, err)
		by := run.Withdrawal{Of: alice}
		var both sync.WaitGroup
		var answered run.View
		var held []run.Asker
		both.Go(func() {
			var err error
			_, held, err = l.Withdraw(t.Context(), run.CancelWrite(v, l.now(), "", by), by)
			must(t, err)
		})
		both.Go(func() {
			var err error
			answered, err = l.AskFor(t.Context(), v.Run.ID, bob, nil)
			must(t, err)
		})
		both.Wait()
		now, err := l.View(t.Context(), v.Run.ID)
		must(t, err)
		switch {
		case now.Run.CancelAt == nil && len(held) == 1 && answered.Run.CancelAt == nil:
			kept++
		case now.Run.CancelAt != nil && len(held) == 0 && answered.Run.CancelAt != nil:
			ended++
		default:
			t.Fatalf("cancel at %v, held %v, and bob was answered with a cancel at %v", now.Run.CancelAt, held, answered.Run.CancelAt)
		}
	}
	t.Logf("%d runs were kept by the second asker, %d were cancelled before it", kept, ended)
}
