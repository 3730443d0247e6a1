package ledger

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// A list is of one snapshot, whatever is added while it is read, and however the clock moves; the same list of the
// same state is the same snapshot.
//
// proves ARC-05
func TestSnapshot(t *testing.T) {
	l := fresh(t)
	clock := t0
	l.now = func() time.Time { return clock }
	add := func(i int) run.Artifact {
		t.Helper()
		a, _, err := l.AddArtifact(t.Context(), artifact(i))
		must(t, err)
		return a
	}
	list := func(f ArtifactFilter) ArtifactPage {
		t.Helper()
		p, err := l.Artifacts(t.Context(), f)
		must(t, err)
		return p
	}
	if p := list(ArtifactFilter{}); p.Snapshot != (Snapshot{}) || p.Artifacts != nil || p.Cursor != "" {
		t.Errorf("an empty ledger has the snapshot %+v, %d artifacts, cursor %q; want none", p.Snapshot, len(p.Artifacts),
			p.Cursor)
	}
	var last run.Artifact
	for i := range 20 {
		clock = clock.Add(time.Duration(10-i) * time.Hour) // backwards, in the end
		last = add(i)
	}
	first := list(ArtifactFilter{Limit: 6})
	if first.Snapshot != (Snapshot{last.CreatedAt, 20}) || first.Artifacts[0] != last {
		t.Errorf("the first page has the snapshot %+v and begins with %s, want %s, 20 and %s", first.Snapshot,
			first.Artifacts[0].ID, last.CreatedAt, last.ID)
	}
	if d := cmp.Diff(first, list(ArtifactFilter{Limit: 6})); d != "" {
		t.Error("the same list again is another:", d)
	}
	seen := len(first.Artifacts)
	for cursor := first.Cursor; cursor != ""; {
		clock = t0 // long before what there is
		add(100 + seen)
		p := list(ArtifactFilter{Limit: 6, Cursor: cursor})
		if p.Snapshot != first.Snapshot {
			t.Errorf("the snapshot became %+v, want %+v", p.Snapshot, first.Snapshot)
		}
		seen, cursor = seen+len(p.Artifacts), p.Cursor
	}
	if seen != 20 {
		t.Errorf("%d artifacts seen", seen)
	}
	// The snapshot can be asked for again, by its time.
	again := list(ArtifactFilter{Limit: 6, AsOf: first.Snapshot.AsOf})
	if d := cmp.Diff(first, again); d != "" {
		t.Error(d)
	}
	if p := list(ArtifactFilter{}); p.Snapshot.Count != 23 {
		t.Errorf("the snapshot counts %d artifacts, want 23", p.Snapshot.Count)
	}
	// Of a filter, only what it selects counts.
	other := artifact(500)
	other.Type = "BAM"
	var err error
	other.ID, err = plan.ArtifactID(project, other.SHA256, "BAM", "l")
	must(t, err)
	other, _, err = l.AddArtifact(t.Context(), other)
	must(t, err)
	if p := list(ArtifactFilter{Type: "BAM", ProjectID: project}); p.Snapshot != (Snapshot{other.CreatedAt, 1}) {
		t.Errorf("the snapshot is %+v, want %s and 1 artifact", p.Snapshot, other.CreatedAt)
	}
	// A page of another list, or of one that has lost something.
	_, err = l.Artifacts(t.Context(), ArtifactFilter{Cursor: first.Cursor, Type: "BAM"})
	wantFault(t, err, fault.Conflict, "snapshot_changed")
	_, err = rawDB(t, l).Exec("UPDATE artifacts SET removed_at = 1 WHERE artifact_id = ?", artifact(3).ID)
	must(t, err)
	_, err = l.Artifacts(t.Context(), ArtifactFilter{Cursor: first.Cursor})
	wantFault(t, err, fault.Conflict, "snapshot_changed")
}

// All times of registration are different, in any order and from any number of ledgers.
func TestCreatedAtGrows(t *testing.T) {
	a := fresh(t)
	b := openAt(t, a.Path())
	done := make(chan error)
	for k, l := range []*Ledger{a, b} {
		go func() {
			for i := range 50 {
				if _, _, err := l.AddArtifact(t.Context(), artifact(1000*k+i)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	must(t, <-done)
	must(t, <-done)
	var n, times int
	must(t, a.r.QueryRow("SELECT count(*), count(DISTINCT created_at) FROM artifacts").Scan(&n, &times))
	if n != 100 || times != 100 {
		t.Errorf("%d artifacts, %d times", n, times)
	}
}

func FuzzCursor(f *testing.F) {
	for _, s := range []string{"", "1 2 3", "5 7 1", "-1 2 3", "2 1 1", "1 2 3 4", "1 2", "01 2 3", "99999999999999999999 1 1"} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(s)))
	}
	f.Fuzz(func(t *testing.T, s string) {
		var a, b, c int64
		err := decodeCursor(s, &a, &b, &c)
		if err == nil && encodeCursor(a, b, c) != s {
			t.Errorf("%q is %d %d %d", s, a, b, c)
		}
		if err != nil && fault.KindOf(err) != fault.Validation {
			t.Error(err)
		}
	})
}
