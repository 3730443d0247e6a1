package staging

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openBeneath opens rel, a clean relative path, below the folder fd. A symlink anywhere on the way, the
// last part included, gives ELOOP; nothing outside the folder is ever reached. The kernel does it in one
// step (openat2, Linux 5.6); elsewhere, or under a seccomp filter that does not know openat2, the parts
// are opened one after another, each below the descriptor of the one before, which is as strict.
func openBeneath(fd int, rel string, flags int, mode uint32) (int, error) {
	got, err := openat2Beneath(fd, rel, flags, mode)
	switch err {
	case unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.E2BIG:
		got, err = walkBeneath(fd, rel, flags, mode)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	return got, nil
}

func openat2Beneath(fd int, rel string, flags int, mode uint32) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(mode)
	}
	for try := 0; ; try++ {
		got, err := unix.Openat2(fd, rel, &how)
		if err == unix.EINTR || err == unix.EAGAIN && try < 100 {
			continue
		}
		return got, err
	}
}

func walkBeneath(fd int, rel string, flags int, mode uint32) (int, error) {
	parts := strings.Split(rel, "/")
	at := fd
	defer func() {
		if at != fd {
			unix.Close(at)
		}
	}()
	for i, part := range parts {
		if part == "" || part == ".." {
			return -1, unix.EXDEV
		}
		f, m := flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode
		last := i == len(parts)-1
		if !last {
			f, m = unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0
		}
		got, err := openatRetry(at, part, f, m)
		if err == unix.ENOTDIR && isSymlink(at, part) {
			err = unix.ELOOP
		}
		if err != nil || last {
			return got, err
		}
		if at != fd {
			unix.Close(at)
		}
		at = got
	}
	return -1, unix.ENOENT
}

func openatRetry(fd int, name string, flags int, mode uint32) (int, error) {
	for {
		got, err := unix.Openat(fd, name, flags, mode)
		if err != unix.EINTR {
			return got, err
		}
	}
}

func isSymlink(fd int, name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}
