package staging

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A job may leave things that resist removal: folders without permissions, a hundred thousand nested folders, millions of files in one
// folder. Removing them takes no more descriptors and memory than removing anything else.

const (
	clearDepth = 64   // folders open at a time; deeper ones are moved up first
	clearNames = 1024 // names in memory at a time, for each of them
	clearTries = 5    // for a folder that is refilled during the removal
)

// removeAll removes a file, or a folder with everything in it. Symlinks are removed, not followed. A folder of ours that denies us access
// gets its permissions changed first.
func (d dir) removeAll(name string) error { return clearing{}.remove(d, name, 0) }

// clearing removes one folder. If it is interrupted it leaves nothing outside that folder.
type clearing struct {
	top dir // the folder itself, once it is open
}

func (c clearing) remove(at dir, name string, depth int) error {
	err := unix.Unlinkat(at.fd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if st, serr := at.stat(name); serr != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	if depth == clearDepth { // the loop of the topmost folder finds it there
		return at.rename(name, c.top, ".deep."+randomName())
	}
	sub, err := at.enter(name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.close()
	if depth == 0 {
		c.top = sub
	}
	for try := 1; ; try++ {
		if err := c.empty(sub, depth); err != nil {
			return err
		}
		switch err := unix.Unlinkat(at.fd, name, unix.AT_REMOVEDIR); {
		case err == nil, err == unix.ENOENT:
			return nil
		case try == clearTries, err != unix.ENOTEMPTY && err != unix.EEXIST:
			return &os.PathError{Op: "rmdir", Path: name, Err: err}
		}
	}
}

// empty removes everything in a folder.
func (c clearing) empty(d dir, depth int) error {
	for {
		names, err := d.someNames(clearNames)
		if len(names) == 0 && err == nil || errors.Is(err, unix.ENOENT) { // another call removed the folder
			return nil
		}
		if err != nil {
			return err
		}
		for _, n := range names {
			if err := c.remove(d, n, depth+1); err != nil {
				return err
			}
		}
	}
}

// someNames lists at most limit names of the folder, as it is now.
func (d dir) someNames(limit int) ([]string, error) {
	f, err := d.listing()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(limit)
	if err == io.EOF {
		err = nil
	}
	return names, err
}

// enter opens a folder to remove its content, and gives its owner all permissions if necessary. The permissions are
// changed on the open descriptor, so a later change of the name has no effect.
func (d dir) enter(name string) (dir, error) {
	sub, err := d.sub(name)
	if errors.Is(err, unix.EACCES) {
		fd, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return dir{}, &os.PathError{Op: "open", Path: name, Err: err}
		}
		defer unix.Close(fd)
		if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o700); err != nil {
			return dir{}, &os.PathError{Op: "chmod", Path: name, Err: err}
		}
		return d.sub(name)
	}
	if err != nil {
		return dir{}, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(sub.fd, &st); err == nil && st.Mode&0o300 != 0o300 {
		err = unix.Fchmod(sub.fd, 0o700)
	}
	if err != nil {
		sub.close()
		return dir{}, &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	return sub, nil
}
