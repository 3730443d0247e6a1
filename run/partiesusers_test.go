package run

import (
	"fmt"
	"testing"
	"time"
)

// One user has a part of the places in parties. Where others have all of them, a user's run goes alone, and does not wait for theirs.
func TestPlacesOfUsers(t *testing.T) {
	p := newParties(Arrays{Min: 1000, Linger: time.Second})
	joins := func(user string, n int) (last joined) {
		for i := range n {
			m := &guest{v: View{Run: Run{ID: fmt.Sprint(user, i), ExecutedAs: user}}}
			last = p.join(user, m, true, func(*party) {})
		}
		return last
	}
	if got := joins("alice", waitingOfOne); got != inParty || p.crowded("bob") || !p.crowded("alice") {
		t.Errorf("%v, and bob has no place: %v", got, p.crowded("bob"))
	}
	if got := joins("alice", waitingOfOne+1); got != noPlace {
		t.Errorf("one more of alice's: %v", got)
	}
	for _, user := range []string{"carol", "dave", "eve"} {
		if got := joins(user, waitingOfOne); got != inParty {
			t.Errorf("%s: %v", user, got)
		}
	}
	if got := joins("bob", 1); got != goesAlone || p.crowded("bob") {
		t.Errorf("bob's where others have all places: %v", got)
	}
	for _, user := range []string{"alice", "carol", "dave", "eve"} {
		p.left(p.byKey[user].waiting)
	}
	if got := joins("bob", 2); got != inParty || len(p.of) != 1 || p.of["bob"] != 2 {
		t.Errorf("bob's where there is room: %v, %v", got, p.of)
	}
}
