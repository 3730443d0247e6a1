package staging

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

var attemptTree = []string{
	"drwx------ a1", "drwx------ a1/ctl", "-rw------- a1/ctl/token",
}

// A second call replaces control files and whatever else has their names, writes through no link, and removes what a
// crashed call left.
func TestOpenAttemptControlFiles(t *testing.T) {
	s, dir := newShared(t)
	a, outside := filepath.Join(dir, runA, "a1"), filepath.Join(t.TempDir(), "f")
	put(t, outside, "keep")
	must(t, s.OpenAttempt(t.Context(), runA, 1, tokenA))
	must(t, os.Symlink(outside, a+"/ctl/script"))
	must(t, os.Link(outside, a+"/ctl/pinned.sha256"))
	put(t, a+"/ctl/.tmp.script."+randomName(), "of a crash")
	must(t, s.OpenAttempt(t.Context(), runA, 1, tokenA, run.ControlFile{Name: "script", Data: []byte("s")},
		run.ControlFile{Name: "pinned.sha256", Data: []byte("p")}))
	if got := content(t, a+"/ctl/script") + content(t, a+"/ctl/pinned.sha256") + content(t, outside); got != "spkeep" {
		t.Errorf("the script, the list and the file outside have %q, want s, p and keep", got)
	}
	if diff := cmp.Diff([]string{"-rw------- pinned.sha256", "-rw------- script", "-rw------- token"}, list(t, a+"/ctl")); diff != "" {
		t.Errorf("the control folder (-want +got):\n%s", diff)
	}
}

// After a crash at any step of an earlier call the next call succeeds.
func TestOpenAttemptAfterCrash(t *testing.T) {
	temp := ".a1." + tokenA
	for name, arrange := range map[string]func(run string){
		"run folder made":      func(run string) {},
		"temp folder made":     func(run string) { must(t, os.MkdirAll(run+"/"+temp, 0o700)) },
		"some folders made":    func(run string) { must(t, os.MkdirAll(run+"/"+temp+"/ctl", 0o700)) },
		"token half written":   func(run string) { put(t, run+"/"+temp+"/ctl/token", tokenA[:5]) },
		"all but moved":        func(run string) { put(t, run+"/"+temp+"/ctl/token", tokenA+"\n") },
		"another token's temp": func(run string) { put(t, run+"/.a1."+tokenB+"/ctl/token", tokenB+"\n") },
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newShared(t)
			run := filepath.Join(dir, runA)
			must(t, os.MkdirAll(run, 0o700))
			arrange(run)
			must(t, s.OpenAttempt(t.Context(), runA, 1, tokenA))
			if diff := cmp.Diff(attemptTree, list(t, run)); diff != "" {
				t.Errorf("the run's directory differs (-want +got):\n%s", diff)
			}
		})
	}
}

// A folder that is not provably ours is refused, and left unchanged.
func TestOpenAttemptForeign(t *testing.T) {
	for name, arrange := range map[string]func(a string){
		"empty folder": func(a string) { must(t, os.MkdirAll(a, 0o700)) },
		"no token":     func(a string) { must(t, os.MkdirAll(a+"/ctl", 0o700)) },
		"empty token":  func(a string) { put(t, a+"/ctl/token", "") },
		"other token":  func(a string) { put(t, a+"/ctl/token", tokenB+"\n") },
		"longer token": func(a string) { put(t, a+"/ctl/token", tokenA+"\nmore") },
		"token is a link": func(a string) {
			put(t, a+"/t", tokenA+"\n")
			put(t, a+"/ctl/x", "")
			must(t, os.Symlink(a+"/t", a+"/ctl/token"))
		},
		"a file":    func(a string) { put(t, a, tokenA) },
		"a symlink": func(a string) { put(t, a+"x/ctl/token", tokenA+"\n"); must(t, os.Symlink(a+"x", a)) },
	} {
		t.Run(name, func(t *testing.T) {
			s, dir := newShared(t)
			arrange(filepath.Join(dir, runA, "a1"))
			must(t, os.Chmod(filepath.Join(dir, runA), 0o700))
			before := list(t, dir)
			wantFault(t, s.OpenAttempt(t.Context(), runA, 1, tokenA), fault.Conflict, "workspace_ahead_of_ledger")
			if diff := cmp.Diff(before, list(t, dir)); diff != "" {
				t.Errorf("the refused attempt changed the runs directory (-before +after):\n%s", diff)
			}
		})
	}
}

// The move without RENAME_NOREPLACE is exclusive too.
func TestMovePlain(t *testing.T) {
	for name, arrange := range map[string]func(base string) bool{
		"free":      func(base string) bool { return true },
		"empty":     func(base string) bool { must(t, os.Mkdir(base+"/to", 0o700)); return false },
		"not empty": func(base string) bool { put(t, base+"/to/x", ""); return false },
	} {
		for mover, move := range map[string]func(dir, string, string) error{"plain": movePlain, "exclusive": moveExclusive} {
			t.Run(name+" "+mover, func(t *testing.T) {
				base := t.TempDir()
				put(t, base+"/from/token", "t")
				want := arrange(base)
				fd, err := unix.Open(base, openDirFlags, 0)
				must(t, err)
				d := dir{fd}
				defer d.close()
				if err := move(d, "from", "to"); (err == nil) != want {
					t.Error(err)
				}
			})
		}
	}
}
