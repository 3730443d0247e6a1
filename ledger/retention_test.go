package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/retention"
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

	// No artifact gets bytes that are being removed, nor are bytes of an artifact removed.
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

// What a run in flight needs is not removed, whatever the program does. Bytes that two artifacts have go with the last. A removed run is
// marked until its next attempt, and what is left to do is known until it is done.
func TestRemovals(t *testing.T) {
	l := fresh(t)
	a := artifact(1)
	same := a // the same bytes under another label
	same.Label = "another"
	id, err := plan.ArtifactID(same.ProjectID, same.SHA256, same.Type, same.Label)
	must(t, err)
	same.ID = id
	for _, x := range []run.Artifact{a, same} {
		_, _, err := l.AddArtifact(t.Context(), x)
		must(t, err)
	}
	n := newRun(1)
	n.Inputs = append(n.Inputs, linkTo(a.ID))
	_, _, err = l.Insert(t.Context(), n)
	must(t, err)
	ask := func(id string, artifacts []string, runs ...string) (retention.RemovalReport, error) {
		return l.Remove(t.Context(), retention.Removal{ID: "rmv_" + id, By: "user:x", Reason: "why", Artifacts: artifacts, Runs: runs}, false)
	}
	_, err = ask("1", []string{same.ID, a.ID})
	wantFault(t, err, fault.Conflict, "artifact_in_use")
	_, err = ask("1", nil, n.Run.ID)
	wantFault(t, err, fault.Conflict, "run_active")
	db := rawDB(t, l)
	for _, q := range []string{"INSERT INTO deletions VALUES ('rmv_x','','','',NULL,1,1)", "UPDATE artifacts SET removed_at = 1, " +
		"removal = 'rmv_x' WHERE artifact_id = '" + a.ID + "'", "INSERT INTO run_removals VALUES ('" + n.Run.ID + "', 1, 'rmv_x')"} {
		if _, err := db.Exec(q); (err == nil) != strings.HasPrefix(q, "INSERT INTO deletions") {
			t.Errorf("%s: %v", q, err)
		}
	}
	if _, err := l.Artifact(t.Context(), same.ID); err != nil {
		t.Error("something of a refused removal was carried out:", err)
	}
	r, err := ask("2", []string{same.ID, same.ID})
	must(t, err)
	if len(r.Artifacts) != 1 || r.Artifacts[0].Others != 1 || r.FreedBytes != 0 || len(r.Already) != 1 {
		t.Errorf("%d artifacts to remove, %d bytes freed, %d removed already: %+v; want 1 with one other artifact, 0 and 1",
			len(r.Artifacts), r.FreedBytes, len(r.Already), r.Artifacts)
	}
	rest, err := l.Rest(t.Context(), "rmv_2")
	if err != nil || len(rest.Objects)+len(rest.Workspaces) != 0 || rest.Compact {
		t.Errorf("%d objects and %d workspaces remain, compact %t, %v; want none", len(rest.Objects), len(rest.Workspaces),
			rest.Compact, err)
	}
	if ids, err := l.Unfinished(t.Context()); err != nil || slices.Contains(ids, "rmv_2") {
		t.Error("a removal with nothing left to do is unfinished:", ids, err)
	}
	_, err = l.Artifact(t.Context(), same.ID)
	wantFault(t, err, fault.NotFound, RemovedByRequest)
	if _, created, err := l.AddArtifact(t.Context(), same); err != nil || !created {
		t.Error("the same bytes do not bring it back:", err)
	}
	must(t, l.Integrity(t.Context()))
	if _, err := l.VerifyCalls(t.Context()); err != nil {
		t.Error(err)
	}
}

// A removed directory takes the files that only it has; those of another directory, of a file and of a directory that is being registered
// stay. One that was removed can be stored again.
//
// proves DATA-02
func TestRemovalOfDirectories(t *testing.T) {
	l := fresh(t)
	sum := func(n int) string { return fmt.Sprintf("%064x", n) }
	folder := func(n int, files ...int) run.Artifact {
		a := artifact(n)
		a.Type, a.SHA256, a.SizeBytes = plan.Directory, sum(n), int64(len(files))*10
		a.ID = fmt.Sprintf("art_%026d", n)
		d := run.Directory{SHA256: a.SHA256, ListBytes: 100}
		for _, f := range files {
			d.Files = append(d.Files, tree.File{SHA256: sum(f), Size: 10, Path: fmt.Sprint(f)})
		}
		must(t, l.AddDirectory(t.Context(), d))
		return a
	}
	add := func(a run.Artifact) {
		_, _, err := l.AddArtifact(t.Context(), a)
		must(t, err)
	}
	one, two := folder(1001, 1, 2, 3, 4, 5), folder(1002, 2, 6)
	add(one)
	add(two)
	file := artifact(3)
	file.SHA256 = sum(3)
	add(file)
	coming := folder(1003, 4)
	remove := func(id string, ids ...string) retention.RemovalReport {
		r, err := l.Remove(t.Context(), retention.Removal{ID: "rmv_" + id, By: "user:x", Reason: "why", Artifacts: ids}, false)
		must(t, err)
		return r
	}
	r := remove("1", one.ID)
	rest, err := l.Rest(t.Context(), "rmv_1")
	if want := []string{sum(1), sum(5), one.SHA256}; err != nil || !slices.Equal(rest.Objects, want) || r.FreedBytes != 100+20 {
		t.Errorf("%d bytes freed, the objects %q remain, %v; want 120 bytes and %q", r.FreedBytes, rest.Objects, err, want)
	}
	for n, want := range map[int]bool{1: false, 2: true, 3: true, 4: true, 5: false, 6: true} {
		if held, err := l.Holds(t.Context(), sum(n)); err != nil || held != want {
			t.Errorf("file %d: held %v, %v", n, held, err)
		}
	}
	add(coming)
	_, _, err = l.AddArtifact(t.Context(), one)
	wantFault(t, err, fault.Transport, "artifact_bytes_missing")
	add(folder(1001, 1, 2, 3, 4, 5))
	r = remove("2", one.ID, two.ID)
	rest, err = l.Rest(t.Context(), "rmv_2")
	if err != nil || len(rest.Objects) != 6 || slices.Contains(rest.Objects, sum(4)) || r.FreedBytes != 200+40 {
		t.Errorf("%d bytes freed, the objects %q remain, %v; want 240 bytes and 6 objects without %s", r.FreedBytes,
			rest.Objects, err, sum(4))
	}
	must(t, l.Integrity(t.Context()))
}
