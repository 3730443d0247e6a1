package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
)

// Target is the place that a backup is restored to.
type Target struct {
	StateDir    string // exists
	ArtifactDir string
	UID, GID    int // of the gateway's user, who gets everything
	// Put stores bytes in the artifact store and returns their checksum; Verify checks an object in the store,
	// NotFound without one.
	Put    func(ctx context.Context, r io.Reader) (sha256 string, err error)
	Verify func(ctx context.Context, sha256 string) error
	// Adopt brings a copied ledger up to date, checks it and records that it was restored. It closes it again.
	Adopt   func(ctx context.Context, path string, backupAt time.Time, source string) error
	Partial bool // also a backup with damaged or missing artifacts
	// Progress is called with how many objects of how many are in place; it may be nil.
	Progress func(done, of, bytes int64)
}

// Restored is the result of a restore.
type Restored struct {
	Folder   string   `json:"folder"`
	Manifest Manifest `json:"manifest"`
	Objects  int64    `json:"objects"`
	Copied   int64    `json:"objects_copied"` // that the store did not have
	Missing  []string `json:"missing"`        // checksums that are in neither: the first of them
	// MissingCount is how many those are, and MissingFile the file of the state folder that lists all; empty when
	// none is missing.
	MissingCount int    `json:"missing_count"`
	MissingFile  string `json:"missing_file"`
}

// restoring is the name of a ledger that is being restored.
const restoring = "ledger.db.restoring"

// missingFile is the file of the state folder with the checksums of what a partial restore left out, one on a line.
const missingFile = "missing-artifacts.txt"

// Restore puts a backup back: the folder itself, or the newest in it. The target has no ledger; objects that its store has already are
// checked and kept. Everything is verified before the ledger gets its name, in one step and last: a Restore that fails or is killed leaves
// no ledger, and can be repeated.
func (t Target) Restore(ctx context.Context, dir string) (r Restored, err error) {
	if r.Folder, err = Find(dir); err != nil {
		return r, err
	}
	if r.Manifest, err = Read(r.Folder); err != nil {
		return r, err
	}
	m := r.Manifest
	data, err := os.ReadFile(filepath.Join(r.Folder, listFile))
	if err != nil {
		return r, disk("the list of artifacts cannot be read", err)
	}
	for _, f := range []File{m.Ledger, m.List} {
		if sum, err := hash(ctx, filepath.Join(r.Folder, filepath.Base(f.Name))); err != nil || sum != f.SHA256 {
			return r, fault.Wrap(fault.Validation, "backup_damaged", f.Name+" of the backup does not match its checksum in the manifest", err).
				WithNext("restore another backup; slurmgate restore names the newest by default")
		}
	}
	temp, name := filepath.Join(t.StateDir, restoring), filepath.Join(t.StateDir, ledgerName)
	if err := errors.Join(t.Empty(), removeAll(temp)); err != nil {
		return r, err
	}
	defer removeAll(temp)
	if err := copyFile(ctx, temp, filepath.Join(r.Folder, ledgerName)); err != nil {
		return r, disk("the ledger cannot be copied", err)
	}
	if err := t.Adopt(ctx, temp, m.CreatedAt, r.Folder); err != nil {
		return r, err
	}
	if err := t.objects(ctx, &r, data); err != nil {
		return r, err
	}
	if len(r.Missing) > 0 && !t.Partial {
		return r, fault.New(fault.Conflict, "backup_incomplete",
			fmt.Sprintf("%d artifacts of %d are missing or damaged, the first is %s; no ledger was restored", len(r.Missing),
				m.Objects+int64(len(m.Damaged)), r.Missing[0])).
			WithNext("restore another backup, or restore all but these: --partial")
	}
	if err := t.listMissing(&r); err != nil {
		return r, disk("the list of missing artifacts cannot be written", err)
	}
	if err := t.own(temp, r.MissingFile); err != nil {
		return r, disk("the restored files cannot be given to the gateway's user", err)
	}
	if err := place(temp, name); err != nil {
		return r, disk("the ledger cannot get its name", err)
	}
	return r, nil
}

