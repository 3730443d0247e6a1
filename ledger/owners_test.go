package ledger

import (
	"fmt"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Whose a thing is, is remembered once it was asked, and only of things that are there.
func TestOwnersAreRemembered(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	w := waits(t, l, 1, plan.Promise{RunID: v.Run.ID, Role: "out"})
	const nothing = "run_00000000000000000000000000"
	for range 2 {
		for id, want := range map[string]string{v.Run.ID: project, w.ID: project, nothing: ""} {
			got, err := l.Owner(t.Context(), id)
			if got != want || fault.Is(err, fault.NotFound) != (want == "") || l.OwnerSeen(id) != want {
				t.Errorf("%s is of %q, remembered as of %q, want %q: %v", id, got, l.OwnerSeen(id), want, err)
			}
		}
		if got := l.waitingNow(t, w.ID); got.State != WaitingOn {
			t.Errorf("%+v", got)
		}
		if _, err := l.Waiting(t.Context(), v.Run.ID); !fault.Is(err, fault.NotFound) {
			t.Error("a run that does not wait:", err)
		}
	}
	for i := range 2 * maxOwners {
		l.owners.add(fmt.Sprint(i), owner{projectID: project})
	}
	if n := len(l.owners.of); n > maxOwners {
		t.Errorf("%d owners are remembered", n)
	}
	must(t, l.Integrity(t.Context()))
}
