package ledger

import (
	"errors"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

func linkTo(id string) run.Link { return run.Link{Role: "r", ArtifactID: id, Relpath: "in/x"} }

// What a run refers to cannot be marked, nor what is marked be referred to, whatever the program does.
//
// proves ARC-08
func TestMarksAreGuarded(t *testing.T) {
	l := fresh(t)
	a, b := artifact(1), artifact(2)
	for _, x := range []run.Artifact{a, b} {
		_, _, err := l.AddArtifact(t.Context(), x)
		must(t, err)
	}
	n := newRun(1)
	n.Inputs = append(n.Inputs, linkTo(a.ID))
	_, _, err := l.Insert(t.Context(), n)
	must(t, err)
	db := rawDB(t, l)
	for _, q := range []string{"UPDATE artifacts SET removed_at = 1", "DELETE FROM artifacts"} {
		if _, err := db.Exec(q); err == nil {
			t.Errorf("%s was done", q)
		}
	}
	l.now = func() time.Time { return t0.Add(time.Hour) }
	due, err := l.Unused(t.Context(), t0.Add(time.Minute), 10)
	must(t, err)
	marked, err := l.MarkUnused(t.Context(), t0.Add(time.Minute), 10)
	if err != nil || len(marked) != 1 || marked[0].ID != b.ID || len(due) != 1 || due[0] != marked[0] {
		t.Error(due, marked, err)
	}
	n = newRun(2)
	n.Inputs = append(n.Inputs, linkTo(b.ID))
	_, _, err = l.Insert(t.Context(), n)
	wantFault(t, err, fault.NotFound, "artifact_removed")
	_, err = l.Artifact(t.Context(), b.ID)
	wantFault(t, err, fault.NotFound, "artifact_removed")
	if _, err := db.Exec("INSERT INTO run_outputs VALUES (?,'r',?,'',1)", newRun(1).Run.ID, b.ID); err == nil {
		t.Error("a run refers to what was removed")
	}
	must(t, l.Integrity(t.Context()))

	// Nobody comes to have bytes that are being removed, nor are any removed that somebody has.
	gone := false
	l.CheckBytes(func(string) bool { return !gone })
	remove := func() error { gone = true; return nil }
	if held, err := l.Unheld(t.Context(), a.SHA256, remove); !held || gone || err != nil {
		t.Error(held, err)
	}
	if held, err := l.Unheld(t.Context(), b.SHA256, func() error { return errors.New("the disk") }); held || err == nil {
		t.Error(held, err)
	}
	back, created, err := l.AddArtifact(t.Context(), b) // imported again
	if err != nil || !created || back.ID != b.ID || !back.CreatedAt.Equal(t0.Add(time.Hour)) {
		t.Error(back, created, err)
	}
	if held, err := l.Unheld(t.Context(), b.SHA256, remove); !held || gone || err != nil {
		t.Error(held, err)
	}
	c := artifact(3)
	if held, err := l.Unheld(t.Context(), c.SHA256, remove); held || !gone || err != nil {
		t.Error(held, err)
	}
	_, _, err = l.AddArtifact(t.Context(), c)
	wantFault(t, err, fault.Transport, "artifact_bytes_missing")
}

// An import that is repeated counts as used from then on; noting it costs a write once an hour at most.
func TestUsedAgain(t *testing.T) {
	l := fresh(t)
	now := t0
	l.now = func() time.Time { return now }
	a := artifact(1)
	for _, step := range []time.Duration{0, time.Minute, 48 * time.Hour, time.Minute, 2 * time.Hour} {
		now = now.Add(step)
		_, _, err := l.AddArtifact(t.Context(), a)
		must(t, err)
		if due, err := l.Unused(t.Context(), now.Add(-usedEvery), 10); err != nil || len(due) > 0 {
			t.Errorf("after %v: %v %v", step, due, err)
		}
	}
	now = now.Add(24 * time.Hour)
	if due, err := l.Unused(t.Context(), now.Add(-usedEvery), 10); err != nil || len(due) != 1 {
		t.Error(due, err)
	}
}
