package artifact

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// Exposed returns the first folder on the way to a path in which another user than root and uid can replace what
// follows on that way: the folder is another user's, or others may write to it and it is not sticky; "" if there is
// none. A job opens what it mounts by its path and with its user's rights. With such a folder on the way, another
// user could make the job's user open a link to any file that the job's user can read.
func Exposed(path string, uid int) (folder string, err error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fsFault("the folders above "+path+" cannot be examined", err)
	}
	for _, way := range []string{path, real} {
		for next := way; next != "/"; next = filepath.Dir(next) {
			folder := filepath.Dir(next)
			var in, it unix.Stat_t
			if err = unix.Stat(folder, &in); err == nil {
				err = unix.Lstat(next, &it)
			}
			if err != nil {
				return "", fsFault("the folders above "+path+" cannot be examined", err)
			}
			trusted := func(owner uint32) bool { return owner == 0 || int(owner) == uid }
			others := in.Mode&0o022 != 0 && !(in.Mode&unix.S_ISVTX != 0 && trusted(it.Uid))
			if !trusted(in.Uid) || others {
				return folder, nil
			}
		}
	}
	return "", nil
}

// SafeToMount refuses a path if a user other than root and this process's can replace what jobs of this user mount there.
func (im *Importer) SafeToMount(path string) error {
	if im.othersMount {
		return nil
	}
	folder, err := Exposed(path, os.Geteuid())
	if err == nil && folder != "" {
		err = ExposedFault(path, folder)
	}
	return err
}

// ExposedCode is the code of [ExposedFault].
const ExposedCode = "in_place_exposed"

// ExposedFault returns the fault of a path that a job cannot mount because of such a folder.
func ExposedFault(path, folder string) error {
	return fault.New(fault.Validation, ExposedCode, path+" cannot be mounted: another user can put something else in its place, in the "+
		"folder "+folder).
		WithNext("let the folder belong to root or the user whom jobs run as, with no write permission for others; or import a copy")
}

// CompareState returns a fault unless a file or folder on another host has the state with which it was registered; is
// is that host's report.
func CompareState(path, state, is string) error {
	if folder, exposed := strings.CutPrefix(is, "exposed "); exposed {
		return ExposedFault(path, folder)
	}
	if is != state {
		return Changed(path, state, is)
	}
	return nil
}
