package ledger

import (
	"path/filepath"
	"slices"
	"testing"

	"slurmgate/run"
)

// A run has the principal whose call made it, for ever, and those who asked for it later, once each. Lists filter by either, by name or id.
//
// proves OPS-03
func TestAskers(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	alice, bob := run.Principal{Name: "user:alice", ID: "prn_A"}, run.Principal{Name: "token:bob", ID: "prn_B"}
	n := newRun(1)
	n.Run.Principal = alice
	v, _, err := l.Insert(ctx, n)
	must(t, err)
	other := insert(t, l, 2)
	if got, err := l.View(ctx, v.Run.ID); err != nil || got.Run.Principal != alice || v.Run.Principal != alice {
		t.Errorf("%+v %v", got.Run.Principal, err)
	}
	for _, who := range []run.Principal{alice, bob, bob, {Name: "token:bob", ID: "prn_C"}} {
		must(t, l.AskedAgain(ctx, v.Run.ID, who))
	}
	askers, err := l.Askers(ctx, v.Run.ID)
	var ids []string
	for _, a := range askers {
		ids = append(ids, a.ID)
	}
	if slices.Sort(ids); err != nil || !slices.Equal(ids, []string{"prn_B", "prn_C"}) {
		t.Error(askers, err)
	}
	for who, want := range map[string]int{"user:alice": 1, "prn_A": 1, "token:bob": 1, "prn_C": 1, "user:bob": 0, "": 2} {
		page, err := l.List(ctx, Filter{Principal: who})
		if err != nil || len(page.Runs) != want || page.Total.N != int64(want) || want == 1 && page.Runs[0].Principal != alice {
			t.Errorf("%q: %+v %v", who, page, err)
		}
	}
	if got, err := l.View(ctx, other.Run.ID); err != nil || got.Run.Principal != (run.Principal{}) {
		t.Errorf("%+v %v", got.Run.Principal, err)
	}
	db := rawDB(t, l)
	for _, q := range []string{"UPDATE runs SET principal = 'x'", "UPDATE runs SET principal_id = 'x'", "UPDATE run_askers SET asked_at = 1",
		"DELETE FROM run_askers"} {
		if _, err := db.Exec(q); err == nil {
			t.Error("allowed: " + q)
		}
	}
}

// Runs of an older ledger have nobody: what was not recorded is not made up. Who asks for one now is recorded as that.
//
// proves CARD-04 OPS-03
func TestRunsOfAnOlderLedgerHaveNobody(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	unpack(t, "testdata/schema12.db.gz", path)
	l := openAt(t, path)
	page, err := l.List(t.Context(), Filter{})
	if err != nil || len(page.Runs) == 0 {
		t.Fatal(page, err)
	}
	for _, r := range page.Runs {
		if r.Principal != (run.Principal{}) {
			t.Errorf("%+v", r)
		}
	}
	id := page.Runs[0].ID
	must(t, l.AskedAgain(t.Context(), id, run.Principal{Name: "user:alice", ID: "prn_A"}))
	askers, err := l.Askers(t.Context(), id)
	if v, viewErr := l.View(t.Context(), id); err != nil || viewErr != nil || len(askers) != 1 || v.Run.Principal != (run.Principal{}) {
		t.Error(askers, err, v.Run.Principal, viewErr)
	}
}
