// Package files opens and copies files that may change concurrently: nothing outside a folder is reached, and the size
// and the checksum are those of the copied bytes.
package files

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenBeneath opens rel, a clean relative path, below the folder fd. A symlink in any part of rel, including the last,
// returns ELOOP; nothing outside the folder is ever reached. The kernel does it in one step (openat2, Linux 5.6);
// elsewhere, or under a seccomp filter that does not know openat2, the parts are opened one after another, each below
// the descriptor of the previous one, which is as strict.
func OpenBeneath(fd int, rel string, flags int, mode uint32) (int, error) {
	got, err := openat2(fd, rel, flags, mode)
	switch err {
	case unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.E2BIG:
		got, err = walk(fd, rel, flags, mode)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	return got, nil
}

func openat2(fd int, rel string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	for try := 0; ; try++ {
		got, err := unix.Openat2(fd, rel, &how)
		if err != unix.EINTR && (err != unix.EAGAIN || try == 100) {
			return got, err
		}
	}
}

func walk(fd int, rel string, flags int, mode uint32) (int, error) {
	parts := strings.Split(rel, "/")
	last := len(parts) - 1
	at := fd
	for i, part := range parts {
		got, err := -1, error(unix.EXDEV)
		switch {
		case part == "" || part == "..":
		case i < last:
			got, err = openat(at, part, unix.O_PATH|unix.O_DIRECTORY, 0)
		default:
			got, err = openat(at, part, flags, mode)
		}
		if at != fd {
			unix.Close(at)
		}
		if err != nil || i == last {
			return got, err
		}
		at = got
	}
	return -1, unix.ENOENT
}

func openat(fd int, name string, flags int, mode uint32) (int, error) {
	got, err := unix.Openat(fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	for err == unix.EINTR {
		got, err = unix.Openat(fd, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	}
	if err == unix.ENOTDIR {
		var st unix.Stat_t
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
			err = unix.ELOOP
		}
	}
	return got, err
}
