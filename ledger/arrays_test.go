package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/run"
)

// An array is stored with the intent of all its runs, or not at all; each of them ends by itself, and the ledger
// resolves a task to its run.
func TestArrays(t *testing.T) {
	l := fresh(t)
	views := []run.View{insert(t, l, 1), insert(t, l, 2), insert(t, l, 3)}
	const name = "sg-array-000000000000000000000001"
	intent := func(tasks ...run.View) (list []run.Write) {
		for i, v := range tasks {
			from := v
			v.Submission.Array, v.Attempt.ArrayTask = name, &i
			w := run.Write{Run: v.Run, Submission: &v.Submission, Attempts: []run.Attempt{v.Attempt}, From: &from,
				Event: run.Event{Type: "run.intent"}}
			if i == 0 {
				w.Array = &run.ArrayRow{Name: name, RunID: v.Run.ID, N: 1, Token: v.Submission.Token, K: 1, Size: len(tasks)}
			}
			list = append(list, w)
		}
		return list
	}
	changed := views[1]
	changed.Run.Rev++
	_, err := l.ApplyAll(t.Context(), intent(views[0], changed))
	wantFault(t, err, fault.Conflict, "stale_run")
	if v, err := l.View(t.Context(), views[0].Run.ID); err != nil || v.Run.Rev != views[0].Run.Rev || v.Submission.Array != "" {
		t.Errorf("after a refused write: revision %d, array %q, error %v; want revision %d, no array", v.Run.Rev,
			v.Submission.Array, err, views[0].Run.Rev)
	}
	_, err = l.Array(t.Context(), name)
	wantFault(t, err, fault.NotFound, "array_not_found")

	sent, err := l.ApplyAll(t.Context(), intent(views[:2]...))
	must(t, err)
	for i, v := range sent {
		read, err := l.View(t.Context(), v.Run.ID)
		if err != nil || read.Submission.Array != name || *read.Attempt.ArrayTask != i || v.Submission.Array != name ||
			*v.Attempt.ArrayTask != i || v.Run.Rev != read.Run.Rev {
			t.Errorf("run %d: array %q read, %q returned, revision %d read, %d returned, error %v; want array %q in both", i,
				read.Submission.Array, v.Submission.Array, read.Run.Rev, v.Run.Rev, err, name)
		}
		if of, err := l.ArrayOf(t.Context(), v.Submission.JobName); err != nil || of != name {
			t.Errorf("%q %v", of, err)
		}
	}
	if of, err := l.ArrayOf(t.Context(), views[2].Submission.JobName); err != nil || of != "" {
		t.Errorf("%q %v", of, err)
	}
	a, err := l.Array(t.Context(), name)
	want := []string{views[0].Submission.JobName, views[1].Submission.JobName}
	if err != nil || a.RunID != views[0].Run.ID || a.K != 1 || a.Size != 2 || !slices.Equal(a.Jobs, want) {
		t.Errorf("Array(%s) = run %s, k %d, size %d, jobs %q, %v; want run %s, 1, 2, %q", name, a.RunID, a.K, a.Size, a.Jobs, err,
			views[0].Run.ID, want)
	}
	ended := func(v run.View, want bool) {
		t.Helper()
		if ended, err := l.Ended(t.Context(), v.Submission.JobName); err != nil || ended != want {
			t.Errorf("%s ended: %v, want %v: %v", v.Submission.JobName, ended, want, err)
		}
	}
	finish(t, l, sent[1])
	ended(sent[0], false)
	ended(sent[1], true)

	// Slurm refused the array; the other run is sent alone.
	v := sent[0]
	from := v
	v.Submission.Array, v.Attempt.ArrayTask = "", nil
	_, err = l.Apply(t.Context(), run.Write{Run: v.Run, Submission: &v.Submission, Attempts: []run.Attempt{v.Attempt}, From: &from,
		Event: run.Event{Type: "run.intent"}})
	must(t, err)
	if a, err := l.Array(t.Context(), name); err != nil || !slices.Equal(a.Jobs, []string{"", want[1]}) {
		t.Errorf("after a second send of the first run, Array(%s) has the jobs %q, %v; want %q", name, a.Jobs, err,
			[]string{"", want[1]})
	}
}

