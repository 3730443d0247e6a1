package run

import (
	"fmt"
	"slices"
	"testing"
)

// picks picks n items and counts them by share.
func picks(t *turns[string], n int) map[string]int {
	of := map[string]int{}
	for range n {
		s, _, ok := t.next(nil, nil)
		if !ok {
			break
		}
		of[s.Project+"/"+s.Caller]++
	}
	return of
}

// Projects take turns by weight, callers of a project equally, whatever each has waiting.
func TestTurnsAreShared(t *testing.T) {
	q := newTurns[string](func(p string) int { return map[string]int{"heavy": 3, "light": 0}[p] })
	for s, n := range map[Share]int{{"heavy", "a"}: 1000, {"heavy", "b"}: 100, {"light", "c"}: 5000, {"plain", "d"}: 100} {
		for i := range n {
			q.add(s, fmt.Sprint(s, i))
		}
	}
	of := picks(q, 100)
	for share, want := range map[string]int{"heavy/a": 30, "heavy/b": 30, "light/c": 20, "plain/d": 20} {
		if of[share] < want-1 || of[share] > want+1 {
			t.Errorf("%s has %d of 100 turns, not %d", share, of[share], want)
		}
	}
	if q.len() != 6200-100 {
		t.Errorf("the queue has %d entries, want %d", q.len(), 6200-100)
	}
}

// A late caller starts where the others are: neither behind all that waits, nor with the turns it did not take. A
// caller who asks for one item at a time gets no more than one who asks for many.
func TestTurnsOfLateComers(t *testing.T) {
	q := newTurns[string](nil)
	many, one := Share{"p", "many"}, Share{"p", "one"}
	for i := range 1000 {
		q.add(many, fmt.Sprint("m", i))
	}
	picks(q, 500)
	for i := range 5 {
		q.add(one, fmt.Sprint("o", i))
	}
	if of := picks(q, 6); of["p/one"] != 3 {
		t.Errorf("after 500 turns of another: %v", of)
	}
	picks(q, 4)
	of := map[string]int{}
	for i := range 20 { // it asks again immediately each time
		q.add(one, fmt.Sprint("again", i))
		s, _, _ := q.next(nil, nil)
		of[s.Caller]++
	}
	if of["one"] > 11 || of["many"] < 9 {
		t.Errorf("one thing at a time: %v", of)
	}
}

// An item that does not fit is skipped and saves up no turns; a removed item is not picked; each caller's items come in
// their order.
func TestTurnsThatDoNotFit(t *testing.T) {
	q := newTurns[string](nil)
	a, b := Share{"p", "a"}, Share{"q", "b"}
	for i := range 100 {
		q.add(a, fmt.Sprint("a", i))
		q.add(b, fmt.Sprint("b", i))
	}
	onlyB := func(s Share) bool { return s == b }
	for range 50 {
		if s, _, ok := q.next(onlyB, nil); !ok || s != b {
			t.Fatalf("next gives %v %v, want an entry of %v", s, ok, b)
		}
	}
	if of := picks(q, 20); of["p/a"] > 11 {
		t.Errorf("turns were saved up: %v", of)
	}
	q = newTurns[string](nil)
	for _, id := range []string{"1", "2", "3", "4", "2"} {
		q.add(a, id)
	}
	q.remove("3")
	q.remove("3")
	var got []string
	for {
		_, id, ok := q.next(nil, func(id string) bool { return id != "1" })
		if !ok {
			break
		}
		got = append(got, id)
	}
	if !slices.Equal(got, []string{"2", "4"}) || q.len() != 1 || !q.has("1") {
		t.Errorf("the queue gave %q and has %d left, want 2 and 4 given and only 1 left", got, q.len())
	}
	if q.remove("1"); len(q.projects) != 0 {
		t.Error("the empty queue still has projects, want none")
	}
}

// A pick costs time by the number of callers, not of waiting items.
func BenchmarkTurns(b *testing.B) {
	for _, waiting := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(waiting), func(b *testing.B) {
			q := newTurns[int](nil)
			for i := range waiting {
				q.add(Share{fmt.Sprint(i % 10), fmt.Sprint(i % 100)}, i)
			}
			for i := waiting; b.Loop(); i++ {
				s, _, _ := q.next(nil, nil)
				q.add(s, i)
			}
		})
	}
}

// The position of an item is how many are picked before it, and its numbers are those of its caller, project and
// others.
func TestPlaceInTheTurns(t *testing.T) {
	q := newTurns[string](func(p string) int { return map[string]int{"p": 3}[p] })
	for s, n := range map[Share]int{{"p", "a"}: 40, {"p", "b"}: 3, {"q", "a"}: 25, {"r", "c"}: 9} {
		for i := range n {
			q.add(s, fmt.Sprint(s.Project, s.Caller, i))
		}
	}
	picks(q, 7) // somewhere in the middle of a round
	w := q.place("pb2")
	if w.Caller+w.Project+w.Others == 0 || w.Caller > 3 || w.Project+w.Others != q.len() || w.Busiest.PrincipalID != "a" {
		t.Errorf("the place of pb2 is %+v, want at most 3 of its caller before it, %d in all, busiest a", w, q.len())
	}
	if q.place("none") != nil {
		t.Error("place of an item that does not wait is not nil")
	}
	want := map[string]int{}
	for id := range q.at {
		want[id] = q.place(id).Ahead
	}
	for n := 0; q.len() > 0; n++ {
		_, id, _ := q.next(nil, nil)
		if d := want[id] - n; d < -1 || d > 1 { // a rounding of thirds
			t.Errorf("%s was picked after %d items, want %d", id, n, want[id])
		}
	}
}
