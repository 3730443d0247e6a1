// Package artifact stores immutable bytes: a content-addressed store, the import boundary through which files enter it, the detection of
// types, and bounded previews.
//
//	<dir>/objects/<aa>/<sha256>   the bytes, mode 0400; aa are the first two digits of the checksum
//	<dir>/tmp/<random>            being written, under an flock; a file without the lock is stale
//
// An object gets its name only when its bytes are durable and hashed, and never changes afterwards.
package artifact

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
)

// Store is a content-addressed store below one folder. It is safe for concurrent use, also by several processes.
type Store struct {
	root  *os.Root
	named sync.Map // folders below objects/ whose names are known to be durable

	payloads Payloads // nil: none
	blocks   blockSums
}

// Payloads has documents that are not objects of the store: small ones that were stored together with something else.
type Payloads interface {
	// Payload returns the bytes with this checksum after verifying them. NotFound when there are none.
	Payload(ctx context.Context, sha256 string) ([]byte, error)
}

// Consult makes the store search payloads for missing objects. It is called once, before the store is used.
func (s *Store) Consult(p Payloads) { s.payloads = p }

// Open opens the store, creates its folders where they are missing, and removes temporary files whose writer has
// ended.
func Open(dir string) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fault.New(fault.Validation, "artifact_store", fmt.Sprintf("the artifact store %q is not an absolute path", dir))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fsFault("the artifact store cannot be created", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fsFault("the artifact store cannot be opened", err)
	}
	s := &Store{root: root}
	if err := s.prepare(); err != nil {
		root.Close()
		return nil, fsFault("the artifact store cannot be prepared", err)
	}
	return s, nil
}

// OpenToRead opens a store that exists, and creates and removes nothing.
func OpenToRead(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fsFault("the artifact store cannot be opened", err)
	}
	return &Store{root: root}, nil
}

func (s *Store) prepare() error {
	for _, name := range []string{"objects", "tmp"} {
		if err := s.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := s.dropStale(); err != nil {
		return err
	}
	return s.sync(".")
}

// Close releases the store's folder.
func (s *Store) Close() error { return s.root.Close() }

// Put stores at most limit bytes of r and returns their checksum (64 hex digits) and count. The object is durable then. If r is longer,
// that is a Policy fault with code artifact_too_large; a full disk is a Transport fault with code disk_full; in both cases nothing is
// stored.
func (s *Store) Put(ctx context.Context, r io.Reader, limit int64) (string, int64, error) {
	return s.put(ctx, r, limit, nil)
}

// put is Put with a final check of the source before the object gets its name.
func (s *Store) put(ctx context.Context, r io.Reader, limit int64, check func(size int64) error) (sum string, size int64, err error) {
	if limit < 0 {
		return "", 0, fault.New(fault.Internal, "limit", "a negative limit")
	}
	temp := "tmp/" + strings.ToLower(rand.Text())
	f, err := s.create(temp)
	if err != nil {
		return "", 0, fsFault("the artifact store cannot be written", err)
	}
	renamed := false
	defer func() {
		f.Close()
		if !renamed {
			s.root.Remove(temp)
		}
	}()
	if sum, size, err = take(ctx, f, r, limit, check); err != nil {
		return "", 0, err
	}
	if renamed, err = s.commit(ctx, f, temp, sum, size); err != nil {
		return "", 0, fsFault("the bytes cannot be stored", err)
	}
	return sum, size, nil
}

// take copies at most limit bytes of r to w.
func take(ctx context.Context, w io.Writer, r io.Reader, limit int64, check func(size int64) error) (sum string, size int64, err error) {
	bound := limit
	if bound < math.MaxInt64 {
		bound++
	}
	sum, size, err = files.CopyHash(ctx, w, io.LimitReader(r, bound), limit)
	switch {
	case err != nil:
		return "", 0, fsFault("the bytes cannot be stored", err)
	case size > limit:
		return "", 0, fault.New(fault.Policy, "artifact_too_large", fmt.Sprintf("it has more than the allowed %d bytes", limit))
	}
	if check != nil {
		err = check(size)
	}
	return sum, size, err
}

// measure is put for a dry run: the bytes are read and discarded.
func measure(ctx context.Context, r io.Reader, limit int64, check func(size int64) error) (string, int64, error) {
	return take(ctx, io.Discard, r, limit, check)
}

func (s *Store) create(temp string) (*os.File, error) {
	f, err := s.root.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.Join(&os.PathError{Op: "flock", Path: temp, Err: err}, s.root.Remove(temp))
	}
	return f, nil
}

// youngEnough is the age up to which storing an object again need not renew its time stamp.
const youngEnough = time.Minute

