package runtest

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// An output is read from its beginning, each time.
func output(t *testing.T, x *Files) {
	x.opened(t)
	x.Leave(t, runID, "a1/out/deep/er/x", Entry{File, "result"})
	for range 2 {
		r, size, err := x.OpenOutput(t.Context(), runID, 1, "out/deep/er/x")
		must(t, err)
		got, err := io.ReadAll(r)
		if err != nil || string(got) != "result" || size != 6 || r.Close() != nil {
			t.Errorf("%q, %d, %v", got, size, err)
		}
	}
}

// Only a plain file of the job's own is an output, and no path leads out of out/.
func outputsRefused(t *testing.T, x *Files) {
	x.opened(t)
	x.Leave(t, runID, "a1/out/file", Entry{File, "x"})
	x.Leave(t, runID, "a1/out/symlink", Entry{Kind: Symlink})
	x.Leave(t, runID, "a1/out/hardlink", Entry{Kind: Hardlink})
	x.Leave(t, runID, "a1/out/pipe", Entry{Kind: Pipe})
	x.Leave(t, runID, "a1/out/folder", Entry{Kind: Folder})
	refused := map[string]string{
		"out/none": run.OutputMissing, "out/none/deeper": run.OutputMissing, "out/file/x": run.OutputMissing,
		"out/symlink": run.OutputSymlink, "out/symlink/x": run.OutputSymlink, "out/hardlink": run.OutputHardlink,
		"out/pipe": run.OutputIrregular, "out/folder": run.OutputIrregular,
	}
	if x.HidesLinks {
		delete(refused, "out/hardlink")
	}
	for rel, code := range refused {
		r, _, err := x.OpenOutput(t.Context(), runID, 1, rel)
		wantFault(t, err, fault.Tool, code)
		if r != nil || err != nil && !strings.Contains(err.Error(), rel) {
			t.Errorf("%s: %v %v", rel, r, err)
		}
	}
	for _, rel := range []string{"", "out", "out/../ctl/token", "/etc/passwd", "ctl/token", "out/./x", "out//x"} {
		_, _, err := x.OpenOutput(t.Context(), runID, 1, rel)
		wantFault(t, err, fault.Validation, "PLAN-SRC-PATH")
	}
}

// A file that another user than the job's owns is not an output of the job.
func outputForeign(t *testing.T, x *Files) {
	x.opened(t)
	x.Leave(t, runID, "a1/out/x", Entry{File, "x"})
	_, _, err := x.Foreign(t).OpenOutput(t.Context(), runID, 1, "out/x")
	wantFault(t, err, fault.Tool, run.OutputOwner)
}

// Undeclared files are listed up to a limit, whatever they are.
func undeclared(t *testing.T, x *Files) {
	x.opened(t)
	list := func(limit int, declared ...string) []string {
		t.Helper()
		got, err := x.Undeclared(t.Context(), runID, 1, declared, limit)
		must(t, err)
		return got
	}
	if got := list(10); len(got) != 0 {
		t.Error(got)
	}
	for _, path := range []string{"out/a", "out/b/c", "out/b/d"} {
		x.Leave(t, runID, "a1/"+path, Entry{File, "x"})
	}
	x.Leave(t, runID, "a1/out/link", Entry{Kind: Symlink})
	if got := list(10, "out/a", "out/b/d", "out/none"); !slices.Equal(got, []string{"out/b/c", "out/link"}) {
		t.Error(got)
	}
	if got := list(2); len(got) != 2 {
		t.Error(got)
	}
	_, err := x.Undeclared(t.Context(), runID, 2, nil, 10)
	wantFault(t, err, fault.NotFound, "attempt_missing")
}

func yes() (bool, error) { return true, nil }

