package retention_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/retention"
)

// brokenStore cannot remove anything.
type brokenStore struct{ retention.DeletionStore }

func (brokenStore) Erase(_ context.Context, sums ...string) map[string]error {
	failed := map[string]error{}
	for _, sum := range sums {
		failed[sum] = errors.New("the disk")
	}
	return failed
}

// Removed data is in no object and no workspace afterwards, and nothing else is gone; a dry run changes nothing. The
// next gateway removes what could not be removed. The run keeps its end and is marked as removed, and the same bytes
// can be imported again.
func TestRemove(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	input, id, clean := w.leak()
	files := func() []string { // the run's detail stays in the ledger, as the history proves it
		return slices.DeleteFunc(w.left(secret(t)), func(name string) bool { return strings.HasPrefix(filepath.Base(name), "ledger.db") })
	}
	p := w.deleter()
	p.Store = brokenStore{w.store}
	r := retention.Removal{ID: "rmv_test", By: "user:lab", Reason: "consent withdrawn", Artifacts: []string{input.ID}, Runs: []string{id}}
	before := files()
	dry, err := p.Remove(ctx, r, true)
	if err != nil || dry.ID != "" || len(dry.Artifacts) != 4 || !slices.Equal(files(), before) || len(before) < 3 {
		t.Fatalf("a dry removal gives %+v %v of %v, want four artifacts, and all left", dry, err, before)
	}
	got, err := p.Remove(ctx, r, false)
	if err != nil || got.ID != "rmv_test" || len(got.Artifacts) != 4 || !slices.Equal(got.Workspaces, []string{id}) || len(got.Pending) == 0 {
		t.Fatalf("the removal gives %+v %v, want four artifacts and the workspace", got, err)
	}
	p.Store = w.store
	ids, err := w.ledger.Unfinished(ctx)
	must(t, err)
	if pending, err := p.Resume(ctx); err != nil || len(ids) != 1 || len(pending) != 0 {
		t.Fatalf("%v %v %v", ids, pending, err)
	}
	if ids, err = w.ledger.Unfinished(ctx); err != nil || len(ids) != 0 {
		t.Error(ids, err)
	}
	if left := files(); len(left) > 0 {
		t.Errorf("it is still in %v", left)
	}
	if _, err := os.Stat(filepath.Join(w.dir, "runs", clean, "a1/out/deep/result")); err != nil {
		t.Error("another workspace is gone:", err)
	}
	must(t, w.ledger.Integrity(ctx))
	for _, sum := range w.checksums() {
		must(t, w.store.Verify(ctx, sum))
	}
	if _, err := w.ledger.Artifact(ctx, input.ID); fault.CodeOf(err) != "artifact_removed_by_request" ||
		!strings.Contains(err.Error(), "consent withdrawn") {
		t.Error(err)
	}
	v, err := w.ledger.View(ctx, id)
	if err != nil || v.Run.Removed != "rmv_test" || v.Run.Phase != "done" {
		t.Errorf("the removed run is %+v %v, want done, with the removal", v.Run, err)
	}
	if again, err := p.Remove(ctx, retention.Removal{ID: "rmv_2", By: "x", Reason: "again", Runs: []string{id}}, false); err != nil ||
		again.ID != "" || !slices.Equal(again.Already, []string{id}) {
		t.Errorf("the removal again gives %+v %v, want that it was removed already", again, err)
	}
	if gone, err := w.ledger.GoneInputs(ctx, id); err != nil || !slices.Equal(gone, []string{input.ID}) {
		t.Error(gone, err)
	}
	if back := w.add(packed(t, "a table with "+leaked), "in.gz"); back.ID != input.ID {
		t.Error(back)
	}
	if gone, err := w.ledger.GoneInputs(ctx, id); err != nil || len(gone) != 0 {
		t.Error(gone, err)
	}
}
