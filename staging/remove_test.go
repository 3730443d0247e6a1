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
	"slurmgate/run"
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

// worked gives a workspace whose job has run, and left folders it may not read itself.
func worked(t *testing.T) (*Shared, string) {
	t.Helper()
	s, a1 := opened(t)
	for name, content := range map[string]string{"ctl/claim": "slurmgate-claim 1 job=5 task=- restart=0 token=" + tokenA + " node=n1\n",
		"ctl/.claim.5.0": "x", "ctl/exit": "e", "ctl/manifest": "m", "ctl/stdout": "12345",
		"ctl/script": "s", "ctl/pinned.sha256": "p", "ctl/send.1.out": "5\n", "ctl/send.1.err": "", "ctl/job.log": "l",
		"out/deep/result": "12345", "tmp/x": "y", "../in/input": "12345"} {
		put(t, filepath.Join(a1, name), content)
	}
	must(t, os.Chmod(a1+"/out/deep", 0))
	t.Cleanup(func() { os.Chmod(a1+"/out/deep", 0o700) })
	return s, a1
}

// A removed workspace keeps a file for each attempt: no job can start there, and no ledger takes it for one of its own.
func TestRemoveRun(t *testing.T) {
	s, a1 := worked(t)
	runDir, tokens := filepath.Dir(a1), map[int]string{1: tokenA}
	n, err := s.RemoveRun(t.Context(), runA, tokens, yes)
	must(t, err)
	if got := left(t, runDir); !slices.Equal(got, []string{"a1"}) || n < 100 || n > 500 {
		t.Errorf("%v, %d bytes", got, n)
	}
	if b, err := os.ReadFile(a1); err != nil || string(b) != "slurmgate-removed 1 token="+tokenA+"\n" {
		t.Errorf("%s, %v", b, err)
	}
	for range 2 { // as after a crash
		if n, err := s.RemoveRun(t.Context(), runA, tokens, yes); n != 0 || err != nil {
			t.Error(n, err)
		}
	}
	if err := os.MkdirAll(a1+"/ctl", 0o700); err == nil {
		t.Error("a folder can be made where the attempt was")
	}
	for _, f := range []func() error{
		func() error { _, err := s.TakeClaim(t.Context(), runA, 1, run.VoidClaim(tokenA)); return err },
		func() error { _, err := s.ReadControl(t.Context(), runA, 1, run.ExitFile, 100, false); return err },
	} {
		wantFault(t, f(), fault.NotFound, "attempt_missing")
	}
	wantFault(t, s.OpenAttempt(t.Context(), runA, 1, tokenA), fault.Conflict, "workspace_ahead_of_ledger")
	// The next attempt has a workspace again.
	must(t, s.OpenAttempt(t.Context(), runA, 2, tokenB))
	_, err = s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA, 2: tokenB}, yes)
	must(t, err)
	if got := left(t, runDir); !slices.Equal(got, []string{"a1", "a2"}) {
		t.Error(got)
	}
}

// Whoever removed a workspace by hand left no file; the sweep makes up for it.
func TestRemoveRunByHand(t *testing.T) {
	s, a1 := opened(t)
	must(t, os.RemoveAll(filepath.Dir(a1)))
	_, err := s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA, 2: tokenB}, yes)
	must(t, err)
	if got := left(t, filepath.Dir(a1)); !slices.Equal(got, []string{"a1", "a2"}) {
		t.Error(got)
	}
}

// Cut short anywhere, a removal leaves an attempt that can execute nothing, and goes on.
func TestRemoveRunCutShort(t *testing.T) {
	s, a1 := opened(t)
	runDir := filepath.Dir(a1)
	put(t, a1+"/ctl/pinned.sha256", "p")
	ctx, stop := context.WithCancel(t.Context())
	_, err := s.RemoveRun(ctx, runA, map[int]string{1: tokenA}, func() (bool, error) { stop(); return true, nil })
	wantFault(t, err, fault.Canceled, "canceled")
	if b, err := os.ReadFile(a1); err != nil || string(b) != string(GoneFile(tokenA)) {
		t.Errorf("%s, %v", b, err)
	}
	rest := left(t, runDir)
	if !slices.ContainsFunc(rest, func(s string) bool { return strings.HasSuffix(s, "/ctl/claim") }) || slices.ContainsFunc(rest,
		func(s string) bool { return strings.Contains(s, "pinned") }) {
		t.Error(rest)
	}
	_, err = s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, yes)
	must(t, err)
	if got := left(t, runDir); !slices.Equal(got, []string{"a1"}) {
		t.Error(got)
	}
}

// What the ledger does not know all of stays as it is, and so does a run that somebody took up again.
func TestRemoveRefuses(t *testing.T) {
	s, a1 := worked(t)
	runDir := filepath.Dir(a1)
	before := left(t, s.cfg.RunsDir)[1:]
	for name, c := range map[string]struct {
		tokens map[int]string
		still  func() (bool, error)
		code   string
	}{
		"foreign token":   {map[int]string{1: tokenB}, yes, "workspace_ahead_of_ledger"},
		"unknown attempt": {map[int]string{2: tokenA}, yes, "workspace_ahead_of_ledger"},
		"no attempt":      {nil, yes, "workspace_ahead_of_ledger"},
		"taken up":        {map[int]string{1: tokenA}, func() (bool, error) { return false, nil }, ""},
		"nobody knows":    {map[int]string{1: tokenA}, func() (bool, error) { return false, os.ErrClosed }, "internal"},
	} {
		for _, f := range []func() (int64, error){
			func() (int64, error) { return s.RemoveRun(t.Context(), runA, c.tokens, c.still) },
		} {
			n, err := f()
			if n != 0 || (err == nil) != (c.code == "") || err != nil && fault.CodeOf(err) != c.code {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if got := left(t, s.cfg.RunsDir)[1:]; !slices.Equal(got, before) {
			t.Fatalf("%s: %v", name, got)
		}
	}
	must(t, os.Rename(runDir, runDir+"x"))
	must(t, os.Symlink(runDir+"x", runDir))
	_, err := s.RemoveRun(t.Context(), runA, map[int]string{1: tokenA}, yes)
	wantFault(t, err, fault.Conflict, "workspace_foreign_entry")
	_, err = s.RemoveRun(t.Context(), "../x", nil, yes)
	wantFault(t, err, fault.Validation, "run_id")
}

// While a workspace is being removed nobody stages it: the inputs of a new attempt come after.
func TestRemoveKeepsStagingOut(t *testing.T) {
	s, a1 := worked(t)
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
