package cli

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// A copied file appears under its name when it is complete, and never if the command fails or is killed: it is written
// in the same folder, as .NAME.RANDOM.part, and its writer holds a lock on it. A kill leaves it unlocked.

var partName = regexp.MustCompile(`^\.(.+)\.[A-Z2-7]{10}\.part$`)

// partOf returns the name of an unfinished file or folder.
func partOf(name string) string {
	base := filepath.Base(name)
	return filepath.Join(filepath.Dir(name), "."+base[:min(len(base), 200)]+"."+rand.Text()[:10]+".part")
}

// untaken refuses a name that is there.
func untaken(name string) error {
	if _, err := os.Lstat(name); err != nil {
		return nil // if it is not missing, the next call reports why
	}
	return taken(name)
}

func taken(name string) error {
	return fault.New(fault.Conflict, "target_exists", name+" already exists").WithNext("name another folder or file with --to, or remove it")
}

func unwritable(name string, err error) error {
	return fault.Wrap(fault.Validation, "target_unwritable", "cannot write "+name, err)
}

// newFile writes a file that is not there yet, whole or not at all.
func newFile(name string, write func(*os.File) error) error {
	if err := untaken(name); err != nil {
		return err
	}
	f, err := begin(name, func(part string) (*os.File, error) { return os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666) })
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing once the file has its name
	defer f.Close()
	if err := write(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return fault.Wrap(fault.Transport, "target_unwritable", "cannot write "+name, err)
	}
	return appear(f.Name(), name)
}

// newFolder makes a folder that is not there yet, whole or not at all.
func newFolder(name string, write func(*os.Root) error) error {
	if err := untaken(name); err != nil {
		return err
	}
	f, err := begin(name, func(part string) (*os.File, error) {
		if err := os.Mkdir(part, 0o777); err != nil {
			return nil, err
		}
		return os.Open(part)
	})
	if err != nil {
		return err
	}
	defer os.RemoveAll(f.Name())
	defer f.Close()
	root, err := os.OpenRoot(f.Name())
	if err != nil {
		return unwritable(name, err)
	}
	defer root.Close()
	if err := write(root); err != nil {
		return err
	}
	return appear(f.Name(), name)
}

// begin makes an unfinished file or folder and holds it. It makes another where [dropParts] of another command found it before it was held.
func begin(name string, create func(part string) (*os.File, error)) (*os.File, error) {
	for range 100 {
		f, err := create(partOf(name))
		if err != nil {
			return nil, unwritable(name, err)
		}
		err = hold(f) // where there are no locks, two collects into one folder disturb each other
		made, statErr := f.Stat()
		if there, goneErr := os.Lstat(f.Name()); err != unix.EWOULDBLOCK && statErr == nil && goneErr == nil && os.SameFile(made, there) {
			return f, nil
		}
		f.Close()
	}
	return nil, unwritable(name, errors.New("other commands keep removing what is unfinished"))
}

// appear renames a complete file or folder to its name, unless that exists by now.
func appear(part, name string) error {
	err := unix.Renameat2(unix.AT_FDCWD, part, unix.AT_FDCWD, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // the filesystem has no such rename
		if err = os.Link(part, name); err != nil && !errors.Is(err, os.ErrExist) { // nor are there links, least of all to folders
			if err = untaken(name); err == nil {
				err = os.Rename(part, name)
			}
		}
	}
	switch {
	case errors.Is(err, os.ErrExist):
		return taken(name)
	case err != nil && fault.KindOf(err) != fault.Conflict:
		return unwritable(name, err)
	}
	return err
}

// hold locks an unfinished file or folder while it is open.
func hold(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }

// dropParts removes from a folder what killed commands left of files and folders with these names, and leaves alone what is being written.
func dropParts(dir string, named func(name string) bool) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range list {
		m := partName.FindStringSubmatch(e.Name())
		if m == nil || !named(m[1]) || !e.Type().IsRegular() && !e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if hold(f) == nil {
			_ = os.RemoveAll(path)
		}
		f.Close()
	}
}
