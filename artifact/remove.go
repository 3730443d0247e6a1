package artifact

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Removing and storing an object exclude each other through the lock of the object's folder. A writer holds the lock shared while it finds
// or names the object, and renews its time stamp; a remover holds the lock exclusively, and removes no object with a recent time stamp. So
// an object that was just stored again, and whose row is about to be written, is not removed in between.

// Objects calls f for every object with the time it was last stored, in no particular order, until f fails. Other files are skipped.
func (s *Store) Objects(ctx context.Context, f func(sha256 string, sizeBytes int64, stored time.Time) error) error {
	folders, err := fs.ReadDir(s.root.FS(), "objects")
	if err != nil {
		return fsFault("the store cannot be listed", err)
	}
	for _, d := range folders {
		if err := ctx.Err(); err != nil {
			return fsFault("the store was not listed completely", err)
		}
		entries, err := fs.ReadDir(s.root.FS(), "objects/"+d.Name())
		if err != nil {
			continue // not a folder
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !plan.IsSHA256(e.Name()) || e.Name()[:2] != d.Name() || !info.Mode().IsRegular() {
				continue
			}
			if err := f(e.Name(), info.Size(), info.ModTime()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Remove removes an object that was last stored before a time. alone gets the function that removes it and may call
// it or not, so that the caller can make sure that nothing needs the object meanwhile. Remove reports whether the
// object no longer exists.
func (s *Store) Remove(ctx context.Context, sha256 string, before time.Time, alone func(remove func() error) error) (gone bool, err error) {
	if !plan.IsSHA256(sha256) {
		return false, fault.New(fault.Validation, "checksum", "a checksum is 64 lower-case hex digits")
	}
	folder, name := objectPath(sha256)
	lock, err := s.lock(folder, unix.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fsFault("the object's folder cannot be locked", err)
	}
	defer lock.Close()
	info, err := s.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fsFault("the object cannot be examined", err)
	case !info.ModTime().Before(before), time.Since(info.ModTime()) < 2*youngEnough:
		return false, nil
	}
	// A rename is fast whatever the size, so the caller's alone is not held up by the removal itself.
	trash := "tmp/" + strings.ToLower(rand.Text())
	err = alone(func() error {
		err := s.root.Rename(name, trash)
		gone = err == nil
		return err
	})
	if gone {
		err = errors.Join(err, s.root.Remove(trash))
	}
	if err != nil {
		return gone, fsFault("the object cannot be removed", err)
	}
	return gone, nil
}

// Erase removes objects of any age: their bytes must not be kept. An object that does not exist is no error. failed
// has those that may still exist, with the reason. Neighbours in a sorted list have a folder in common, which is
// locked and synced once for them.
func (s *Store) Erase(_ context.Context, sums ...string) (failed map[string]error) {
	failed = map[string]error{}
	_, _, _ = s.DropPartials(time.Now()) // cut imports may have them too
	for len(sums) > 0 {
		if !plan.IsSHA256(sums[0]) {
			failed[sums[0]] = fault.New(fault.Validation, "checksum", "a checksum is 64 lower-case hex digits")
			sums = sums[1:]
			continue
		}
		folder, _ := objectPath(sums[0])
		n := 1
		for n < len(sums) && plan.IsSHA256(sums[n]) && sums[n][:2] == sums[0][:2] {
			n++
		}
		s.eraseIn(folder, sums[:n], failed)
		sums = sums[n:]
	}
	return failed
}

// eraseIn removes objects of one folder.
func (s *Store) eraseIn(folder string, sums []string, failed map[string]error) {
	lock, err := s.lock(folder, unix.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	gone := false
	if err == nil {
		defer lock.Close()
		for _, sum := range sums {
			_, name := objectPath(sum)
			switch err := s.root.Remove(name); {
			case err == nil:
				gone = true
			case !errors.Is(err, fs.ErrNotExist):
				failed[sum] = fsFault("the object cannot be removed", err)
			}
		}
		if gone {
			err = lock.Sync()
		}
	}
	if err != nil {
		for _, sum := range sums {
			failed[sum] = fsFault("the object cannot be removed", err)
		}
	}
}

// lock locks a folder of objects; closing the file releases the lock.
func (s *Store) lock(folder string, how int) (*os.File, error) {
	d, err := s.root.Open(folder)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(d.Fd()), how); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		d.Close()
		return nil, &os.PathError{Op: "flock", Path: folder, Err: err}
	}
	return d, nil
}
