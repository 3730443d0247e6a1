package artifact

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// pseudo are the filesystems whose regular files are no data: what they contain depends on who reads and when.
var pseudo = []int64{unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.CGROUP_SUPER_MAGIC,
	unix.CGROUP2_SUPER_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC, unix.BPF_FS_MAGIC, unix.PSTOREFS_MAGIC, unix.EFIVARFS_MAGIC,
	unix.BINFMTFS_MAGIC, unix.NSFS_MAGIC, unix.ANON_INODE_FS_MAGIC}

// uploadIt is what remains for a file that cannot be handed over.
const uploadIt = "upload the file"

func upload() fault.Step { return fault.Do("artifact.import", "text", "…") }

// ImportHanded stores the bytes of a file that its caller opened and handed over: the open file proves that the
// caller may read it. path is its name as the caller sees it. The file must be open for reading only, regular, still
// have that name, and be outside the gateway's own folders. With inRoots it must also be a file below a root that
// scope reads, or below one of no project.
func (im *Importer) ImportHanded(ctx context.Context, f *os.File, path string, inRoots bool, scope Scope) (Imported, error) {
	if err := plainName(path); err != nil {
		return Imported{}, err
	}
	before, err := im.handed(f, path)
	if err != nil {
		return Imported{}, err
	}
	if im.isOwn(path) || im.isBelowOwn(path) {
		return Imported{}, ownFault(path)
	}
	if inRoots {
		if err := im.named(before, path, scope); err != nil {
			return Imported{}, err
		}
	}
	return im.copy(ctx, f, path, before)
}

// handed examines a file that was handed over.
func (im *Importer) handed(f *os.File, path string) (st unix.Stat_t, err error) {
	fd := int(f.Fd())
	no := func(msg string) (unix.Stat_t, error) {
		return st, denied(ImportHanded, "a file with a name, open for reading only", path+" "+msg, uploadIt, upload())
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	switch {
	case err != nil:
		return st, fsFault("the file cannot be examined", err)
	case flags&unix.O_PATH != 0:
		return no("is not open for reading")
	case flags&unix.O_ACCMODE != unix.O_RDONLY:
		return no("is open for writing too")
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(fd, &on); err != nil {
		return st, fsFault("the file cannot be examined", err)
	}
	// First, since for a user's FUSE filesystem the kernel reports nothing more without its daemon, which may never
	// answer.
	if on.Type == unix.FUSE_SUPER_MAGIC && !im.shared(fd) {
		return no("is on a filesystem that a user may have mounted (FUSE), and no import root is on it")
	}
	if st, err = im.regular(f, path); err != nil {
		return st, err
	}
	switch {
	case slices.Contains(pseudo, int64(on.Type)):
		return no("is a file of the kernel, not data")
	case st.Nlink == 0:
		return no("has been deleted, or never had a name")
	}
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	switch {
	case err != nil:
		return st, fsFault("the file cannot be examined", err)
	case name != path:
		return no("is not the open file, which is now " + fault.Quote(name, 200))
	}
	return st, nil
}

// shared reports whether a root is on the filesystem of an open file: then its administrator knows it. It asks the
// kernel only for the device, which needs no help from the filesystem.
func (im *Importer) shared(fd int) bool {
	const flags = unix.AT_STATX_DONT_SYNC
	var file unix.Statx_t
	if unix.Statx(fd, "", flags|unix.AT_EMPTY_PATH, 0, &file) != nil {
		return false
	}
	return slices.ContainsFunc(im.roots, func(r importRoot) bool {
		var root unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, r.resolved, flags, 0, &root)
		return err == nil && root.Dev_major == file.Dev_major && root.Dev_minor == file.Dev_minor
	})
}

// isBelowOwn compares names, for a file in folders that the gateway's user cannot enter.
func (im *Importer) isBelowOwn(path string) bool {
	return slices.ContainsFunc(im.own, func(own string) bool { return path == own || strings.HasPrefix(path, own+"/") })
}

// named refuses a file that does not have its name below a root. The caller may see other mounts than the gateway, so
// the name is resolved here.
func (im *Importer) named(handed unix.Stat_t, path string, scope Scope) error {
	local := *im
	local.roots = slices.Clone(im.roots)
	for i, r := range local.roots {
		if len(r.Projects) == 0 { // where a user may import from, not what the user may read
			local.roots[i].Projects = []string{Every}
		}
	}
	root, rel, err := local.locate(path, scope)
	if err != nil {
		return err
	}
	fd, err := openBeneath(root, rel, unix.O_PATH)
	if err != nil {
		return im.openFault(path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fsFault("the file cannot be examined", err)
	}
	if st.Dev != handed.Dev || st.Ino != handed.Ino {
		return denied(ImportHanded, "the file of this name on the gateway's host", path+" is another file there", uploadIt, upload())
	}
	return nil
}
