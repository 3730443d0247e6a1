package ledger

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"slurmgate/fault"
	"slurmgate/run"
)

// A ledger is read without its gateway, after a clean end and after a crash, and by root no file of it becomes root's: the log's files too
// keep the owner and the mode of the ledger. Nothing can be changed.
//
// proves OPS-01
func TestOpenToRead(t *testing.T) {
	const owner = 65534 // of user nobody
	for _, crashed := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "ledger.db")
		if _, err := OpenToRead(t.Context(), path); fault.CodeOf(err) != "no_ledger" {
			t.Fatal(err)
		}
		l, err := Open(t.Context(), path, Options{NewID: func() string { return "gw-read" }})
		must(t, err)
		a := run.Artifact{ID: "art_00000000000000000000000001", ProjectID: "proj_test", Type: "TEXT", Label: "x", Source: "import", SizeBytes: 1,
			SHA256: "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}
		if _, _, err := l.AddArtifact(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		if crashed { // the log stays, and its index is missing, as after a power cut
			other := t.TempDir()
			for _, name := range []string{"ledger.db", "ledger.db-wal"} {
				data, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || len(data) == 0 {
					t.Fatal(name, err)
				}
				must(t, os.WriteFile(filepath.Join(other, name), data, 0o600))
			}
			dir, path = other, filepath.Join(other, "ledger.db")
		}
		l.Close()
		own := os.Geteuid()
		if own == 0 {
			own = owner
			for _, name := range filesOf(t, dir) {
				must(t, os.Chown(name, owner, owner))
			}
		}
		r, err := OpenToRead(t.Context(), path)
		must(t, err)
		if got, err := r.Artifact(t.Context(), a.ID); err != nil || got.SHA256 != a.SHA256 || r.ID() != "gw-read" {
			t.Errorf("crashed %v: the ledger %s has the artifact with %s, %v; want gw-read and %s", crashed, r.ID(),
				got.SHA256, err, a.SHA256)
		}
		if err := r.Integrity(t.Context()); err != nil {
			t.Error(err)
		}
		a.ID = "art_00000000000000000000000002"
		if _, _, err := r.AddArtifact(t.Context(), a); fault.CodeOf(err) != "ledger_read_only" {
			t.Error(err)
		}
		check := func(when string) {
			t.Helper()
			for _, name := range filesOf(t, dir) {
				info, err := os.Stat(name)
				must(t, err)
				if uid := ownerOf(info); uid != own || info.Mode().Perm()&0o077 != 0 {
					t.Errorf("crashed %v, %s: %s belongs to %d, mode %v", crashed, when, name, uid, info.Mode())
				}
			}
		}
		check("open")
		if len(filesOf(t, dir)) < 2 {
			t.Error("reading made no log, so this test shows nothing")
		}
		r.Close()
		check("closed")
	}
}

func ownerOf(info os.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func filesOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	if err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			names = append(names, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}
