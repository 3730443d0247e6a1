package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// clock is a time that only the test moves.
type clock struct{ t time.Time }

func newClock() *clock                { return &clock{time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }
func (c *clock) now() time.Time       { return c.t }
func (c *clock) pass(d time.Duration) { c.t = c.t.Add(d) }

func place(account, partition, qos string) plan.Placement {
	at := plan.Placement{Account: account, Partition: partition}
	if qos != "" {
		at.QOS = &qos
	}
	return at
}

func testPressure(c *clock) (b *backPressure, resumed *int) {
	n := 0
	cfg := Config{DeferBackoff: 2 * time.Second, Ceiling: 10 * time.Second}
	return newBackPressure(cfg, c.now, slog.New(slog.DiscardHandler), func() { n++ }), &n
}

// A wait grows from the first one to the ceiling, for a single run as for a pause; a refusal that was in flight when
// the pause began does not lengthen it.
func TestBackPressureGrows(t *testing.T) {
	for _, scope := range []Scope{ScopeRun, ScopeSite, ScopePartition, ScopeAccount, ScopeQOS} {
		c := newClock()
		b, _ := testPressure(c)
		at := place("lab", "short", "")
		for _, want := range []time.Duration{2, 4, 8, 10, 10} {
			b.refused("r", sendTarget{Placement: at}, SendResult{Scope: scope})
			if scope != ScopeRun {
				b.refused("other", sendTarget{Placement: at}, SendResult{Scope: scope})
			}
			if c.pass(want*time.Second - 1); b.due("r") {
				t.Errorf("%q: due before %d s have passed", scope, want)
			}
			if c.pass(1); !b.due("r") {
				t.Errorf("%q: not due after %d s", scope, want)
			}
		}
		b.forget("r")
		b.accepted(sendTarget{Placement: at})
		b.refused("r", sendTarget{Placement: at}, SendResult{Scope: scope})
		if c.pass(2 * time.Second); !b.due("r") {
			t.Errorf("%q: a run that had moved on waits as long as before", scope)
		}
	}
}

// A pause holds the sends it concerns and no others.
func TestBackPressureScopes(t *testing.T) {
	at := place("lab", "short", "high")
	for scope, c := range map[Scope]struct{ held, free []plan.Placement }{
		ScopeRun:       {nil, []plan.Placement{at}},
		ScopePartition: {[]plan.Placement{place("x", "short", "")}, []plan.Placement{place("lab", "long", "high")}},
		ScopeAccount:   {[]plan.Placement{place("lab", "long", "")}, []plan.Placement{place("x", "short", "high")}},
		ScopeQOS: {[]plan.Placement{place("lab", "long", "high")}, []plan.Placement{place("lab", "short", ""),
			place("x", "short", "high")}},
		ScopeSite: {[]plan.Placement{place("x", "long", "")}, nil},
	} {
		b, _ := testPressure(newClock())
		b.refused("first", sendTarget{Placement: at}, SendResult{Scope: scope, Code: "NoRoom", Text: "full"})
		for i, p := range append(c.held, c.free...) {
			id := fmt.Sprint(i)
			why, held := b.holdIfPaused(id, sendTarget{Placement: p})
			if want := i < len(c.held); held != want || held == b.due(id) || held && (why.code != "NoRoom" || why.detail != "full") {
				t.Errorf("paused for %q, a send to %+v is held: %v (%s), due: %v; want held: %v",
					scope, p, held, why.code, b.due(id), want)
			}
		}
		if (b.sitePause() != nil) != (scope == ScopeSite) {
			t.Errorf("a refusal of the scope %q pauses the site with %+v, want a pause only for the site's scope",
				scope, b.sitePause())
		}
	}
}

// An accepted send ends the pauses that it disproves, the answer to a later query only that of a site that could not be
// reached. The runs that they held are due, and the engine is notified.
func TestBackPressureEnds(t *testing.T) {
	at := place("lab", "short", "")
	during := func(b *backPressure) { b.reached(b.now()) } // the query was sent no later than the send
	later := func(b *backPressure) { b.reached(b.now().Add(time.Millisecond)) }
	for _, c := range []struct {
		scope  Scope
		code   string
		end    func(*backPressure)
		really bool
	}{
		{ScopeSite, "EAGAIN", func(b *backPressure) { b.accepted(sendTarget{Placement: place("x", "y", "")}) }, true},
		{ScopePartition, "X", func(b *backPressure) { b.accepted(sendTarget{Placement: place("x", "short", "")}) }, true},
		{ScopePartition, "X", func(b *backPressure) { b.accepted(sendTarget{Placement: place("lab", "long", "")}) }, false},
		{ScopeQOS, "X", func(b *backPressure) { b.accepted(sendTarget{Placement: place("lab", "long", "")}) }, true},
		{ScopeSite, Unreachable, later, true},
		{ScopeSite, Unreachable, during, false},
		{ScopeSite, "EAGAIN", later, false},
		{ScopeAccount, Unreachable, later, false},
	} {
		b, resumed := testPressure(newClock())
		b.refused("r", sendTarget{Placement: at}, SendResult{Scope: c.scope, Code: c.code})
		if c.end(b); b.due("r") != c.really || (*resumed == 1) != c.really {
			t.Errorf("%q %s: due %v, resumed %d times", c.scope, c.code, b.due("r"), *resumed)
		}
	}
	b, resumed := testPressure(newClock())
	if b.accepted(sendTarget{Placement: at}); *resumed != 0 {
		t.Error("resumed without a pause")
	}
}

// To ask whether a run is due has no effect.
func TestDueChangesNothing(t *testing.T) {
	c := newClock()
	b, _ := testPressure(c)
	b.delay("r", time.Second)
	for range 2 {
		if b.due("r") || !b.due("another") {
			t.Error("due early, or late")
		}
	}
	c.pass(time.Second)
	for range 2 {
		if !b.due("r") {
			t.Error("not due after its delay")
		}
	}
	b.delay("r", time.Hour)
	if b.makeDue("r"); !b.due("r") {
		t.Error("not due although hurried")
	}
}

// The count of runs in flight follows the newest revision, in whichever order the results of writes arrive, and a place
// is offered to the run that has waited longest.
func TestLimiterCounts(t *testing.T) {
	c := newClock()
	b, _ := testPressure(c)
	var offered []string
	l := newLimiter(Config{InFlight: map[string]int{"tool": 1}, Ceiling: 10 * time.Second}, b,
		func(_ Share, id string) { offered = append(offered, id) })
	row := func(id string, rev int64, p Phase) Run {
		return Run{ID: id, Rev: rev, ToolName: "tool", PackHash: "h", Phase: p}
	}
	release, _, ok := l.reserve(row("a", 1, Staging))
	if !ok {
		t.Fatal("no place for the first run")
	}
	for _, id := range []string{"d", "c", "b"} {
		if _, why, ok := l.reserve(row(id, 1, Staging)); ok || why.code != ConcurrencyLimit || b.due(id) {
			t.Errorf("%s has a place too, or does not wait", id)
		}
	}
	intent := l.writing(row("a", 1, Submitting))
	receipt := l.writing(row("a", 2, Pending))
	over := l.writing(row("a", 3, Done))
	over(View{Run: row("a", 4, Done)}, nil)
	receipt(View{Run: row("a", 3, Pending)}, nil)
	intent(View{Run: row("a", 2, Submitting)}, nil)
	release()
	if tool := (bound{ConcurrencyLimit, "tool"}); l.flying[tool] != 1 || len(l.runs) != 1 || !slices.Equal(offered, []string{"d"}) ||
		!b.due("d") {
		t.Errorf("%d places taken, %d entries, offered %v", l.flying[tool], len(l.runs), offered)
	}
	// A reserved place without a write goes to the next run.
	release, _, _ = l.reserve(row("d", 1, Staging))
	if release(); !slices.Equal(offered, []string{"d", "c"}) {
		t.Errorf("offered %v", offered)
	}
	// A failed write changes nothing.
	l.writing(row("c", 1, Submitting))(View{}, errors.New("no"))
	if l.unclaimed("c"); !slices.Equal(offered, []string{"d", "c", "b"}) {
		t.Errorf("offered %v after a worker did not take its place", offered)
	}
	l.unclaimed("b")
	if _, _, ok := l.reserve(Run{ID: "raw", ToolName: "tool"}); !ok || len(l.runs)+len(l.flying) != 0 {
		t.Error("a plan submitted as it is waits for a tool's place, or an entry is left")
	}
}

// Of several changes a listener receives the newest, in whichever order they are announced, and every listener receives
// them.
func TestWaiters(t *testing.T) {
	w := newWaiters()
	at := func(rev int64) View { return View{Run: Run{ID: "r", Rev: rev}} }
	early, stopEarly := w.listen("r")
	for _, rev := range []int64{2, 4, 3} {
		w.announce(at(rev))
	}
	late, stopLate := w.listen("r")
	w.announce(at(1))
	w.announce(View{Run: Run{ID: "another", Rev: 9}})
	if a, b := (<-early).Run.Rev, (<-late).Run.Rev; a != 4 || b != 1 {
		t.Errorf("revisions %d and %d", a, b)
	}
	stopEarly()
	w.announce(at(5))
	if v := <-late; v.Run.Rev != 5 || len(early) != 0 {
		t.Errorf("revision %d; %d for one that stopped", v.Run.Rev, len(early))
	}
	if stopLate(); len(w.byRun) != 0 {
		t.Error("an entry without a listener is left")
	}
}

// A copy that was handed over is taken once.
func TestHandedOnce(t *testing.T) {
	w := newWaiters()
	for i := range maxHanded + 1 {
		w.hand(View{Run: Run{ID: fmt.Sprint(i)}}, plan.Params{ProjectID: fmt.Sprint(i)})
	}
	if _, ok := w.take(fmt.Sprint(maxHanded)); ok || len(w.handed) != maxHanded {
		t.Errorf("%d copies", len(w.handed))
	}
	if h, ok := w.take("0"); !ok || h.view.Run.ID != "0" || h.params.ProjectID != "0" {
		t.Errorf("taken is %+v, want the entry 0 with its view", h)
	}
	if _, ok := w.take("0"); ok {
		t.Error("taken twice")
	}
}

// A failed query is not an observation: the time of the last answer stays. A sought id is in one query.
func TestWatcher(t *testing.T) {
	c := newClock()
	w := newWatcher(c.now)
	w.note(nil)
	first := c.now()
	c.pass(time.Minute)
	w.note(errors.New("no answer"))
	if at, err := w.answered(); !at.Equal(first) || err == nil {
		t.Errorf("after an error the watcher has the answer of %s, %v, want that of %s and the error", at, err, first)
	}
	w.note(nil)
	if at, err := w.answered(); !at.Equal(c.now()) || err != nil {
		t.Errorf("after an answer the watcher has that of %s, %v, want that of %s and no error", at, err, c.now())
	}
	w.seek("7")
	w.seek("7")
	w.seek("8")
	if ids := w.takeSought(); len(ids) != 2 || !ids["7"] || len(w.takeSought()) != 0 {
		t.Errorf("the sought jobs are %v, want 7 and 8, and none the second time", ids)
	}
	w.expectStrays(c.now().Add(time.Minute))
	c.pass(time.Minute - 1)
	if !w.expectsStrays() {
		t.Error("looked for too short a time")
	}
	if c.pass(1); w.expectsStrays() {
		t.Error("looked for too long")
	}
	w.wake()
	w.wake()
	if len(w.wakeups) != 1 {
		t.Error("two wake-ups are more than one")
	}
}

// Files are waited for from the first attempt to collect, until the run leaves its phase.
func TestLateFiles(t *testing.T) {
	c := newClock()
	l := &lateFiles{now: c.now, since: map[string]time.Time{}}
	l.begin("r")
	c.pass(time.Minute)
	l.begin("r")
	if l.begin("s"); l.waited("r") != time.Minute || l.waited("s") != 0 {
		t.Errorf("the files of r and s are awaited for %s and %s, want 1m0s and 0s", l.waited("r"), l.waited("s"))
	}
	l.forget("r")
	if l.begin("r"); l.waited("r") != 0 {
		t.Errorf("after forget the files are awaited for %s, want 0s", l.waited("r"))
	}
}

// Only a filesystem that is unavailable or full counts, until a run is staged or no run was staged for long.
func TestDiskHealth(t *testing.T) {
	c := newClock()
	d := &diskHealth{now: c.now, fresh: time.Minute}
	full := fault.New(fault.Transport, "disk_full", "full")
	for _, s := range []struct {
		staged error
		passed time.Duration
		want   error
	}{{fault.New(fault.Validation, "input_corrupt", ""), 0, nil}, {full, 0, full}, {fault.New(fault.Policy, "x", ""), 0, full},
		{full, time.Minute - 1, full}, {full, time.Minute, nil}, {full, 0, full}, {nil, 0, nil}} {
		d.staged(s.staged)
		if c.pass(s.passed); d.failure() != s.want {
			t.Errorf("staging that gave %v, %s later, leaves the failure %v, want %v", s.staged, s.passed, d.failure(), s.want)
		}
	}
}

// A queue gives each id to one worker at a time, in order of arrival, and once more if it is added meanwhile.
func TestWorkQueue(t *testing.T) {
	q := newWorkQueue[string](nil, 0)
	for _, id := range []string{"a", "b", "a"} {
		q.add(Share{}, id)
	}
	first, _ := q.take(t.Context())
	q.add(Share{}, "a")
	second, _ := q.take(t.Context())
	if first != "a" || second != "b" || !q.working("a") || !q.working("b") || q.working("c") || q.empty() {
		t.Errorf("the queue gives %q and %q, want a and b, both in work and c not", first, second)
	}
	q.done("b")
	ended, stop := context.WithCancel(t.Context())
	stop()
	if id, ok := q.take(ended); ok {
		t.Errorf("%s is worked on twice at a time", id)
	}
	q.done("a")
	var wg sync.WaitGroup
	var again []string
	wg.Go(func() { q.each(t.Context(), func(_ context.Context, id string) { again = append(again, id) }) })
	if err := q.idle(t.Context()); err != nil {
		t.Error(err)
	}
	q.close()
	wg.Wait()
	if q.add(Share{}, "late"); !slices.Equal(again, []string{"a"}) || !q.empty() {
		t.Errorf("the closed queue gave %q, want a alone and an empty queue", again)
	}
}

// An id that is worked on and waits to be worked on once more is not another id of its share.
func TestWorkQueueOthers(t *testing.T) {
	q := newWorkQueue[string](nil, 0)
	q.add(Share{}, "a")
	q.add(Share{Project: "other"}, "b")
	waits := q.others(Share{}, "a")
	id, _ := q.take(t.Context())
	q.add(Share{}, id)
	if waits || q.others(Share{}, id) {
		t.Error("a is another of its share")
	}
	if q.add(Share{}, "c"); !q.others(Share{}, id) {
		t.Error("c is no other of a's share")
	}
}

// A project whose thousand runs wait for a worker delays another project's by one.
func TestWorkQueueTakesTurns(t *testing.T) {
	q := newWorkQueue[string](nil, 0)
	for i := range 1000 {
		q.add(Share{Project: "greedy"}, fmt.Sprint("g", i))
	}
	q.add(Share{}, "of any")
	q.add(Share{Project: "modest"}, "m0")
	q.add(Share{Project: "modest"}, "m1")
	var order []string
	for range 1003 {
		id, _ := q.take(t.Context())
		order = append(order, id)
		q.done(id)
	}
	if want := []string{"of any", "g0", "m0", "g1", "m1", "g2"}; !slices.Equal(order[:len(want)], want) || order[1002] != "g999" {
		t.Errorf("the order is %q and at last %q, want the two projects by turns and at last g999", order[:8], order[1002])
	}
	if !q.empty() || len(q.waiting.projects) != 0 || len(q.busy) != 0 {
		t.Error("something stays behind")
	}
}
