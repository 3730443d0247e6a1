package retention_test

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/retention"
	"slurmgate/run"
)

// folder stores a directory with these files, in the order of their names.
func (w *world) folder(label string, texts ...string) (a run.Artifact, sums []string) {
	w.t.Helper()
	var list bytes.Buffer
	lines := tree.NewWriter(&list)
	d := run.Directory{}
	for i, text := range texts {
		f := tree.File{SHA256: w.put(text), Size: int64(len(text)), Path: "sub/" + string(rune('a'+i))}
		must(w.t, lines.Add(f))
		d.Files, sums = append(d.Files, f), append(sums, f.SHA256)
		a.SizeBytes += f.Size
	}
	if _, err := lines.Close(); err != nil {
		w.t.Fatal(err)
	}
	d.SHA256, d.ListBytes = w.put(list.String()), int64(list.Len())
	must(w.t, w.ledger.AddDirectory(w.t.Context(), d))
	a.ProjectID, a.SHA256, a.Type, a.Label, a.Source = project, d.SHA256, plan.Directory, label, "import"
	var err error
	a.ID, err = plan.ArtifactID(project, a.SHA256, a.Type, a.Label)
	must(w.t, err)
	a, _, err = w.ledger.AddArtifact(w.t.Context(), a)
	must(w.t, err)
	return a, append(sums, d.SHA256)
}

func (w *world) stored(sums []string) (n int) {
	for _, sum := range sums {
		if w.store.Has(sum) {
			n++
		}
	}
	return n
}

// A directory is kept and removed as a whole: gc leaves its files alone while an artifact has them and removes them
// otherwise, a backup has all of them, and an erased secret in one of its files removes the artifact too.
//
// proves DATA-02 OPS-01
func TestDirectoriesAreWhole(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	used, usedSums := w.folder("used", "one", "two", "three")
	w.submit(used)
	_, lostSums := w.folder("unused", "one", "four") // shares a file
	leakedDir, leakedSums := w.folder("leaked", "five", "the key is "+leaked+"\n", "six")
	w.pass(60 * 24 * time.Hour)
	month := 30 * 24 * time.Hour
	w.submit(leakedDir)

	m, err := w.source().Make(ctx, t.TempDir(), backup.Options{Keep: 1})
	if err != nil || len(m.Damaged) > 0 {
		t.Fatal(m.Damaged, err)
	}
	to, store := target(t)
	defer store.Close()
	if _, err := to.Restore(ctx, m.Folder); err != nil {
		t.Fatal(err)
	}
	for _, sum := range append(append(usedSums, lostSums...), leakedSums...) {
		if !store.Has(sum) {
			t.Errorf("the backup lacks %s", sum)
		}
	}

	for range 2 { // the first sweep marks what is unused, the second finds its bytes
		if _, err := w.parts().Sweep(ctx, retention.Policy{Imports: &month}, false); err != nil {
			t.Fatal(err)
		}
		w.pass(3 * 24 * time.Hour)
	}
	if n := w.stored(usedSums); n != len(usedSums) {
		t.Errorf("%d of %d objects of a directory that a run has are left", n, len(usedSums))
	}
	if w.store.Has(lostSums[1]) || w.store.Has(lostSums[2]) || !w.store.Has(lostSums[0]) {
		t.Error("an unused directory keeps a file that only it has, or takes one that another has")
	}

	for id := range w.runs {
		w.finish(id, rand.New(rand.NewPCG(1, 2)))
	}
	r, err := w.deleter().Erase(ctx, erasure("ers_test"), secret(t), false)
	if err != nil || len(r.Pending) > 0 || r.ID == "" {
		t.Fatalf("the erasure gives %+v %v, want one that is over", r, err)
	}
	if left := w.left(secret(t)); len(left) > 0 {
		t.Error(left)
	}
	if w.store.Has(leakedSums[1]) {
		t.Error("the file with the secret is there")
	}
	if a, err := w.ledger.Artifact(ctx, leakedDir.ID); err == nil && a.Erased == "" || err != nil && fault.CodeOf(err) == "" {
		t.Errorf("a directory without one of its files is an artifact as before: %+v %v", a, err)
	}
	must(t, w.ledger.Integrity(ctx))
}
