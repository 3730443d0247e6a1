package run

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A pending array leaves when its linger has passed, also while further runs join it.
//
// proves MANY-02
func TestPartyLeavesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const linger = 3 * time.Second
		p := newPendingArrays(Arrays{Min: 1000, Linger: linger})
		waiting := &pendingArray{full: make(chan struct{}, 1)}
		left := make(chan struct{})
		comes := time.NewTicker(linger / pauses / 2)
		defer comes.Stop()
		began := time.Now()
		go func() {
			defer close(left)
			if err := p.wait(t.Context(), waiting); err != nil {
				t.Errorf("wait: %v", err)
			}
		}()
		for {
			select {
			case <-comes.C:
				p.mu.Lock()
				waiting.waiting = append(waiting.waiting, &arrayCandidate{})
				p.mu.Unlock()
				if took := time.Since(began); took > 2*linger {
					t.Fatalf("a party that others keep joining has not left after %s, want %s", took, linger)
				}
			case <-left:
				if took := time.Since(began); took != linger {
					t.Errorf("a party that others keep joining left after %s, want %s", took, linger)
				}
				return
			}
		}
	})
}

// One user may have only part of the places in pending arrays. If other users have all places, a user's run is sent
// alone, and does not wait for theirs.
func TestPlacesOfUsers(t *testing.T) {
	p := newPendingArrays(Arrays{Min: 1000, Linger: time.Second})
	joins := func(user string, n int) (last joined) {
		for i := range n {
			m := &arrayCandidate{v: View{Run: Run{ID: fmt.Sprint(user, i), ExecutedAs: user}}}
			last = p.join(user, m, true, func(*pendingArray) {})
		}
		return last
	}
	if got := joins("alice", waitingOfOne); got != inArray || p.full("bob") || !p.full("alice") {
		t.Errorf("alice's calls end with %v, full for bob: %v; want %v, and room for bob alone", got, p.full("bob"), inArray)
	}
	if got := joins("alice", waitingOfOne+1); got != noPlace {
		t.Errorf("one more of alice's: %v", got)
	}
	for _, user := range []string{"carol", "dave", "eve"} {
		if got := joins(user, waitingOfOne); got != inArray {
			t.Errorf("the last run of %s joins as %v, want %v", user, got, inArray)
		}
	}
	if got := joins("bob", 1); got != sentAlone || p.full("bob") {
		t.Errorf("bob's where others have all places: %v", got)
	}
	for _, user := range []string{"alice", "carol", "dave", "eve"} {
		p.left(p.byKey[user].waiting)
	}
	if got := joins("bob", 2); got != inArray || len(p.of) != 1 || p.of["bob"] != 2 {
		t.Errorf("bob's where there is room: %v, %v", got, p.of)
	}
}
