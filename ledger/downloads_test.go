package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/run"
)

// Two principals that ask for one run under other labels each see their own names of its outputs, of their newest request; who asked for
// nothing sees those of the run's maker. proves DATA-01
func TestDownloadNames(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	alice, bob, carol := run.Principal{Name: "user:alice", ID: "prn_A"}, run.Principal{Name: "user:bob", ID: "prn_B"},
		run.Principal{Name: "user:carol", ID: "prn_C"}
	n := newRun(1)
	n.Run.Principal, n.Names = alice, map[string]string{"report": "a.json"}
	v, _, err := l.Insert(ctx, n)
	must(t, err)
	see := func(who run.Principal, want map[string]string) {
		t.Helper()
		got, err := l.OutputNames(ctx, v.Run.ID, who)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Error(who.Name, d, err)
		}
	}
	see(alice, map[string]string{"report": "a.json"})
	see(bob, map[string]string{"report": "a.json"})
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, map[string]string{"report": "b.json"}))
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, map[string]string{"report": "b.json"})) // nothing is written
	see(alice, map[string]string{"report": "a.json"})
	see(bob, map[string]string{"report": "b.json"})
	see(carol, map[string]string{"report": "a.json"})
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, map[string]string{"report": "b2.json"}))
	see(bob, map[string]string{"report": "b2.json"})
	must(t, l.NameOutputs(ctx, v.Run.ID, bob, nil)) // the newest request gives none
	see(bob, nil)
	other := insert(t, l, 2)
	must(t, l.NameOutputs(ctx, other.Run.ID, bob, nil))
	if got, err := l.OutputNames(ctx, other.Run.ID, bob); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
}
