package app

import (
	"os"
	"path/filepath"
	"testing"

	"slurmgate/gate"
	"slurmgate/run"
)

// What a sweep or a verification answers depends on what it met, and so does its run: the same state is the same run at any time, another
// state is another one.
//
// proves ARC-11
func TestSnapshotsOfTheStore(t *testing.T) {
	g := tableGateway(t)
	admin := everything("user:boss", gate.All)
	b := g.fill(t, "own")
	var x run.Artifact
	state := func() map[string]string {
		t.Helper()
		var err error
		if x, err = g.Ledger.Artifact(t.Context(), b.artifact); err != nil {
			t.Fatal(err)
		}
		var sweep GCAnswer
		var one, all Verified
		g.says(t, admin, "gateway.gc", map[string]any{"dry_run": true}, "", &sweep)
		g.says(t, admin, "artifact.verify", map[string]any{"artifact_id": b.artifact}, "", &one)
		g.says(t, admin, "artifact.verify", map[string]any{"all": true}, "", &all)
		if one.Snapshot.Checked != 1 || all.Snapshot.Checked != all.Checked || one.Snapshot.BytesRead != one.BytesRead ||
			sweep.Snapshot.LedgerSeq == 0 {
			t.Errorf("%+v %+v %+v", sweep.Snapshot, one.Snapshot, all.Snapshot)
		}
		return map[string]string{"gc": sweep.ProvenanceRunID, "one": one.ProvenanceRunID, "all": all.ProvenanceRunID}
	}
	before := state()
	for _, step := range []struct {
		name    string
		do      func() error
		changes map[string]bool
	}{
		{"nothing", func() error { return nil }, nil},
		{"another run", func() error { g.fill(t, "next"); return nil }, map[string]bool{"gc": true, "all": true}},
		{"damaged bytes", func() error { return damageObject(g, x.SHA256, []byte("changed\n")) }, map[string]bool{"one": true, "all": true}},
		{"missing bytes", func() error { return damageObject(g, x.SHA256, nil) }, map[string]bool{"one": true, "all": true}},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		after := state()
		for what, id := range after {
			if (id != before[what]) != step.changes[what] {
				t.Errorf("%s: %s was %s, is %s", step.name, what, before[what], id)
			}
		}
		before = after
	}
}

// damageObject changes stored bytes behind the store's back, or removes them.
func damageObject(g *Gateway, sum string, bytes []byte) error {
	dir := filepath.Join(g.Site.Gateway.StateDir, "artifacts")
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(path) != sum {
			return err
		}
		if err := os.Remove(path); err != nil || bytes == nil {
			return err
		}
		return os.WriteFile(path, bytes, 0o400)
	})
}
