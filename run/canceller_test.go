package run

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"slurmgate/fault"
)

// scancels is a Slurm that records the jobs it is asked to cancel.
type scancels struct {
	Queue
	asked []string
	fails error
}

func (s *scancels) MessageTimeout(context.Context) (time.Duration, error) {
	return 40 * time.Second, nil
}

func (s *scancels) Cancel(_ context.Context, id, name, shown string) error {
	s.asked = append(s.asked, id+" "+cmp.Or(shown, name))
	return s.fails
}

// testCanceller returns a canceller whose worker is the test; said gets the details it records in runs. In Slurm, the
// jobs a1 and b1 have the names a and b.
func testCanceller(c *clock, slurm *scancels, silent *error, said *[]string) *canceller {
	k := &canceller{slurm: slurm, queue: slurm, log: slog.New(slog.DiscardHandler), now: c.now, silent: func() error { return *silent },
		waits: func(_ context.Context, name, detail string) { *said = append(*said, detail) }, wake: func() {},
		about: func(context.Context, string) []any { return nil },
		named: func(_ context.Context, id, name string) (string, error) {
			return strings.TrimRight(name, "0123456789"), nil
		},
		jobs: newWorkQueue[namedJob](nil, 0), asked: map[namedJob]time.Time{}, tasks: map[namedJob]map[namedJob]bool{},
		next: map[namedJob]time.Time{}}
	k.jobs.ready = k.due
	return k
}

// work does the work that is ready now.
func (c *canceller) work(ctx context.Context) {
	ended, stop := context.WithCancel(ctx)
	defer time.AfterFunc(50*time.Millisecond, stop).Stop()
	c.jobs.whileNeeded(ended, ctx, c.ask)
}

// Slurm is asked about tasks of an array in one call, under each name that was sent with the array's id, and only after
// a while again.
func TestCancellerOfTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, slurm := newClock(), &scancels{}
		var silent error
		var said []string
		k := testCanceller(c, slurm, &silent, &said)
		want := func(asked ...string) {
			t.Helper()
			k.work(t.Context())
			if slices.Sort(slurm.asked); !slices.Equal(slurm.asked, asked) {
				t.Errorf("Slurm was asked to cancel %q, want %q", slurm.asked, asked)
			}
			slurm.asked = nil
		}
		k.cancel(Run{}, namedJob{id: "7_2", name: "a2"})
		want("7_2 a")
		for _, id := range []string{"7_0", "7_1", "7_2", "7_3"} {
			k.cancel(Run{}, namedJob{id: id, name: map[bool]string{true: "b", false: "a"}[id == "7_3"] + id[2:]})
		}
		k.cancel(Run{}, namedJob{id: "8", name: "c"})
		want("8 c")
		c.pass(betweenTasks)
		want("7_3 b", "7_[0,1] a")
		c.pass(askAgainAfter)
		silent = errors.New("no answer")
		k.cancel(Run{}, namedJob{id: "7_0", name: "a0"})
		k.cancel(Run{}, namedJob{id: "7_1", name: "a1"})
		if want(); len(said) != 2 {
			t.Errorf("said %q", said)
		}
		c.pass(askAgainAfter)
		silent, slurm.fails = nil, fault.New(fault.Transport, "x", "scancel: timed out")
		k.cancel(Run{}, namedJob{id: "7_0", name: "a0"})
		k.cancel(Run{}, namedJob{id: "7_1", name: "a1"})
		if want("7_[0,1] a"); len(said) != 4 || len(k.tasks) != 0 {
			t.Errorf("said %q, left %v", said, k.tasks)
		}
		c.pass(betweenTasks + 1)
		if k.forgetOld(); len(k.next) != 0 {
			t.Errorf("after the wait between tasks forgetOld keeps %v, want nothing", k.next)
		}
	})
}

// Slurm is asked about a job once, and again only after the deadline; not at all while it does not answer.
func TestCanceller(t *testing.T) {
	c, slurm := newClock(), &scancels{}
	var silent error
	var said []string
	k := testCanceller(c, slurm, &silent, &said)
	k.named = func(_ context.Context, _, name string) (string, error) { return name, nil }
	work := func() {
		for !k.jobs.empty() {
			j, _ := k.jobs.take(t.Context())
			k.ask(t.Context(), j)
			k.jobs.done(j)
		}
	}
	want := func(asked, words int) {
		t.Helper()
		work()
		if len(slurm.asked) != asked || len(said) != words {
			t.Fatalf("asked %q, said %q", slurm.asked, said)
		}
	}
	k.cancel(Run{}, namedJob{id: "7", name: "sg-a"})
	k.cancel(Run{}, namedJob{id: "7", name: "sg-a"})
	k.cancel(Run{}, namedJob{id: "7", name: "sg-b"}) // the same id under another name is another job
	want(2, 0)
	c.pass(askAgainAfter - 1)
	k.cancel(Run{}, namedJob{id: "7", name: "sg-a"})
	want(2, 0)
	c.pass(1)
	k.cancel(Run{}, namedJob{id: "7", name: "sg-a"}) // twice MessageTimeout has not passed
	want(2, 0)
	c.pass(20 * time.Second)
	slurm.fails = fault.New(fault.Transport, "x", "scancel: timed out")
	k.cancel(Run{}, namedJob{id: "7", name: "sg-a"})
	want(3, 1)
	silent = errors.New("no answer")
	k.cancel(Run{}, namedJob{id: "8", name: "sg-c"})
	want(3, 2)
	if silent = nil; len(k.asked) != 2 {
		t.Errorf("a job counts as asked about that was not: %v", k.asked)
	}
	c.pass(askedKept + 1)
	if k.forgetOld(); len(k.asked) != 0 {
		t.Errorf("forgetOld keeps the jobs %v that were asked about long ago, want nothing", k.asked)
	}
}
