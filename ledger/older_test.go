package ledger

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/run"
)

// A ledger of schema 5, written by the slurmgate of that time on a real cluster, is brought up to date: its runs, chains and links are
// what they were, a run asked for again is the one that is there, one under way goes on, and new ones are taken.
//
// proves CARD-04 ABI-18
func TestOlderLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	unpack(t, "testdata/schema5.db.gz", path)
	l := openAt(t, path)
	ctx := t.Context()
	must(t, l.Integrity(ctx))
	if n, err := l.VerifyEvents(ctx); err != nil || n != 20 {
		t.Error(n, err)
	}
	chains, err := l.VerifyCalls(ctx)
	must(t, err)
	heads := map[string]string{}
	for _, c := range chains {
		heads[c.Chain] = c.Head
	}
	if heads["effects"] != "sha256:061dc3453d597dc443e4a5ffe4f4eef26c4df0d8354ddaa840362db9a2a36b3e" {
		t.Errorf("%+v", chains) // as the old program printed it
	}
	for id, want := range map[string]struct {
		state run.State
		phase run.Phase
		job   string
	}{
		"run_0K99S2VJSSGEFTMQJ31S4C1RGP": {run.Succeeded, run.Done, "66"},
		"run_6SQ32N10G5DQG17JWWYGAKAQKH": {run.Failed, run.Done, "67"},
		"run_79W07ZKH41XFP3W34DFQZ71BD3": {run.Cancelled, run.Done, "68"},
		"run_457DMR0G9QB0TMGHA8RYTSP7NP": {run.Queued, run.Pending, "69"},
	} {
		v, err := l.View(ctx, id)
		must(t, err)
		if v.Run.State != want.state || v.Run.Phase != want.phase || v.Submission.JobID != want.job {
			t.Errorf("%+v", v)
		}
		n := newRun(1)
		n.Run.ID = id
		got, created, err := l.Insert(ctx, n)
		if err != nil || created || got.Run.ToolID == n.Run.ToolID || got.Submission.Token != v.Submission.Token {
			t.Errorf("asked for again: %v %v %+v", created, err, got)
		}
	}
	v, err := l.View(ctx, "run_457DMR0G9QB0TMGHA8RYTSP7NP")
	must(t, err)
	v.Run.State, v.Run.Phase = run.Running, run.InJob
	v, err = l.Apply(ctx, run.Write{Run: v.Run, Event: run.Event{Type: "run.running"}})
	must(t, err)
	insert(t, l, 1)
	if n, err := l.VerifyEvents(ctx); err != nil || n != 22 {
		t.Error(n, err)
	}
	// What ended before there were receipts has none, now or later; what ends now has one.
	_, err = l.Receipt(ctx, "run_0K99S2VJSSGEFTMQJ31S4C1RGP", 0)
	wantFault(t, err, fault.NotFound, "receipt_missing")
	image := verified(t, l, finish(t, l, v).Run.ID, 0).Predicate.ResolvedDependencies[0]
	if image.Name != receipt.Image {
		t.Errorf("the image of a run of schema 5: %+v", image)
	}
}

func unpack(t *testing.T, from, to string) {
	t.Helper()
	f, err := os.Open(from)
	must(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(t, err)
	data, err := io.ReadAll(z)
	must(t, err)
	must(t, os.WriteFile(to, data, 0o600))
}
