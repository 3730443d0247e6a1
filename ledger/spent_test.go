package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

// The use of runs that are executed as a Unix user counts for that user, for any requester, also while they are in
// flight.
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
			t.Errorf("%+v: Admit saw %d runs today", who, had.RunsToday)
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

// spend is a finished attempt for the table of a month.
type spend struct {
	caller, account string
	ended           time.Time
	ending          run.Ending
	own             string // the job's own record; "": none
	accounted       *run.Usage
}

func (s spend) store(t *testing.T, l *Ledger, i int) {
	t.Helper()
	n := newRun(i)
	n.Run.Principal.Name = s.caller
	if s.account != "" {
		n.Placement = &plan.Placement{Partition: "main", Account: s.account}
	}
	v, _, err := l.Insert(t.Context(), n)
	must(t, err)
	apply(t, l, v, func(w *run.Write) {
		zero := 0
		w.Run.State, w.Run.Phase, w.Run.FinishedAt, w.Run.ExitCode = run.Failed, run.Done, &s.ended, &zero
		if s.ending == run.EndedOK {
			w.Run.State = run.Succeeded
		}
		a := v.Attempt
		a.Ending, a.StartedAt, a.EndedAt = s.ending, &s.ended, &s.ended
		if s.own != "" {
			a.Usage = json.RawMessage(s.own)
		}
		w.Attempts = []run.Attempt{a}
		out := run.Artifact{ID: fmt.Sprintf("art_%026d", i), ProjectID: project, SHA256: fmt.Sprintf("%064d", i), Type: "TEXT", Label: "x",
			SizeBytes: 100, Source: v.Run.ID}
		w.Artifacts, w.Outputs = []run.Artifact{out}, []run.Link{{Role: "r", ArtifactID: out.ID, Relpath: "out/x"}}
	})
	if s.accounted != nil {
		must(t, l.Measure(t.Context(), map[string]*run.Usage{v.Attempt.Token: s.accounted}))
	}
}

// A month adds up the attempts that ended in it, by the time zone's own months. Accounting takes precedence over the
// job's own record, and a value that was not measured is not 0 but missing, and counted.
//
// proves OPS-03
func TestSpentInAMonth(t *testing.T) {
	l := fresh(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(t, err)
	november := time.Date(2026, 11, 1, 0, 0, 0, 0, berlin)
	own := `{"elapsed_seconds":100,"user_seconds":30,"system_seconds":6}`
	for i, s := range []spend{
		{"user:alice", "research", november, run.EndedOK, own, &run.Usage{ElapsedSeconds: 100, CPUSeconds: 72, MaxRSSBytes: 5, AllocCPUs: 4}},
		{"user:alice", "research", november.Add(time.Hour), run.Ending("tool_failed"), own, nil},
		{"user:alice", "teaching", november.AddDate(0, 1, 0).Add(-time.Second), run.EndedCancelled, "", nil},
		{"", "", november.Add(time.Hour), run.EndedOK, "", &run.Usage{ElapsedSeconds: 10, CPUSeconds: 0, AllocCPUs: 1}},
		{"user:alice", "research", november.Add(-time.Second), run.EndedOK, own, nil}, // October in Berlin, and in UTC
		{"user:alice", "research", november.AddDate(0, 1, 0), run.EndedOK, own, nil},  // December
		{"user:alice", "research", november.Add(-time.Minute), run.EndedOK, own, nil}, // October
	} {
		s.store(t, l, i+1)
	}
	f := func(v float64) *float64 { return &v }
	n := func(v int64) *int64 { return &v }
	for name, c := range map[string]struct {
		ask  Spent
		want []SpentRow
	}{
		"all": {Spent{From: november, To: november.AddDate(0, 1, 0), By: []string{"project", "account", "caller", "tool"}}, []SpentRow{
			{project, "", "", "t.x", 1, 1, 1, 0, 0, f(0), f(10), nil, 0, 100, 0},
			{project, "research", "user:alice", "t.x", 2, 2, 1, 1, 0, f(108), f(400), n(5), 0, 200, 0},
			{project, "teaching", "user:alice", "t.x", 1, 1, 0, 0, 1, nil, nil, nil, 0, 100, 1}}},
		"by account": {Spent{From: november, To: november.AddDate(0, 1, 0), By: []string{"account"}}, []SpentRow{
			{"", "", "", "", 1, 1, 1, 0, 0, f(0), f(10), nil, 0, 100, 0}, {"", "research", "", "", 2, 2, 1, 1, 0, f(108), f(400), n(5), 0, 200, 0},
			{"", "teaching", "", "", 1, 1, 0, 0, 1, nil, nil, nil, 0, 100, 1}}},
		"UTC": {Spent{From: november.Add(time.Hour), To: november.AddDate(0, 1, 0).Add(time.Hour), By: []string{"caller"}}, []SpentRow{
			{"", "", "", "", 1, 1, 1, 0, 0, f(0), f(10), nil, 0, 100, 0}, {"", "", "user:alice", "", 3, 3, 1, 1, 1, f(72), nil, nil, 0, 300, 1}}},
		"another project": {Spent{From: november, To: november.AddDate(1, 0, 0), By: []string{"tool"}, Projects: []string{"proj_x"}}, nil},
	} {
		got, err := l.Spent(t.Context(), c.ask)
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", name, err, d)
		}
	}
}
