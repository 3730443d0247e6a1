package staging

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// filesystems names the types by the magic number of statfs(2); network is true where other machines may share the
// filesystem. That includes fuse, which may serve any filesystem.
var filesystems = map[uint32]struct {
	name    string
	network bool
}{
	unix.NFS_SUPER_MAGIC:       {"nfs", true},
	unix.SMB_SUPER_MAGIC:       {"smb", true},
	unix.SMB2_SUPER_MAGIC:      {"smb2", true},
	unix.CIFS_SUPER_MAGIC:      {"cifs", true},
	unix.CEPH_SUPER_MAGIC:      {"ceph", true},
	unix.AFS_SUPER_MAGIC:       {"afs", true},
	unix.AFS_FS_MAGIC:          {"afs", true},
	unix.CODA_SUPER_MAGIC:      {"coda", true},
	unix.NCP_SUPER_MAGIC:       {"ncp", true},
	unix.V9FS_MAGIC:            {"9p", true},
	unix.OCFS2_SUPER_MAGIC:     {"ocfs2", true},
	unix.FUSE_SUPER_MAGIC:      {"fuse", true},
	0x0bd00bd0:                 {"lustre", true},
	0x47504653:                 {"gpfs", true},
	0x19830326:                 {"beegfs", true},
	0x20030528:                 {"orangefs", true},
	0x18031977:                 {"weka", true},
	0xaad7aaea:                 {"panfs", true},
	0x01161970:                 {"gfs2", true},
	0x786f4256:                 {"vboxsf", true},
	0x61756673:                 {"aufs", false},
	unix.EXT4_SUPER_MAGIC:      {"ext", false},
	unix.XFS_SUPER_MAGIC:       {"xfs", false},
	unix.BTRFS_SUPER_MAGIC:     {"btrfs", false},
	unix.TMPFS_MAGIC:           {"tmpfs", false},
	unix.RAMFS_MAGIC:           {"ramfs", false},
	unix.OVERLAYFS_SUPER_MAGIC: {"overlay", false},
	unix.F2FS_SUPER_MAGIC:      {"f2fs", false},
	unix.BCACHEFS_SUPER_MAGIC:  {"bcachefs", false},
	0x2fc12fc1:                 {"zfs", false},
}

// Free returns how many bytes this user can still write to the filesystem of path, ignoring quotas.
func Free(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fsFault("the filesystem cannot be examined", &os.PathError{Op: "statfs", Path: path, Err: err})
	}
	return int64(min(st.Bavail, math.MaxInt64/uint64(st.Bsize))) * st.Bsize, nil
}

// FreeInodes returns how many files and folders ordinary users can still create on the filesystem of path. limited is
// false for a filesystem that creates inodes on demand.
func FreeInodes(path string) (n int64, limited bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, false, fsFault("the filesystem cannot be examined", &os.PathError{Op: "statfs", Path: path, Err: err})
	}
	return int64(min(st.Ffree, math.MaxInt64)), st.Files > 0, nil
}

// Filesystem names the filesystem type of path and reports whether other machines may share it. An unknown type is named by its number and
// treated as local.
func Filesystem(path string) (name string, network bool, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return "", false, fsFault("the filesystem cannot be examined", &os.PathError{Op: "statfs", Path: path, Err: err})
	}
	if known, ok := filesystems[uint32(st.Type)]; ok {
		return known.name, known.network, nil
	}
	return fmt.Sprintf("0x%x", uint32(st.Type)), false, nil
}