// commit makes the written bytes durable and gives them their name. An existing object of the same name is left alone
// if it has these bytes; else it was damaged and is replaced.
func (s *Store) commit(ctx context.Context, f *os.File, temp, sum string, size int64) (renamed bool, err error) {
	folder, name := objectPath(sum)
	dir, named, err := s.folder(folder)
	if err != nil {
		return false, err
	}
	defer dir.Close()
	info, err := s.root.Lstat(name)
	intact := err == nil && info.Mode().IsRegular() && info.Size() == size
	if intact {
		if intact, err = s.intact(ctx, sum); err != nil {
			return false, err
		}
	}
	if !intact {
		if err := f.Sync(); err != nil {
			return false, err
		}
		if err := s.root.Rename(temp, name); err != nil {
			return false, err
		}
		renamed = true
	} else if now := time.Now(); now.Sub(info.ModTime()) > youngEnough {
		if err := s.root.Chtimes(name, now, now); err != nil { // renewed, so that a sweep does not remove it now
			return false, err
		}
	}
	// Also for an object that existed: its writer may not have synced it.
	if err := dir.Sync(); err != nil || named {
		return renamed, err
	}
	err = s.sync("objects")
	if err == nil {
		s.named.Store(folder, true)
	}
	return renamed, err
}

// intact reports whether an object has the bytes of its name. One that cannot be read has not.
func (s *Store) intact(ctx context.Context, sum string) (bool, error) {
	f, err := s.object(sum)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	got, _, err := files.CopyHash(files.Watched(ctx, nil), io.Discard, f, 0)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return err == nil && got == sum, nil
}

// folder opens a folder of objects under a shared lock, creates it if it is missing, and reports whether its name is known to be durable.
func (s *Store) folder(name string) (dir *os.File, named bool, err error) {
	if _, named = s.named.Load(name); named {
		if dir, err = s.lock(name, unix.LOCK_SH); !errors.Is(err, fs.ErrNotExist) {
			return dir, true, err
		}
	}
	if err = s.root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, false, err
	}
	dir, err = s.lock(name, unix.LOCK_SH) // a new folder is not durable, even if its predecessor was
	return dir, false, err
}

// Reader is [Store.Open] with the number of bytes.
func (s *Store) Reader(_ context.Context, sha256 string) (io.ReadCloser, int64, error) {
	f, err := s.Open(sha256)
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, fsFault("the object cannot be examined", err)
	}
	return f, st.Size(), nil
}

// Open opens an object, or a payload, for reading. NotFound when there is neither.
func (s *Store) Open(sha256 string) (*os.File, error) {
	f, err := s.object(sha256)
	if !fault.Is(err, fault.NotFound) {
		return f, err
	}
	if s.payloads == nil {
		return nil, err
	}
	data, perr := s.payloads.Payload(context.Background(), sha256)
	switch {
	case fault.Is(perr, fault.NotFound):
		return nil, err
	case perr != nil:
		return nil, perr
	}
	return inMemory(sha256, data)
}

// object opens an object.
func (s *Store) object(sha256 string) (*os.File, error) {
	if !plan.IsSHA256(sha256) {
		return nil, fault.New(fault.Validation, "checksum", "a checksum is 64 lower-case hex digits")
	}
	_, name := objectPath(sha256)
	f, err := s.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Wrap(fault.NotFound, "artifact_bytes_missing", "the artifact store has no object "+sha256, err).
			WithNext("import the same file again; restore an output of a run from a backup; look for what else is missing").
			WithSteps(fault.Do("artifact.verify", "all", true))
	}
	if err != nil {
		return nil, fsFault("the object cannot be opened", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fault.Wrap(fault.Internal, "artifact_corrupt", "object "+sha256+" is not a regular file", err)
	}
	return f, nil
}

// inMemory makes an anonymous file of a payload, for callers that need a file. It disappears when it is closed.
func inMemory(name string, data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fsFault("not enough memory for "+name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = f.Write(data); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return nil, fsFault("not enough memory for "+name, err)
	}
	return f, nil
}

// Has reports whether the store itself has the object.
func (s *Store) Has(sha256 string) bool {
	_, _, ok := s.Located(sha256)
	return ok
}

// Verify hashes the object again, or the payload if there is no object. Bytes that do not match the checksum are a Conflict fault with code
// artifact_corrupt, in a payload an Internal fault.
func (s *Store) Verify(ctx context.Context, sha256 string) error {
	f, err := s.object(sha256)
	if s.payloads != nil && fault.Is(err, fault.NotFound) {
		if _, perr := s.payloads.Payload(ctx, sha256); !fault.Is(perr, fault.NotFound) {
			return perr
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		files.Watcher(ctx).Expect(info.Size())
	}
	got, _, err := files.CopyHash(ctx, io.Discard, f, 0)
	if err != nil {
		return fsFault("the object cannot be read", err)
	}
	if got != sha256 {
		return fault.New(fault.Conflict, "artifact_corrupt", fmt.Sprintf("object %s is damaged: its bytes have checksum %s", sha256, got)).
			WithNext("check the disk; then import the same file again, or have the run that made it executed again: the good bytes take its place")
	}
	return nil
}

// Located returns the path of an object below the store's folder, and its size; ok is false if the store has no such
// object.
func (s *Store) Located(sha256 string) (rel string, size int64, ok bool) {
	if !plan.IsSHA256(sha256) {
		return "", 0, false
	}
	_, name := objectPath(sha256)
	info, err := s.root.Lstat(name)
	if err != nil || !info.Mode().IsRegular() {
		return "", 0, false
	}
	return name, info.Size(), true
}

func objectPath(sum string) (folder, name string) {
	folder = "objects/" + sum[:2]
	return folder, folder + "/" + sum
}
