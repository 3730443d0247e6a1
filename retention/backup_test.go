package retention_test

import (
	"context"
	"io"
	"math"
	"sync"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/backup"
	"slurmgate/ledger"
	"slurmgate/retention"
)

// source returns the world as what is backed up.
func (w *world) source() backup.Source {
	w.t.Helper()
	live, err := ledger.OpenToRead(w.t.Context(), w.ledger.Path())
	must(w.t, err)
	w.t.Cleanup(func() { live.Close() })
	return backup.Source{Ledger: live, Object: w.store.Open, Now: time.Now,
		Open: func(ctx context.Context, path string) (backup.Ledger, error) { return ledger.OpenToRead(ctx, path) }}
}

// target returns an empty folder as what is restored into, whose ledger must be whole, and the store of its artifacts.
func target(t *testing.T) (backup.Target, *artifact.Store) {
	t.Helper()
	into := t.TempDir()
	store, err := artifact.Open(into + "/artifacts")
	must(t, err)
	return backup.Target{StateDir: into, ArtifactDir: into + "/artifacts", Verify: store.Verify,
		Put: func(ctx context.Context, r io.Reader) (string, error) {
			sum, _, err := store.Put(ctx, r, math.MaxInt64)
			return sum, err
		},
		Adopt: func(ctx context.Context, path string, at time.Time, source string) error {
			l, err := ledger.Open(ctx, path, ledger.Options{})
			if err != nil {
				return err
			}
			defer l.Close()
			return l.Integrity(ctx)
		}}, store
}

// Each backup made during concurrent imports, submits, retries and sweeps is consistent: the restored ledger is
// complete and has every artifact that it names.
//
// proves OPS-01
func TestBackupsWhileBusy(t *testing.T) {
	w := newWorld(t)
	src := w.source()
	dir := t.TempDir()
	copied := int64(0)
	for round := range uint64(6) {
		var busy sync.WaitGroup
		busy.Go(func() { w.bustle(7, round) })
		for range 2 {
			m, err := src.Make(t.Context(), dir, backup.Options{Keep: 3})
			if err != nil || len(m.Damaged) > 0 {
				t.Errorf("round %d: %v %v", round, m.Damaged, err)
				continue
			}
			copied += m.Copied
			to, store := target(t)
			if r, err := to.Restore(t.Context(), m.Folder); err != nil || r.Objects != m.Objects {
				t.Errorf("round %d: %+v %v", round, r, err)
			}
			store.Close()
		}
		busy.Wait()
	}
	if copied == 0 {
		t.Error("nothing was copied, so this test shows nothing")
	}
}

// After a restore, gc keeps bytes that were stored before and that the ledger does not know; without a restore, and
// with the option to do so, it removes them.
//
// proves OPS-01
func TestSweepAfterRestore(t *testing.T) {
	w := newWorld(t)
	newer := w.put("output of a run after the backup")
	w.pass(time.Hour)
	restored := w.now()
	w.pass(time.Hour)
	later := w.put("cut off import after the restore")
	w.pass(10 * 24 * time.Hour)
	p := retention.Policy{Restored: restored}
	for _, dry := range []bool{true, false} {
		r, err := w.parts().Sweep(t.Context(), p, dry)
		if err != nil || r.Bytes.Count != 1 || len(r.Kept) != 1 || !w.store.Has(newer) || w.store.Has(later) != dry {
			t.Errorf("dry %v: %+v %v", dry, r, err)
		}
	}
	if r, err := w.parts().Sweep(t.Context(), retention.Policy{}, false); err != nil || r.Bytes.Count != 1 || w.store.Has(newer) {
		t.Errorf("told to, the sweep gives %+v %v, want the older bytes gone", r, err)
	}
}
