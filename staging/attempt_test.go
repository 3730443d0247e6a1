package staging

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

var attemptTree = []string{
	"drwx------ a1", "drwx------ a1/ctl", "-rw------- a1/ctl/token",
}

func TestOpenAttempt(t *testing.T) {
	s, dir := newShared(t)
	for range 2 {
		must(t, s.OpenAttempt(t.Context(), runA, 1, tokenA))
		if diff := cmp.Diff(attemptTree, list(t, filepath.Join(dir, runA))); diff != "" {
			t.Fatal(diff)
		}
	}
	if got := content(t, filepath.Join(dir, runA, "a1/ctl/token")); got != tokenA+"\n" {
		t.Errorf("token %q", got)
	}
	put(t, filepath.Join(dir, runA, "a1/out/result"), "x")
	wantFault(t, s.OpenAttempt(t.Context(), runA, 1, tokenB), fault.Conflict, "workspace_ahead_of_ledger")
	must(t, s.OpenAttempt(t.Context(), runA, 1, tokenA))
	must(t, s.OpenAttempt(t.Context(), runA, 2, tokenB))
	wantFault(t, s.OpenAttempt(t.Context(), runA, 0, tokenA), fault.Validation, "attempt_number")
	wantFault(t, s.OpenAttempt(t.Context(), runA, 3, "../../etc"), fault.Validation, "token")
}

// Control files come with the folder, and a second call replaces them whatever has their names.
func TestOpenAttemptControlFiles(t *testing.T) {
	s, dir := newShared(t)
	a, outside := filepath.Join(dir, runA, "a1"), filepath.Join(t.TempDir(), "f")
	put(t, outside, "keep")
	for i, c := range []string{"one\n", "", strings.Repeat("two", 1000), "three\n"} {
		if i == 3 {
			must(t, os.Remove(a+"/ctl/script"))
			must(t, os.Symlink(outside, a+"/ctl/script"))
			must(t, os.Remove(a+"/ctl/pinned.sha256"))
			must(t, os.Link(outside, a+"/ctl/pinned.sha256"))
			put(t, a+"/ctl/.tmp.script."+randomName(), "of a crash")
			put(t, a+"/ctl/.tmp.script.sh."+randomName(), "of another file")
		}
		must(t, s.OpenAttempt(t.Context(), runA, 1, tokenA, run.ControlFile{Name: "script", Data: []byte(c)},
			run.ControlFile{Name: "pinned.sha256", Data: []byte("p" + c)}))
		if got := content(t, a+"/ctl/script") + content(t, a+"/ctl/pinned.sha256"); got != c+"p"+c {
			t.Errorf("got %.20q, want %.20q", got, c)
		}
	}
	if content(t, outside) != "keep" {
		t.Error("written through a link")
	}
	got := list(t, a+"/ctl")
	if len(got) != 4 || got[1] != "-rw------- pinned.sha256" || got[2] != "-rw------- script" || got[3] != "-rw------- token" {
		t.Error(got)
	}
	for _, name := range []string{"", ".", "..", "a/b", "../x", ".hidden", "a\nb", "claim", "token", strings.Repeat("x", 200)} {
		wantFault(t, s.OpenAttempt(t.Context(), runA, 2, tokenA, run.ControlFile{Name: name}), fault.Validation, "control_name")
	}
}

// A crash after any step of an earlier call leaves a state from which the next call goes on.
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
				t.Error(diff)
			}
		})
	}
}

// A folder that is not provably ours blocks, and is left as it is.
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
				t.Error(diff)
			}
		})
	}
}

// Of many callers with different tokens one opens the attempt.
func TestOpenAttemptRace(t *testing.T) {
	s, dir := newShared(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var won []string
	for i := range 30 {
		wg.Go(func() {
			token := fmt.Sprintf("%032x", i/3) // three callers share each
			err := s.OpenAttempt(t.Context(), runA, 1, token)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, token)
			} else if fault.Is(err, fault.Internal) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := content(t, filepath.Join(dir, runA, "a1/ctl/token"))
	if len(won) == 0 {
		t.Fatal("nobody won")
	}
	for _, token := range won {
		if token+"\n" != got {
			t.Errorf("%s was told it has the attempt, the folder says %s", token, got)
		}
	}
}

// The move without RENAME_NOREPLACE is as exclusive.
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
