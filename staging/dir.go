package staging

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/files"
)

// dir is an open folder. Paths are resolved below its descriptor and never through a symlink; methods
// that take a name take one part, on which mkdir, rename, link and unlink do not follow symlinks either.
//
// It holds a plain descriptor: an os.File costs three more system calls each, and staging a run opens thirty.
type dir struct{ fd int }

const openDirFlags = unix.O_RDONLY | unix.O_DIRECTORY

func (d dir) close() {
	if d.fd > 0 { // not the zero dir, which comes with an error
		unix.Close(d.fd)
	}
}

// sync makes the names in the folder durable.
func (d dir) sync() error {
	err := fsync(d.fd)
	if err == unix.EINVAL || err == unix.ENOTSUP {
		return nil // some network filesystems have no fsync for folders, as their changes are synchronous
	}
	if err != nil {
		return &os.PathError{Op: "fsync", Path: "folder", Err: err}
	}
	return nil
}

// sub opens a folder below this one.
func (d dir) sub(rel string) (dir, error) {
	fd, err := files.OpenBeneath(d.fd, rel, openDirFlags, 0)
	if err != nil {
		return dir{}, err
	}
	return dir{fd}, nil
}

// open opens a file below this folder without waiting for a pipe's other end.
func (d dir) open(rel string) (*os.File, error) {
	fd, err := files.OpenBeneath(d.fd, rel, readFlags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), rel), nil
}

const readFlags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY

// mkdir creates the folder, or accepts an existing one if it is a real folder of ours, and opens it. Its mode is 0700 afterwards (a
// set-group-id bit inherited from the parent remains).
func (d dir) mkdir(name string) (dir, error) {
	sub, _, err := d.mkdirNew(name)
	return sub, err
}

// mkdirNew is mkdir and also reports whether it created the folder.
func (d dir) mkdirNew(name string) (sub dir, made bool, err error) {
	err = unix.Mkdirat(d.fd, name, 0o700)
	if err != nil && err != unix.EEXIST {
		return dir{}, false, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	made = err == nil
	if sub, err = d.sub(name); err != nil {
		return dir{}, false, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(sub.fd, &st); err == nil {
		switch {
		case int(st.Uid) != os.Geteuid():
			err = errForeign
		case st.Mode&0o777 != 0o700:
			err = unix.Fchmod(sub.fd, st.Mode&0o7000|0o700)
		}
	}
	if err != nil {
		sub.close()
		return dir{}, false, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return sub, made, nil
}

// mkdirs creates every folder of rel and opens the last one.
func (d dir) mkdirs(rel string) (dir, error) {
	at := d
	for part := range strings.SplitSeq(rel, "/") {
		next, err := at.mkdir(part)
		if at != d {
			at.close()
		}
		if err != nil {
			return dir{}, err
		}
		at = next
	}
	return at, nil
}

// stat describes the entry with this name without following symlinks.
func (d dir) stat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return st, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

// rename moves a name of this folder to a name in another, replacing a file there.
func (d dir) rename(name string, to dir, toName string) error {
	if err := unix.Renameat(d.fd, name, to.fd, toName); err != nil {
		return &os.LinkError{Op: "rename", Old: name, New: toName, Err: err}
	}
	return nil
}

// unlink removes a file's name; a name that is already gone is no error.
func (d dir) unlink(name string) error {
	if err := unix.Unlinkat(d.fd, name, 0); err != nil && err != unix.ENOENT {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	return nil
}

// maxNames bounds the folders that are listed whole: those of a run, which only the gateway and the job script write. A
// folder with more names was filled by another program.
const maxNames = 100_000

var errCrowded = fmt.Errorf("the folder has more than %d names", maxNames)

// names lists the folder, sorted. It opens the folder again, which makes a network filesystem bypass its cache of
// missing names.
func (d dir) names() ([]string, error) {
	f, err := d.listing()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxNames + 1)
	if err == io.EOF {
		err = nil
	}
	if len(names) > maxNames {
		return nil, &os.PathError{Op: "list", Path: f.Name(), Err: errCrowded}
	}
	slices.Sort(names)
	return names, err
}

// listing opens the folder again, to be listed in batches.
func (d dir) listing() (*os.File, error) {
	fd, err := files.OpenBeneath(d.fd, ".", openDirFlags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "."), nil
}

// linked writes content to the temp name, hard-links it to name if that is free, and returns what name holds then. Only
// the content shows which call won: on a network filesystem a successful link may report an error, and a failed one
// success.
func (d dir) linked(temp, name string, content []byte, limit int64) ([]byte, error) {
	if err := d.write(temp, content); err != nil {
		return nil, err
	}
	defer d.unlink(temp)
	linkErr := unix.Linkat(d.fd, temp, d.fd, name, 0)
	if err := d.sync(); err != nil {
		return nil, err
	}
	if _, err := d.names(); err != nil {
		return nil, err
	}
	got, err := d.read(name, limit, false)
	if errors.Is(err, unix.ENOENT) && linkErr != nil { // no name to read: the link's error says why
		return nil, &os.LinkError{Op: "link", Old: temp, New: name, Err: linkErr}
	}
	return got, err
}

func randomName() string { return strings.ToLower(rand.Text()) }
