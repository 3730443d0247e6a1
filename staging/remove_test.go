package staging

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
)

func yes() (bool, error) { return true, nil }

// left lists the files below a folder, relative to it.
func left(t *testing.T, dir string) []string {
	t.Helper()
	out := []string{}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, p)
			out = append(out, rel)
		}
		return err
	}))
	slices.Sort(out)
	return out
}

// A workspace that was removed by hand has no file in its place; the sweep creates it.
func TestRemoveRunByHand(t *testing.T) {
	s, a1 := opened(t)
	must(t, os.RemoveAll(filepath.Dir(a1)))
	_, err := s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA, 2: tokenB}, yes)
	must(t, err)
	if got := left(t, filepath.Dir(a1)); !slices.Equal(got, []string{"a1", "a2"}) {
		t.Errorf("the removed run's directory has %q, want a1 and a2", got)
	}
}

// A removal that is interrupted anywhere leaves an attempt that can execute nothing, and can be completed later.
func TestRemoveRunCutShort(t *testing.T) {
	s, a1 := opened(t)
	runDir := filepath.Dir(a1)
	put(t, a1+"/ctl/pinned.sha256", "p")
	ctx, stop := context.WithCancel(t.Context())
	_, err := s.RemoveRun(ctx, runA, map[int]string{1: tokenA}, func() (bool, error) { stop(); return true, nil })
	wantFault(t, err, fault.Canceled, "canceled")
	if b, err := os.ReadFile(a1); err != nil || string(b) != string(GoneFile(tokenA)) {
		t.Errorf("the removed attempt is the file %q, %v, want %q", b, err, GoneFile(tokenA))
	}
	rest := left(t, runDir)
	if !slices.ContainsFunc(rest, func(s string) bool { return strings.HasSuffix(s, "/ctl/claim") }) || slices.ContainsFunc(rest,
		func(s string) bool { return strings.Contains(s, "pinned") }) {
		t.Errorf("the removal that was cut short leaves %q, want ctl/claim and nothing pinned", rest)
	}
	_, err = s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, yes)
	must(t, err)
	if got := left(t, runDir); !slices.Equal(got, []string{"a1"}) {
		t.Errorf("the removed run's directory has %q, want a1", got)
	}
}

// A run's folder that is a symlink is not removed.
func TestRemoveRunThatIsALink(t *testing.T) {
	s, a1 := opened(t)
	runDir := filepath.Dir(a1)
	must(t, os.Rename(runDir, runDir+"x"))
	must(t, os.Symlink(runDir+"x", runDir))
	_, err := s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, yes)
	wantFault(t, err, fault.Conflict, "workspace_foreign_entry")
}

// While a workspace is being removed it cannot be staged: the inputs of a new attempt come after.
func TestRemoveKeepsStagingOut(t *testing.T) {
	s, a1 := opened(t)
	o := newObjects(t)
	in := o.add("input", "in/f")
	staged := make(chan error, 1)
	_, err := s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, func() (bool, error) {
		go func() { staged <- s.StageInputs(t.Context(), runA, []plan.Input{in}, o.open) }()
		return true, nil
	})
	must(t, err)
	must(t, <-staged)
	if _, err := os.Stat(filepath.Dir(a1) + "/in/f"); err != nil {
		t.Error(err)
	}
}
