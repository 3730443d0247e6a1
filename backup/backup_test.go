package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

const project = "proj_01HZZZZZZZZZZZZZZZZZZZZZZZ"

// world is a real ledger and a real store, and a folder for backups.
type world struct {
	t      *testing.T
	ledger *ledger.Ledger
	store  *artifact.Store
	dir    string // of backups
	site   string // folder with a site file and a domain
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "backups"), site: t.TempDir()}
	state := t.TempDir()
	var err error
	w.ledger, err = ledger.Open(t.Context(), state+"/ledger.db", ledger.Options{NewID: func() string { return "gw-1" }})
	must(t, err)
	w.store, err = artifact.Open(state + "/artifacts")
	must(t, err)
	t.Cleanup(func() { w.ledger.Close(); w.store.Close() })
	must(t, os.MkdirAll(w.site+"/domain/tools", 0o700))
	must(t, os.WriteFile(w.site+"/site.yaml", []byte("site: x\n"), 0o600))
	must(t, os.WriteFile(w.site+"/domain/tools/a.tool.yaml", []byte("id: a\n"), 0o600))
	return w
}

// add imports a text and returns its checksum.
func (w *world) add(text string) string {
	w.t.Helper()
	sum, size, err := w.store.Put(w.t.Context(), strings.NewReader(text), 1<<20)
	must(w.t, err)
	id, err := plan.ArtifactID(project, sum, "TEXT", "x")
	must(w.t, err)
	_, _, err = w.ledger.AddArtifact(w.t.Context(), run.Artifact{ID: id, ProjectID: project, SHA256: sum, Type: "TEXT", Label: "x",
		SizeBytes: size, Source: "import"})
	must(w.t, err)
	return sum
}

func (w *world) object(sum string) string {
	return filepath.Join(filepath.Dir(w.ledger.Path()), "artifacts/objects", sum[:2], sum)
}

func open(ctx context.Context, path string) (backup.Ledger, error) {
	return ledger.OpenToRead(ctx, path)
}

// source reads the ledger's file as another process does.
func (w *world) source() backup.Source {
	w.t.Helper()
	l, err := ledger.OpenToRead(w.t.Context(), w.ledger.Path())
	must(w.t, err)
	w.t.Cleanup(func() { l.Close() })
	return backup.Source{Ledger: l, Open: open, Object: w.store.Open, Now: time.Now,
		Config:   map[string]string{"site.yaml": w.site + "/site.yaml", "domain": w.site + "/domain"},
		Manifest: backup.Manifest{Version: "1", Host: "h", Sites: []string{"x"}}}
}

func (w *world) make(o backup.Options) backup.Made {
	w.t.Helper()
	m, err := w.source().Make(w.t.Context(), w.dir, o)
	must(w.t, err)
	return m
}

// target returns an empty place for a restore.
func target(t *testing.T) backup.Target {
	t.Helper()
	dir := t.TempDir()
	store, err := artifact.Open(dir + "/artifacts")
	must(t, err)
	t.Cleanup(func() { store.Close() })
	return backup.Target{StateDir: dir, ArtifactDir: dir + "/artifacts", UID: 65534, GID: 65534, Verify: store.Verify,
		Put: func(ctx context.Context, r io.Reader) (string, error) {
			sum, _, err := store.Put(ctx, r, math.MaxInt64)
			return sum, err
		},
		Adopt: func(ctx context.Context, path string, at time.Time, source string) error {
			l, err := ledger.Open(ctx, path, ledger.Options{})
			if err != nil {
				return err
			}
			return errors.Join(l.Integrity(ctx), l.Restored(ctx, &at, source), l.Close())
		}}
}

