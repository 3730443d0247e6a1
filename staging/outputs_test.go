package staging

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

// Only a regular file with one name, below out/, is collected; opening never waits.
func TestOpenOutputRefuses(t *testing.T) {
	s, a := opened(t)
	outside := t.TempDir()
	put(t, outside+"/secret", "secret")
	out := a + "/out/"
	put(t, out+"folder/x", "x")
	put(t, out+"two", "x")
	must(t, os.Link(out+"two", out+"names"))
	must(t, os.Link(outside+"/secret", out+"hardlink"))
	must(t, os.Symlink("folder/x", out+"inner"))
	must(t, os.Symlink("nowhere", out+"dangling"))
	must(t, os.Symlink(outside, out+"linkdir"))
	must(t, os.Symlink("folder", out+"innerdir"))
	short := t.TempDir() // socket paths are short
	l, err := net.Listen("unix", short+"/s")
	must(t, err)
	defer l.Close()
	must(t, os.Rename(short+"/s", out+"socket"))
	for rel, code := range map[string]string{
		"out/two": run.OutputHardlink, "out/hardlink": run.OutputHardlink, "out/inner": run.OutputSymlink, "out/dangling": run.OutputSymlink,
		"out/linkdir/secret": run.OutputSymlink, "out/innerdir/x": run.OutputSymlink, "out/socket": run.OutputIrregular,
	} {
		soon(t, func() {
			_, _, err := s.OpenOutput(t.Context(), runA, 1, rel)
			if !fault.Is(err, fault.Tool) || fault.CodeOf(err) != code || !strings.Contains(err.Error(), rel) {
				t.Errorf("%s: %v (%s), want %s", rel, err, fault.CodeOf(err), code)
			}
		})
	}
}

// Root may read everything, so the errno is given by hand.
func TestOpenOutputUnreadable(t *testing.T) {
	err := openFault("out/x", &os.PathError{Op: "open", Path: "x", Err: unix.EACCES})
	wantFault(t, err, fault.Tool, run.OutputUnreadable)
	wantFault(t, openFault("out/x", unix.EIO), fault.Transport, "filesystem")
}

// If a job exchanges its output for a link while it is opened, the link's target is never collected.
func TestOpenOutputSwapped(t *testing.T) {
	s, a := opened(t)
	outside := t.TempDir()
	put(t, outside+"/x", "secret")
	put(t, a+"/out/good/x", "result")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			target := []string{"good", outside}[i%2]
			os.Remove(a + "/out/d")
			if target == "good" {
				os.Mkdir(a+"/out/d", 0o700)
				os.WriteFile(a+"/out/d/x", []byte("result"), 0o600)
				os.Remove(a + "/out/d/x")
			} else {
				os.Symlink(target, a+"/out/d")
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	for range 10_000 {
		f, _, err := s.OpenOutput(t.Context(), runA, 1, "out/d/x")
		if err != nil {
			if !fault.Is(err, fault.Tool) {
				t.Fatal(err)
			}
			continue
		}
		got, _ := io.ReadAll(f)
		f.Close()
		if strings.Contains(string(got), "secret") {
			t.Fatal("OpenOutput followed a symlink")
		}
	}
}

func TestUndeclared(t *testing.T) {
	s, a := opened(t)
	out := a + "/out/"
	outside := t.TempDir()
	put(t, outside+"/x", "")
	for _, name := range []string{"declared", "sub/declared", "extra", "sub/extra", "sub/extra2", "new\nline", "bad\xff", "esc\x1b[31m",
		"rtl\u202e", `q"uote`} {
		put(t, out+name, "")
	}
	must(t, os.Mkdir(out+"emptydir", 0o700))
	must(t, os.Symlink(outside, out+"link"))
	must(t, unix.Mkfifo(out+"pipe", 0o600))
	declared := []string{"out/declared", "out/sub/declared"}
	want := []string{
		`"out/bad\xff"`, `"out/esc\x1b[31m"`, `"out/new\nline"`, `"out/rtl\u202e"`, "out/extra", "out/link", "out/pipe", `out/q"uote`,
		"out/sub/extra", "out/sub/extra2",
	}
	soon(t, func() {
		got, err := s.Undeclared(t.Context(), runA, 1, declared, 100)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Undeclared gives the error %v and this difference (-want +got):\n%s", err, diff)
		}
	})
}

// Deep and wide trees end the walk; folders that were not searched are listed.
func TestUndeclaredBounded(t *testing.T) {
	s, a := opened(t)
	deep := filepath.Join(a, "out", strings.Repeat("d/", walkDepth+5))
	must(t, os.MkdirAll(deep, 0o700))
	got, err := s.Undeclared(t.Context(), runA, 1, nil, 10)
	if err != nil || len(got) != 1 || !strings.HasSuffix(got[0], "/d/") {
		t.Errorf("Undeclared of deep directories gives %q %v, want the deepest that is read", got, err)
	}
	w := walk{ctx: t.Context(), limit: 10, left: 3, until: time.Now().Add(time.Hour)}
	for i := range 20 {
		must(t, os.MkdirAll(fmt.Sprintf("%s/tmp/wide/%d", a, i), 0o700))
	}
	fd, err := unix.Open(a+"/tmp", openDirFlags, 0)
	must(t, err)
	d := dir{fd}
	defer d.close()
	w.folder(d, "wide", "out/wide", walkDepth)
	if !slices.Contains(w.found, "out/wide/") {
		t.Errorf("the walk of at most 3 entries found %q, want out/wide/ in it", w.found)
	}
	w = walk{ctx: t.Context(), limit: 10, left: 1000, until: time.Now().Add(-time.Second)}
	w.folder(d, "wide", "out/wide", walkDepth)
	if diff := cmp.Diff([]string{"out/wide/"}, w.found); diff != "" {
		t.Errorf("what the walk without time found differs (-want +got):\n%s", diff)
	}
	long := "out/" + strings.Repeat("é", 200)
	if p := Printable(long); len(p) > nameBytes+3 || !utf8.ValidString(p) {
		t.Errorf("Printable gives %q of %d bytes, want at most %d bytes of UTF-8", p, len(p), nameBytes+3)
	}
}