// The nodes that an attempt avoids are stored with it and come back, and the faults of nodes are counted by node and fault; what the
// program did, or what happened earlier, is not among them.
func TestNodeFaults(t *testing.T) {
	l := fresh(t)
	for n, c := range []struct {
		node   string
		ending run.Ending
		ago    time.Duration
	}{{"n1", run.EndedImageMissing, time.Hour}, {"n1", run.EndedImageMissing, time.Minute}, {"n2", run.EndedNoUserNS, time.Minute},
		{"n2", run.EndedToolFailed, time.Minute}, {"n3", run.EndedImageMissing, 100 * time.Hour}, {"", run.EndedBootFail, time.Minute}} {
		v := insert(t, l, n+1)
		apply(t, l, v, func(w *run.Write) {
			at := t0.Add(-c.ago)
			w.Run.State, w.Run.Phase, w.Run.FinishedAt = run.Failed, run.Done, &at
			a := v.Attempt
			a.Ending, a.Node, a.EndedAt = c.ending, c.node, &at
			w.Attempts = []run.Attempt{a}
		})
	}
	got, err := l.NodeFaults(t.Context(), t0.Add(-24*time.Hour))
	must(t, err)
	var have [][4]any
	for _, f := range got {
		have = append(have, [4]any{f.Node, f.Fault, f.Count, f.Last.Equal(t0.Add(-time.Minute)) && f.RunID != ""})
	}
	if d := cmp.Diff([][4]any{{"n1", run.EndedImageMissing, 2, true}, {"n2", run.EndedNoUserNS, 1, true}}, have); d != "" {
		t.Error(d)
	}
}

func TestAvoidedNodesAreStored(t *testing.T) {
	l := fresh(t)
	v := insert(t, l, 1)
	avoid := []run.Avoided{{Node: "n1", Fault: run.EndedImageMissing, Attempt: 1, At: t0}}
	sub := run.Submission{Token: "00000000000000000000000000000002", JobName: "sg-second", CreatedAt: t0}
	got := apply(t, l, v, func(w *run.Write) {
		w.Run.AttemptN, w.Submission = 2, &sub
		w.Attempts = append(w.Attempts, run.Attempt{RunID: v.Run.ID, N: 2, Token: sub.Token, CreatedAt: t0, Avoid: avoid})
	})
	if d := cmp.Diff(avoid, got.Attempt.Avoid); d != "" {
		t.Error(d)
	}
	all, err := l.Attempts(t.Context(), v.Run.ID)
	must(t, err)
	if d := cmp.Diff([][]run.Avoided{nil, avoid}, [][]run.Avoided{all[0].Avoid, all[1].Avoid}); d != "" {
		t.Error(d)
	}
}

// Of changes that share a transaction the refused ones leave nothing and the others everything, in their order of
// arrival; each change acts once outside the database.
func TestGroupRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) { groupRefused(t, openAt(t, path)) })
}

func groupRefused(t *testing.T, l *Ledger) {
	t.Helper()
	note := func(id string) func(context.Context, *sql.Conn) error {
		return func(ctx context.Context, tx *sql.Conn) error {
			err := l.appendEvent(ctx, tx, id, run.Event{Type: "run.test", Data: map[string]any{}})
			return err
		}
	}
	refused := errors.New("refused")
	removals := 0
	remove := func() error { removals++; return nil }
	changes := map[string]func(context.Context, *sql.Conn) error{
		"refuses": func(ctx context.Context, tx *sql.Conn) error {
			return errors.Join(note("refuses")(ctx, tx), refused)
		},
		"panics": func(ctx context.Context, tx *sql.Conn) error {
			if err := note("panics")(ctx, tx); err != nil {
				return err
			}
			panic("of a change")
		},
		"breaks a rule": func(ctx context.Context, tx *sql.Conn) error {
			if err := note("breaks")(ctx, tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM events")
			return err
		},
	}
	for name, bad := range changes {
		removals = 0
		wait, results := make(chan bool), map[string]chan error{}
		begin := func(name string, f func() error) {
			c := make(chan error, 1)
			results[name] = c
			go func() { c <- f() }()
			synctest.Wait() // it waits, behind the others
		}
		tx := func(f func(context.Context, *sql.Conn) error) func() error {
			return func() error { return l.tx(t.Context(), f) }
		}
		begin("the writer is busy", tx(func(context.Context, *sql.Conn) error { <-wait; return nil }))
		begin("first", tx(note("first")))
		begin("removal", func() error { _, err := l.Unheld(t.Context(), fmt.Sprintf("%064x", 1), remove); return err })
		begin("bad", tx(bad))
		begin("last", tx(note("last")))
		close(wait)
		for n, c := range results {
			if err := <-c; (err != nil) != (n == "bad") {
				t.Errorf("%s: %s: %v", name, n, err)
			}
		}
		if removals != 1 {
			t.Errorf("%s: removed %d times", name, removals)
		}
	}
	for id, want := range map[string]int{"first": 3, "last": 3, "refuses": 0, "panics": 0, "breaks": 0} {
		if list, err := l.Events(t.Context(), id); err != nil || len(list) != want {
			t.Errorf("%s: %d events, want %d: %v", id, len(list), want, err)
		}
	}
	if _, err := l.VerifyEvents(t.Context()); err != nil {
		t.Error(err)
	}
}