// Empty refuses a place that has a ledger.
func (t Target) Empty() error {
	name := filepath.Join(t.StateDir, ledgerName)
	for _, suffix := range []string{"", "-wal", "-journal"} {
		info, err := os.Lstat(name + suffix)
		if err == nil && info.Size() > 0 {
			return fault.New(fault.Conflict, "restore_not_empty", name+suffix+" exists; nothing was restored").
				WithNext("make sure that this ledger is not needed, then move it away with the files that begin with its name: " +
					"mkdir lost && mv ledger.db* lost/")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return disk("gateway.state_dir cannot be examined", err)
		}
	}
	return nil
}

// objects puts every artifact of the backup into the store.
func (t Target) objects(ctx context.Context, r *Restored, list []byte) error {
	pool := filepath.Dir(r.Folder)
	r.Missing = append([]string{}, r.Manifest.Damaged...)
	var bytes int64
	return eachObject(list, func(o object) error {
		whole, copied, err := t.object(ctx, filepath.Join(pool, o.rel()), o.sum)
		if err != nil {
			return err
		}
		if !whole {
			r.Missing = append(r.Missing, o.sum)
			return nil
		}
		r.Objects, bytes = r.Objects+1, bytes+o.size
		if copied {
			r.Copied++
		}
		if t.Progress != nil {
			t.Progress(r.Objects, r.Manifest.Objects, bytes)
		}
		return nil
	})
}

func (t Target) object(ctx context.Context, path, sum string) (whole, copied bool, err error) {
	if err := t.Verify(ctx, sum); err == nil {
		return true, false, nil
	} else if ctx.Err() != nil {
		return false, false, err
	}
	// It is checked before it is stored: the store would take damaged bytes under their own checksum.
	got, err := hash(ctx, path)
	if ctx.Err() != nil {
		return false, false, ctx.Err()
	}
	if err != nil || got != sum {
		return false, false, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, false, disk("an artifact cannot be read", err)
	}
	defer f.Close()
	stored, err := t.Put(ctx, f)
	return err == nil && stored == sum, true, err
}

// listMissing writes the checksums of all missing artifacts into a file of the state folder, and leaves the first ones in r.
func (t Target) listMissing(r *Restored) error {
	r.MissingCount = len(r.Missing)
	r.Manifest.Damaged = r.Manifest.Damaged[:min(len(r.Manifest.Damaged), Shown)]
	name := filepath.Join(t.StateDir, missingFile)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if r.MissingCount == 0 {
		return nil
	}
	text := strings.Join(r.Missing, "\n") + "\n"
	r.Missing, r.MissingFile = r.Missing[:min(len(r.Missing), Shown)], name
	return os.WriteFile(name, []byte(text), 0o600)
}

// own changes everything of the state folder and the artifact store to the gateway's user, and removes the rights of
// others.
func (t Target) own(files ...string) error {
	if os.Geteuid() != 0 {
		return nil // it is this user, or nothing could have been written
	}
	for _, name := range append(files, filepath.Join(t.StateDir, "gateway.lock")) {
		err := unix.Fchownat(unix.AT_FDCWD, name, t.UID, t.GID, unix.AT_SYMLINK_NOFOLLOW)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	root, err := os.OpenRoot(t.ArtifactDir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, t.UID, t.GID)
	})
}

// place makes a file durable and renames it to its name, if no file has it.
func place(temp, name string) error {
	f, err := os.Open(temp)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func copyFile(ctx context.Context, to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, _, err = files.CopyHash(ctx, dst, src, 0)
	return errors.Join(err, dst.Close())
}

// removeAll removes a ledger that is being restored, and its log.
func removeAll(temp string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(temp + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return disk("what an earlier restore left cannot be removed", err)
		}
	}
	return nil
}
