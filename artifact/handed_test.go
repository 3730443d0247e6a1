package artifact

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// A file that its caller has opened needs no root. What is not a plain file, open for reading alone under its own name, is refused before a
// byte is stored.
func TestImportHanded(t *testing.T) {
	s, storeDir := newStore(t)
	dir, root := t.TempDir(), t.TempDir()
	im, err := NewImporter(s, ImportPolicy{MaxBytes: 100, Own: []string{storeDir}})
	must(t, err)
	put(t, dir+"/f", "hello\n")
	put(t, dir+"/gone", "x")
	put(t, dir+"/big", strings.Repeat("x", 101))
	put(t, storeDir+"/ledger.db", "rows")
	must(t, unix.Mkfifo(dir+"/pipe", 0o600))
	opened := func(path string, flags int) *os.File {
		t.Helper()
		fd := value(unix.Open(path, flags|unix.O_CLOEXEC, 0))(t)
		f := os.NewFile(uintptr(fd), path)
		t.Cleanup(func() { f.Close() })
		return f
	}
	good := opened(dir+"/f", unix.O_RDONLY)
	gone := opened(dir+"/gone", unix.O_RDONLY)
	must(t, os.Remove(dir+"/gone"))
	sealed := value(unix.MemfdCreate("f", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	memory := os.NewFile(uintptr(sealed), "memfd")
	defer memory.Close()
	_, err = memory.WriteString("anonymous")
	must(t, err)
	_, err = unix.FcntlInt(uintptr(sealed), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	must(t, err)
	readOnly := opened(fmt.Sprintf("/proc/self/fd/%d", sealed), unix.O_RDONLY)

	_, err = io.ReadAll(good) // the position is the caller's
	must(t, err)
	got, err := im.ImportHanded(t.Context(), good, dir+"/f", false, Scope{})
	if want := (Imported{sumOf([]byte("hello\n")), 6, "TEXT", "f", nil}); err != nil || got != want {
		t.Error(got, err)
	}
	before := listed(t, storeDir)
	for what, c := range map[string]struct {
		f          *os.File
		path, code string
	}{
		"open for writing": {opened(dir+"/f", unix.O_RDWR), dir + "/f", ImportHanded},
		"only a name":      {opened(dir+"/f", unix.O_PATH), dir + "/f", ImportHanded},
		"another name":     {good, dir + "/big", ImportHanded},
		"deleted":          {gone, dir + "/gone", ImportHanded},
		"memory":           {memory, "/memfd:f", ImportHanded},
		"sealed memory":    {readOnly, "/memfd:f", ImportHanded},
		"of the kernel":    {opened("/proc/self/status", unix.O_RDONLY), fmt.Sprintf("/proc/%d/status", os.Getpid()), ImportHanded},
		"a folder":         {opened(dir, unix.O_RDONLY), dir, ImportKind},
		"a pipe":           {opened(dir+"/pipe", unix.O_RDONLY|unix.O_NONBLOCK), dir + "/pipe", ImportKind},
		"a device":         {opened("/dev/null", unix.O_RDONLY), "/dev/null", ImportKind},
		"too large":        {opened(dir+"/big", unix.O_RDONLY), dir + "/big", ImportSize},
		"the gateway's":    {opened(storeDir+"/ledger.db", unix.O_RDONLY), storeDir + "/ledger.db", ImportOwn},
		"a relative path":  {good, "f", ImportPath},
		"an odd path":      {good, dir + "/f\n", ImportName},
	} {
		soon(t, func() {
			if _, err := im.ImportHanded(t.Context(), c.f, c.path, false, Scope{}); fault.CodeOf(err) != c.code {
				t.Errorf("%s: %v, want %s", what, err, c.code)
			}
		})
	}
	if after := listed(t, storeDir); len(after) != len(before) {
		t.Error("stored:", after)
	}

	// Where a site requires its roots, the file must be the one that the gateway finds under that name.
	put(t, root+"/p/f", "in a root")
	put(t, root+"/q/f", "in a root of another project")
	im, err = NewImporter(s, ImportPolicy{MaxBytes: 100, Roots: []Root{{root + "/p", []string{"proj_P"}}, {root + "/q", []string{"proj_Q"}},
		{dir, nil}}})
	must(t, err)
	for path, code := range map[string]string{root + "/p/f": "", root + "/q/f": ImportRoot, dir + "/f": "",
		storeDir + "/ledger.db": ImportRoot} {
		if _, err := im.ImportHanded(t.Context(), opened(path, unix.O_RDONLY), path, true, inP); (err == nil) != (code == "") || err != nil &&
			fault.CodeOf(err) != code {
			t.Errorf("%s: %v, want %q", path, err, code)
		}
	}
	st := unix.Stat_t{Ino: 1}
	if err := im.named(st, root+"/p/f", inP); fault.CodeOf(err) != ImportHanded { // as if another mount had this name
		t.Error(err)
	}
}
