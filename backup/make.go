package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
)

// Ledger is a ledger as a backup reads it: that of the gateway, and the copy.
type Ledger interface {
	ID() string
	Schema() int
	CopyTo(ctx context.Context, path string) error
	// Contents calls f for each content that is an object of the store.
	Contents(ctx context.Context, f func(sha256 string, sizeBytes int64) error) error
	// InPlace reports whether bytes lie where their owner has them: those need no object.
	InPlace(ctx context.Context, sha256 string) (bool, error)
	// Holds reports whether an artifact has these bytes.
	Holds(ctx context.Context, sha256 string) (bool, error)
	Counts(ctx context.Context) (map[string]int64, error)
	// Integrity checks the file and the hash chains.
	Integrity(ctx context.Context) error
	Close() error
}

// Source is a gateway to back up.
type Source struct {
	Ledger Ledger
	// Open opens a copy of the ledger.
	Open func(ctx context.Context, path string) (Ledger, error)
	// Object opens an object of the store; NotFound for an unknown one.
	Object   func(sha256 string) (*os.File, error)
	Config   map[string]string // files and folders of the configuration, by their name in the backup
	Manifest Manifest          // the part that the caller fills
	Now      func() time.Time
}

// Options of Make.
type Options struct {
	Keep   int  // how many backups stay in the folder, at least this one; 0: all
	Verify bool // read again what earlier backups copied
	// Progress is called with how many objects of how many were examined, and the bytes copied; it may be nil.
	Progress func(done, of, copied int64)
}

// Made is a new backup.
type Made struct {
	Manifest
	Folder  string   `json:"folder"`
	Copied  int64    `json:"objects_copied"` // that no earlier backup in the folder had
	Fresh   int64    `json:"bytes_copied"`
	Removed []string `json:"removed"` // earlier backups, see Options.Keep
	Seconds float64  `json:"seconds"`
	// DamagedCount is how many checksums manifest.json lists as damaged. Manifest.Damaged has the first of them.
	DamagedCount int `json:"damaged_count"`
}

// Shown bounds how many missing or damaged artifacts an answer names. A file has all of them.
const Shown = 100

// rounds is how often the ledger is copied again because objects that a copy names were removed before they were copied.
const rounds = 5

// Make makes a backup in dir. The ledger is copied first and then what it names; where gc or an erasure removed some of that meanwhile, the
// ledger is copied again. A damaged or missing object is in the manifest, and the backup is complete but for it.
func (s Source) Make(ctx context.Context, dir string, o Options) (m Made, err error) {
	began := s.Now()
	w, err := s.begin(dir, o)
	if err != nil {
		return m, err
	}
	defer w.end()
	if err := w.copyAll(ctx); err != nil {
		return m, err
	}
	if err := w.config(ctx); err != nil {
		return m, err
	}
	if m.Folder, err = w.finish(); err != nil {
		return m, err
	}
	m.Manifest, m.Copied, m.Fresh, m.DamagedCount = w.m, w.copied, w.bytes, len(w.m.Damaged)
	m.Damaged = m.Damaged[:min(len(m.Damaged), Shown)]
	m.Removed, err = prune(dir, o.Keep)
	m.Seconds = s.Now().Sub(began).Seconds()
	return m, err
}

// writer makes one backup.
type writer struct {
	Source
	Options
	dir, temp     string
	lock          *os.File
	m             Manifest
	waiting       []pending // copied objects whose bytes may not be on the disk yet
	unsynced      int64
	copied, bytes int64
	list          strings.Builder
}

type pending struct{ temp, name string }

// begin takes the folder's lock and removes what a killed backup left.
func (s Source) begin(dir string, o Options) (w *writer, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, disk("the folder of backups cannot be created", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, disk("the folder of backups cannot be written", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fault.New(fault.Conflict, "backup_running", "another backup into "+dir+" is running").
				WithNext("wait until it has finished")
		}
		return nil, disk("the folder of backups cannot be locked", err)
	}
	w = &writer{Source: s, Options: o, dir: dir, lock: lock, m: s.Manifest}
	w.m.Format, w.m.CreatedAt, w.m.Without, w.m.GatewayID = format, s.Now().UTC(), without, s.Ledger.ID()
	w.m.Damaged, w.m.Config = []string{}, []File{}
	if err = clean(dir); err == nil {
		w.temp, err = os.MkdirTemp(dir, unfinished)
	}
	if err == nil {
		err = os.Mkdir(filepath.Join(w.temp, objectsDir), 0o700)
	}
	if err != nil {
		lock.Close()
		return nil, disk("the folder of backups cannot be prepared", err)
	}
	return w, nil
}

// clean removes what killed backups left.
func clean(dir string) error {
	left, err := filepath.Glob(filepath.Join(escape(dir), unfinished+"*"))
	for _, name := range left {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return err
}

// escape escapes a path for a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (w *writer) end() {
	_ = os.RemoveAll(w.temp) // the next backup removes what is left
	w.lock.Close()
}

// copyAll copies the ledger and what it names.
func (w *writer) copyAll(ctx context.Context) error {
	path := filepath.Join(w.temp, ledgerName)
	for range rounds {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return disk("a copy of the ledger cannot be replaced", err)
		}
		if err := w.Ledger.CopyTo(ctx, path); err != nil {
			return err
		}
		again, err := w.objects(ctx, path)
		if err != nil {
			return err
		}
		if !again {
			return w.flush()
		}
	}
	return fault.New(fault.Transport, "backup_overtaken",
		"artifacts were removed faster than they could be copied, so the backup would not have been consistent").
		WithNext("repeat it when the running gc has finished")
}