// A backup of a running gateway has its ledger, every artifact that this ledger names, and the configuration; a
// second one into the same folder copies only what is new; sha256sum agrees with the list. After a restore,
// everything exists again, belongs to the gateway's user alone, and the history records it.
//
// proves OPS-01
func TestBackupAndRestore(t *testing.T) {
	w := newWorld(t)
	one := w.add("one")
	first := w.make(backup.Options{})
	two := w.add(strings.Repeat("two", 10000))
	m := w.make(backup.Options{})
	if first.Objects != 1 || first.Copied != 1 || m.Objects != 2 || m.Copied != 1 || m.Fresh != 30000 || len(m.Damaged) > 0 ||
		first.Folder == m.Folder {
		t.Errorf("the backups have %d and %d objects, %d and %d copied, %d fresh bytes, %d damaged, folders %s and %s",
			first.Objects, m.Objects, first.Copied, m.Copied, m.Fresh, len(m.Damaged), first.Folder, m.Folder)
	}
	if m.GatewayID != "gw-1" || m.Schema != w.ledger.Schema() || len(m.Config) != 2 || len(m.Without) == 0 || m.Ledger.Bytes == 0 {
		t.Errorf("the manifest has gateway %s, schema %d, config %v, without %q, a ledger of %d bytes", m.GatewayID,
			m.Schema, m.Config, m.Without, m.Ledger.Bytes)
	}
	if text, err := os.ReadFile(m.Folder + "/config/domain/tools/a.tool.yaml"); err != nil || string(text) != "id: a\n" {
		t.Error(string(text), err)
	}
	c := exec.Command("sha256sum", "-c", "--strict", filepath.Base(m.Folder)+"/objects.sha256")
	c.Dir = w.dir
	if out, err := c.CombinedOutput(); err != nil || bytes.Count(out, []byte(": OK")) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	must(t, filepath.WalkDir(w.dir, func(path string, d fs.DirEntry, err error) error {
		if info, ierr := d.Info(); err == nil && ierr == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))

	to := target(t)
	r, err := to.Restore(t.Context(), w.dir) // the newest
	must(t, err)
	if r.Folder != m.Folder || r.Objects != 2 || r.Copied != 2 || len(r.Missing) > 0 {
		t.Errorf("Restore of %s: %d objects, %d copied, %d missing; want 2, 2, 0 of %s", r.Folder, r.Objects, r.Copied,
			len(r.Missing), m.Folder)
	}
	if os.Geteuid() == 0 {
		owned(t, to.StateDir, to.UID)
	}
	l, err := ledger.Open(t.Context(), to.StateDir+"/ledger.db", ledger.Options{})
	must(t, err)
	defer l.Close()
	must(t, l.Integrity(t.Context()))
	at, err := l.LastRestore(t.Context())
	if err != nil || at == nil || l.ID() != "gw-1" {
		t.Error(at, err)
	}
	for _, sum := range []string{one, two} {
		must(t, to.Verify(t.Context(), sum))
	}
	if _, err := to.Restore(t.Context(), w.dir); fault.CodeOf(err) != "restore_not_empty" {
		t.Error(err)
	}

	if m = w.make(backup.Options{Keep: 1, Verify: true}); len(m.Removed) != 2 || m.Copied != 0 {
		t.Errorf("a backup with Keep 1 removed %q and copied %d objects, want 2 and 0", m.Removed, m.Copied)
	}
	if _, err := target(t).Restore(t.Context(), m.Folder); err != nil {
		t.Error(err)
	}
}

func owned(t *testing.T, dir string, uid int) {
	t.Helper()
	for _, name := range []string{"ledger.db", "artifacts", "artifacts/objects", "artifacts/tmp"} {
		if got := uidOf(t, filepath.Join(dir, name)); got != uid {
			t.Errorf("%s belongs to %d", name, got)
		}
	}
	must(t, filepath.WalkDir(dir+"/artifacts", func(path string, _ fs.DirEntry, err error) error {
		if got := uidOf(t, path); err == nil && got != uid {
			t.Errorf("%s belongs to %d", path, got)
		}
		return err
	}))
}

// What gc removes between the copy of the ledger and the copy of its artifacts is missing in neither: the ledger is copied again.
func TestRemovedWhileCopied(t *testing.T) {
	w := newWorld(t)
	w.add("stays")
	gone := w.add("goes")
	s, removed := w.source(), false
	s.Object = func(sum string) (*os.File, error) {
		if !removed {
			removed = true
			if marked, err := w.ledger.MarkUnused(t.Context(), time.Now().Add(time.Hour), 10); err != nil || len(marked) != 2 {
				t.Error(marked, err)
			}
			must(t, os.Remove(w.object(gone)))
		}
		return w.store.Open(sum)
	}
	m, err := s.Make(t.Context(), w.dir, backup.Options{})
	if err != nil || len(m.Damaged) > 0 || m.Objects != 0 {
		t.Errorf("the backup has %d objects, %d damaged, %v; want none", m.Objects, len(m.Damaged), err)
	}
}

// A backup that fails or is killed anywhere leaves nothing that can be taken for one, and the next one succeeds.
func TestKilledBackup(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		w.add(fmt.Sprint("content ", i))
	}
	for at := 1; at <= 6; at++ {
		ctx, kill := context.WithCancel(t.Context())
		s := w.source()
		_, err := s.Make(ctx, w.dir, backup.Options{Progress: func(done, _, _ int64) {
			if done == int64(at) {
				kill()
			}
		}})
		if at < 6 && err == nil {
			t.Errorf("stopped at %d: %v", at, err)
		}
		if err == nil {
			continue
		}
		if _, err := backup.Find(w.dir); fault.CodeOf(err) != "no_backup" {
			t.Errorf("stopped at %d: %v", at, err)
		}
		must(t, os.MkdirAll(w.dir+"/.new-1/objects", 0o700)) // what a kill leaves
		must(t, os.WriteFile(w.dir+"/.new-1/manifest.json", []byte("{}"), 0o600))
	}
	m := w.make(backup.Options{})
	left, err := filepath.Glob(w.dir + "/.new-*")
	if err != nil || len(left) > 0 || m.Objects != 6 {
		t.Error(left, err, m)
	}
	if _, err := target(t).Restore(t.Context(), w.dir); err != nil {
		t.Error(err)
	}
}