// A removed run leaves a file in the place of each attempt's folder, and a second removal finds nothing to do.
func removal(t *testing.T, x *Files) {
	s := newSource(t)
	must(t, x.StageInputs(t.Context(), runID, []plan.Input{s.add("12345", "in/f")}, s.file))
	x.opened(t, run.ControlFile{Name: run.ScriptFile, Data: []byte("12345")})
	x.Leave(t, runID, "a1/out/deep/result", Entry{File, "12345"})
	if n, err := x.RunSize(t.Context(), runID); err != nil || n < 15 || n > 500 {
		t.Errorf("%d bytes, %v", n, err)
	}
	eachFile(t, x)
	tokens := map[int]string{1: token, 2: token2} // the second was never opened
	if n, err := x.RemoveRun(t.Context(), runID, tokens, yes); err != nil || n < 15 || n > 500 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := x.Again(t).RemoveRun(t.Context(), runID, tokens, yes); err != nil || n != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	for n, token := range tokens {
		x.has(t, fmt.Sprintf("a%d", n), "slurmgate-removed 1 token="+token+"\n")
	}
	x.hasNot(t, "in/f")
	if n, err := x.RunSize(t.Context(), "run_0X8Z4D1X467KV94K4TXG0D9BXX"); err != nil || n != 0 {
		t.Errorf("a run that is not there has %d bytes, %v", n, err)
	}
}

// A run with attempts that the ledger does not know is left unchanged, and so is a run that was taken up again.
func removalRefused(t *testing.T, x *Files) {
	x.opened(t, run.ControlFile{Name: run.ScriptFile, Data: []byte("script")})
	for name, c := range map[string]struct {
		tokens map[int]string
		still  func() (bool, error)
		code   string
	}{
		"another token":    {map[int]string{1: token2}, yes, "workspace_ahead_of_ledger"},
		"unknown attempt":  {map[int]string{2: token}, yes, "workspace_ahead_of_ledger"},
		"no attempt":       {nil, yes, "workspace_ahead_of_ledger"},
		"taken up":         {map[int]string{1: token}, func() (bool, error) { return false, nil }, ""},
		"nobody can say":   {map[int]string{1: token}, func() (bool, error) { return false, errDown }, "ledger_down"},
		"a run's id is no": {nil, yes, "run_id"},
	} {
		id := runID
		if c.code == "run_id" {
			id = "../x"
		}
		if n, err := x.RemoveRun(t.Context(), id, c.tokens, c.still); n != 0 || (err == nil) != (c.code == "") || fault.CodeOf(err) != c.code &&
			err != nil {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		x.has(t, "a1/ctl/"+run.ScriptFile, "script")
	}
}

var errDown = fault.New(fault.Transport, "ledger_down", "the ledger does not answer")

// After a removal nothing of the attempt can be opened, claimed or read, and the next attempt has a workspace again.
func removalKeepsOut(t *testing.T, x *Files) {
	x.opened(t)
	_, err := x.RemoveRun(t.Context(), runID, map[int]string{1: token}, yes)
	must(t, err)
	wantFault(t, x.OpenAttempt(t.Context(), runID, 1, token), fault.Conflict, "workspace_ahead_of_ledger")
	_, err = x.TakeClaim(t.Context(), runID, 1, run.VoidClaim(token))
	wantFault(t, err, fault.NotFound, "attempt_missing")
	_, err = run.ReadControl(t.Context(), x, runID, 1, run.ExitFile, 100, false)
	wantFault(t, err, fault.NotFound, "attempt_missing")
	must(t, x.OpenAttempt(t.Context(), runID, 2, token2))
	x.has(t, "a2/ctl/token", token2+"\n")
}

// eachFile checks that EachFile visits every regular file, and nothing else that a job left, until the caller stops it.
func eachFile(t *testing.T, x *Files) {
	for path, kind := range map[string]Entries{"link": Symlink, "pipe": Pipe} {
		x.Leave(t, runID, "a1/out/"+path, Entry{Kind: kind})
	}
	count := func(more bool) (seen int) {
		must(t, x.EachFile(t.Context(), runID, func(open func() (io.ReadCloser, error)) (bool, error) {
			f, err := open()
			must(t, err)
			data, err := io.ReadAll(f)
			must(t, errors.Join(err, f.Close()))
			if more || string(data) == "12345" {
				seen++
			}
			return more || string(data) != "12345", nil
		}))
		return seen
	}
	if all, first := count(true), count(false); all < 3 || all > 6 || first != 1 {
		t.Errorf("%d files, among them an input, a script and an output; stopped after %d", all, first)
	}
	none := errors.New("a file of no run")
	if err := x.EachFile(t.Context(), "run_0X8Z4D1X467KV94K4TXG0D9BXX", func(func() (io.ReadCloser, error)) (bool, error) {
		return false, none
	}); err != nil {
		t.Error(err)
	}
}