// objects copies the objects that a copy of the ledger names. It reports whether some of them were removed from the gateway's ledger
// since, so that a new copy is needed.
func (w *writer) objects(ctx context.Context, path string) (again bool, err error) {
	l, err := w.Open(ctx, path)
	if err != nil {
		return false, err
	}
	defer l.Close()
	if err := l.Integrity(ctx); err != nil {
		return false, err
	}
	if w.m.Runs, err = l.Counts(ctx); err != nil {
		return false, err
	}
	w.m.Schema, w.m.Objects, w.m.Bytes, w.m.Damaged = l.Schema(), 0, 0, []string{}
	w.list.Reset()
	var of, done int64
	if err := l.Contents(ctx, func(string, int64) error { of++; return nil }); err != nil {
		return false, err
	}
	err = l.Contents(ctx, func(sum string, size int64) error {
		x := object{sum, size}
		whole, err := w.object(ctx, x)
		if err != nil {
			return err
		}
		if !whole {
			if elsewhere, err := l.InPlace(ctx, sum); elsewhere || err != nil {
				return err
			}
			held, err := w.Ledger.Holds(ctx, sum)
			again = again || !held
			w.m.Damaged = append(w.m.Damaged, sum)
			return err
		}
		w.list.WriteString(x.line())
		w.m.Objects++
		w.m.Bytes += size
		if done++; w.Progress != nil {
			w.Progress(done, of, w.bytes)
		}
		return nil
	})
	return again, err
}

// object makes sure that the folder of backups has an object. whole is false if the store has not.
func (w *writer) object(ctx context.Context, x object) (whole bool, err error) {
	name := filepath.Join(w.dir, x.rel())
	if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.Size() == x.size {
		if !w.Verify {
			return true, nil
		}
		if sum, err := hash(ctx, name); err == nil && sum == x.sum {
			return true, nil
		}
	}
	temp := filepath.Join(w.temp, objectsDir, x.sum)
	if _, err := os.Lstat(temp); err == nil {
		return true, nil // copied in an earlier round; its name comes with the next flush
	}
	src, err := w.Object(x.sum)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer src.Close()
	dst, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return false, disk("an artifact cannot be copied", err)
	}
	sum, size, err := files.CopyHash(ctx, dst, src, x.size)
	if err = errors.Join(err, dst.Close()); err != nil {
		return false, disk("an artifact cannot be copied", err)
	}
	if sum != x.sum || size != x.size {
		return false, os.Remove(temp)
	}
	w.copied, w.bytes, w.unsynced = w.copied+1, w.bytes+size, w.unsynced+size
	if w.waiting = append(w.waiting, pending{temp, name}); len(w.waiting) >= 1000 || w.unsynced >= 1<<30 {
		return true, w.flush()
	}
	return true, nil
}

// flush renames copied objects to their names, once their bytes are on the disk.
func (w *writer) flush() error {
	if err := w.sync(); err != nil {
		return err
	}
	for _, p := range w.waiting {
		err := os.MkdirAll(filepath.Dir(p.name), 0o700)
		if err == nil {
			err = os.Rename(p.temp, p.name)
		}
		if err != nil {
			return disk("an artifact cannot be copied", err)
		}
	}
	w.waiting, w.unsynced = nil, 0
	return w.sync()
}

// sync waits until everything that was written to the filesystem of the folder is on the disk.
func (w *writer) sync() error {
	if err := unix.Syncfs(int(w.lock.Fd())); err != nil {
		return disk("the backup's disk cannot be synced", err)
	}
	return nil
}

// finish writes the manifest and renames the backup to its name.
func (w *writer) finish() (folder string, err error) {
	if err := os.Remove(filepath.Join(w.temp, objectsDir)); err != nil {
		return "", disk("the backup cannot be finished", err)
	}
	if err := os.WriteFile(filepath.Join(w.temp, listFile), []byte(w.list.String()), 0o600); err != nil {
		return "", disk("the list of artifacts cannot be written", err)
	}
	ctx := context.Background()
	if w.m.Ledger, err = w.file(ctx, ledgerName); err != nil {
		return "", err
	}
	if w.m.List, err = w.file(ctx, listFile); err != nil {
		return "", err
	}
	data, err := json.MarshalIndent(w.m, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(w.temp, manifestFile), append(data, '\n'), 0o600)
	}
	if err == nil {
		err = os.Chmod(filepath.Join(w.temp, ledgerName), 0o600)
	}
	if err != nil {
		return "", disk("the manifest cannot be written", err)
	}
	if err := w.sync(); err != nil {
		return "", err
	}
	// Only the holder of the lock makes names. They sort by age: of one second, a later backup has a higher number,
	// even if the first was removed.
	name, n := w.m.CreatedAt.Format("20060102T150405Z"), 1
	all, err := list(w.dir)
	if err != nil {
		return "", err
	}
	for _, earlier := range all {
		if earlier == name {
			n = max(n, 2)
		} else if k, err := strconv.Atoi(strings.TrimPrefix(earlier, name+".")); err == nil {
			n = max(n, k+1)
		}
	}
	if folder = filepath.Join(w.dir, name); n > 1 {
		folder = fmt.Sprintf("%s.%03d", folder, n)
	}
	err = os.Rename(w.temp, folder)
	if err != nil {
		return "", disk("the backup cannot get its name", err)
	}
	return folder, w.sync()
}

// file describes a file of the backup.
func (w *writer) file(ctx context.Context, rel string) (f File, err error) {
	f.Name = rel
	path := filepath.Join(w.temp, rel)
	info, err := os.Stat(path)
	if err == nil {
		f.Bytes = info.Size()
		f.SHA256, err = hash(ctx, path)
	}
	if err != nil {
		return f, disk("a file of the backup cannot be read", err)
	}
	return f, nil
}

func hash(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum, _, err := files.CopyHash(ctx, io.Discard, f, 0)
	return sum, err
}