// A damaged artifact of the store is named and left out; a damaged backup is not restored, and leaves no ledger.
func TestDamagedBackup(t *testing.T) {
	w := newWorld(t)
	good, bad := w.add("good"), w.add("evil")
	must(t, os.Remove(w.object(bad)))
	must(t, os.WriteFile(w.object(bad), []byte("livE"), 0o400))
	m := w.make(backup.Options{})
	if !slices.Equal(m.Damaged, []string{bad}) || m.Objects != 1 {
		t.Fatalf("the backup has %d objects and the damaged %q, want 1 and %s", m.Objects, m.Damaged, bad)
	}
	to := target(t)
	none := func(what string, err error, code string) {
		t.Helper()
		if _, serr := os.Stat(to.StateDir + "/ledger.db"); fault.CodeOf(err) != code || serr == nil {
			t.Errorf("%s: %v, %v", what, err, serr)
		}
	}
	_, err := to.Restore(t.Context(), w.dir)
	none("an artifact is not in it", err, "backup_incomplete")
	to.Partial = true
	r, err := to.Restore(t.Context(), w.dir)
	if err != nil || !slices.Equal(r.Missing, []string{bad}) || r.Objects != 1 {
		t.Errorf("a partial restore has %d objects and the missing %q, %v; want 1 and %s", r.Objects, r.Missing, err, bad)
	}
	for _, name := range []string{"ledger.db", "objects.sha256", "manifest.json", "../objects/" + good[:2] + "/" + good} {
		to = target(t)
		path := filepath.Join(m.Folder, name)
		data, err := os.ReadFile(path)
		must(t, err)
		changed := bytes.Clone(data)
		changed[len(changed)/2] ^= 0x40
		must(t, os.Remove(path))
		must(t, os.WriteFile(path, changed, 0o600))
		_, err = to.Restore(t.Context(), w.dir)
		if _, serr := os.Stat(to.StateDir + "/ledger.db"); err == nil || serr == nil {
			t.Errorf("%s is damaged: %v, %v", name, err, serr)
		}
		must(t, os.WriteFile(path, data, 0o600))
	}
	must(t, os.Remove(filepath.Join(w.dir, "objects", good[:2], good)))
	if again := w.make(backup.Options{}); again.Copied != 1 {
		t.Errorf("the next backup copied %d objects, want 1", again.Copied)
	}
}

// An answer names at most a hundred missing artifacts and has their number, and a file lists all of them.
func TestManyDamagedArtifacts(t *testing.T) {
	w := newWorld(t)
	const n = backup.Shown + 20
	var all []string
	for i := range n {
		all = append(all, w.add(fmt.Sprint("artifact ", i)))
		must(t, os.Remove(w.object(all[i])))
	}
	slices.Sort(all)
	m := w.make(backup.Options{})
	if m.DamagedCount != n || len(m.Damaged) != backup.Shown {
		t.Errorf("a backup without %d artifacts names %d and counts %d, want %d and %d", n, len(m.Damaged), m.DamagedCount, backup.Shown, n)
	}
	written, err := backup.Read(m.Folder)
	must(t, err)
	if slices.Sort(written.Damaged); !slices.Equal(written.Damaged, all) {
		t.Errorf("its manifest lists %d artifacts, want all %d", len(written.Damaged), n)
	}
	to := target(t)
	to.Partial = true
	r, err := to.Restore(t.Context(), w.dir)
	must(t, err)
	if r.MissingCount != n || len(r.Missing) != backup.Shown || len(r.Manifest.Damaged) != backup.Shown {
		t.Errorf("a restore without %d artifacts names %d and %d and counts %d, want %d, %d and %d", n, len(r.Missing),
			len(r.Manifest.Damaged), r.MissingCount, backup.Shown, backup.Shown, n)
	}
	text, err := os.ReadFile(r.MissingFile)
	must(t, err)
	lines := strings.Fields(string(text))
	if slices.Sort(lines); !slices.Equal(lines, all) {
		t.Errorf("%s lists %d artifacts, want all %d", r.MissingFile, len(lines), n)
	}
}

func uidOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return statUID(info)
}

// Backups of one second: the newest is never removed.
func TestBackupsOfOneSecond(t *testing.T) {
	w := newWorld(t)
	src := w.source()
	src.Now = func() time.Time { return time.Unix(1_800_000_000, 0) }
	for range 6 {
		m, err := src.Make(t.Context(), w.dir, backup.Options{Keep: 2})
		must(t, err)
		if newest, err := backup.Find(w.dir); err != nil || newest != m.Folder {
			t.Errorf("made %s, the newest is %s: %v", m.Folder, newest, err)
		}
	}
}
