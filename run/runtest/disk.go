package runtest

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// SmallDisk returns a folder in which no more than about limit bytes can be written: a small filesystem for root,
// otherwise a limit on file sizes, which fails writes at the same place with another errno.
func SmallDisk(t *testing.T, limit int64) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=0700,size=%d", limit))
	if err == nil {
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	if !errors.Is(err, unix.EPERM) {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ)
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(limit), Max: old.Max}))
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &old) })
	return dir
}
