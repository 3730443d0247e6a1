package ledger

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"slurmgate/plan"
	"slurmgate/run"
)

// An attempt reserves its CPUs for its time limit and costs what its job ran once it has ended; days and months begin at midnight UTC. What
// is not admitted is not stored.
func TestSpent(t *testing.T) {
	l := fresh(t)
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	l.now = func() time.Time { return now }
	var project, caller run.Spent
	costly := func(i int, who string) run.New {
		n := newRun(i)
		n.Params = json.RawMessage(`{"slurm":{"resources":{"cpus":4,"time_limit_seconds":3600}},"x":` + string(rune('0'+i)) + `}`)
		n.Run.ParamsHash = plan.Hash(n.Params)
		n.Run.Principal = run.Principal{Name: "user:" + who, ID: "prn_" + who}
		n.Admit = func(p, c run.Spent) error { project, caller = p, c; return nil }
		return n
	}
	want := func(p, c run.Spent) {
		t.Helper()
		if project != p || caller != c {
			t.Errorf("project %+v, caller %+v; want %+v, %+v", project, caller, p, c)
		}
	}
	v, _, err := l.Insert(t.Context(), costly(1, "a"))
	must(t, err)
	want(run.Spent{RunsToday: 1, CPUSecondsThisMonth: 4 * 3600}, run.Spent{RunsToday: 1, CPUSecondsThisMonth: 4 * 3600})
	_, _, err = l.Insert(t.Context(), costly(2, "b"))
	must(t, err)
	want(run.Spent{RunsToday: 2, CPUSecondsThisMonth: 8 * 3600}, run.Spent{RunsToday: 1, CPUSecondsThisMonth: 4 * 3600})

	no := costly(3, "a")
	no.Admit = func(_, _ run.Spent) error { return errors.New("too much") }
	if _, created, err := l.Insert(t.Context(), no); created || err == nil {
		t.Error(created, err)
	}
	if _, err := l.View(t.Context(), no.Run.ID); err == nil {
		t.Error("a run that was not admitted is there")
	}

	started, ended := now, now.Add(10*time.Minute)
	v.Attempt.StartedAt, v.Attempt.EndedAt, v.Attempt.Ending = &started, &ended, run.EndedToolFailed
	apply(t, l, v, func(w *run.Write) { w.Attempts = []run.Attempt{v.Attempt} })
	_, _, err = l.Insert(t.Context(), costly(4, "a"))
	must(t, err)
	want(run.Spent{RunsToday: 3, CPUSecondsThisMonth: 8*3600 + 4*600}, run.Spent{RunsToday: 2, CPUSecondsThisMonth: 4*3600 + 4*600})

	now = now.Add(12 * time.Hour)
	_, _, err = l.Insert(t.Context(), costly(5, "a"))
	must(t, err)
	want(run.Spent{RunsToday: 1, CPUSecondsThisMonth: 4 * 3600}, run.Spent{RunsToday: 1, CPUSecondsThisMonth: 4 * 3600})
	if _, created, err := l.Insert(t.Context(), no); !created && err == nil {
		t.Error("a refused run is taken for one that is there")
	}
}

// What runs had that are executed as a Unix user counts for that user, whoever asked for them, also while they are in flight.
//
// proves SITE-08 OPS-03
func TestSpentAsAUser(t *testing.T) {
	l := fresh(t)
	var had run.Spent
	for i, who := range []struct {
		principal, user string
		runs            int64
	}{{"prn_peer", "alice", 1}, {"prn_token", "alice", 2}, {"prn_token", "bob", 1}, {"prn_token", "", 1}} {
		n := newRun(i + 1)
		n.Run.Principal, n.Run.ExecutedAs = run.Principal{Name: "x", ID: who.principal}, who.user
		n.Admit = func(_, c run.Spent) error { had = c; return nil }
		_, _, err := l.Insert(t.Context(), n)
		must(t, err)
		if had.RunsToday != who.runs {
			t.Errorf("%+v: %+v", who, had)
		}
	}
	waiters, err := list(t.Context(), l.r, scanWaiter, "SELECT r.run_id, r.project_id, "+caller+" FROM runs r")
	must(t, err)
	of := map[string]int{}
	for _, w := range waiters {
		of[w.Caller]++
	}
	if of["unix:alice"] != 2 || of["unix:bob"] != 1 || of["prn_token"] != 1 {
		t.Error(of)
	}
}
