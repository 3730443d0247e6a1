package staging

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asJobUser runs f with the file rights of an ordinary user: root may enter every folder.
func asJobUser(t *testing.T, f func(uid int)) {
	t.Helper()
	uid := os.Geteuid()
	if uid == 0 {
		uid = 65534
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		must(t, unix.Setfsuid(uid)) // of this thread only
		defer func() { must(t, unix.Setfsuid(0)) }()
	}
	f(uid)
}

func open(t *testing.T, path string) dir {
	t.Helper()
	fd, err := unix.Open(path, openDirFlags|unix.O_CLOEXEC, 0)
	must(t, err)
	d := dir{fd}
	t.Cleanup(d.close)
	return d
}

// A folder that resists removal is removed, and nothing outside it.
func TestRemoveAll(t *testing.T) {
	const deep = 3000
	base := t.TempDir()
	must(t, os.Chmod(filepath.Dir(base), 0o755)) // created for its owner alone
	outside := filepath.Join(base, "outside")
	must(t, os.Mkdir(outside, 0o777))
	must(t, os.WriteFile(filepath.Join(outside, "kept"), nil, 0o600))
	for _, tt := range []struct {
		name string
		make func(t *testing.T, at string)
	}{
		{"a file", func(t *testing.T, at string) { must(t, os.WriteFile(at, nil, 0)) }},
		{"nothing", func(*testing.T, string) {}},
		{"a symlink", func(t *testing.T, at string) { must(t, os.Symlink(outside, at)) }},
		{"closed folders", func(t *testing.T, at string) {
			must(t, os.MkdirAll(at+"/a/b/c", 0o700))
			must(t, os.WriteFile(at+"/a/b/c/f", nil, 0))
			for i, p := range []string{"/a/b/c", "/a/b", "/a", ""} {
				must(t, os.Chmod(at+p, os.FileMode([]int{0, 0o400, 0o100, 0o500}[i])))
			}
		}},
		{"many files", func(t *testing.T, at string) {
			must(t, os.Mkdir(at, 0o700))
			for i := range 2*clearNames + 7 {
				must(t, os.WriteFile(fmt.Sprint(at, "/", i), nil, 0o600))
			}
		}},
		{"links to elsewhere", func(t *testing.T, at string) {
			must(t, os.MkdirAll(at+"/d", 0o700))
			must(t, os.Symlink(outside, at+"/d/l"))
			must(t, os.Link(outside+"/kept", at+"/d/h"))
			must(t, unix.Mkfifo(at+"/d/p", 0))
		}},
		{"deep", func(t *testing.T, at string) { // longer than any path can be
			fd, err := unix.Open(filepath.Dir(at), unix.O_DIRECTORY, 0)
			must(t, err)
			name := filepath.Base(at)
			for range deep {
				must(t, unix.Mkdirat(fd, name, 0o700))
				next, err := unix.Openat(fd, name, unix.O_DIRECTORY, 0)
				must(t, errors.Join(err, unix.Close(fd)))
				fd, name = next, "d"
			}
			must(t, unix.Close(fd))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parent := filepath.Join(base, "parent")
			must(t, os.Mkdir(parent, 0o700))
			if os.Geteuid() == 0 {
				must(t, errors.Join(os.Chown(parent, 65534, -1), os.Chown(outside, 65534, -1), os.Chown(outside+"/kept", 65534, -1)))
			}
			asJobUser(t, func(int) {
				tt.make(t, parent+"/x")
				must(t, open(t, parent).removeAll("x"))
			})
			left, err := os.ReadDir(parent)
			if err != nil || len(left) != 0 {
				t.Errorf("after removeAll the parent directory has %v %v, want it empty", left, err)
			}
			must(t, os.Remove(parent))
			if st, err := os.Stat(outside + "/kept"); err != nil || st.Mode().Perm() != 0o600 {
				t.Error("a file outside was changed:", st, err)
			}
		})
	}
}

// Removal takes few descriptors for any depth.
func TestRemoveAllDescriptors(t *testing.T) {
	base := t.TempDir()
	at := base + "/x"
	must(t, os.MkdirAll(at, 0o700))
	for range 3 { // 900 deep, in steps a path can express
		for range 300 {
			at += "/d"
			must(t, os.Mkdir(at, 0o700))
		}
	}
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	inUse, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	few := old
	few.Cur = uint64(len(inUse) + 3*clearDepth)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	must(t, open(t, base).removeAll("x"))
	if _, err := os.Lstat(base + "/x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
