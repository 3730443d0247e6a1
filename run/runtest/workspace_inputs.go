package runtest

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Inputs are complete at their places, whether they are files of this host or come from another.
func inputs(t *testing.T, x *Files) {
	s := newSource(t)
	big := strings.Repeat("0123456789abcdef", 200_000)
	list := []plan.Input{s.add("bam", "in/a.bam"), s.add("ref", "in/ref/x/y.fa"), s.add("", "in/empty"), s.add("bam", "in/again.bam"),
		s.add(big, "in/big")}
	must(t, x.StageInputs(t.Context(), runID, list[:3], s.file))
	must(t, x.StageInputs(t.Context(), runID, list, s.reader))
	for path, want := range map[string]string{"in/a.bam": "bam", "in/ref/x/y.fa": "ref", "in/empty": "", "in/again.bam": "bam",
		"in/big": big} {
		x.has(t, path, want)
	}
	if dir := x.RunDir(runID); !strings.HasPrefix(dir, "/") || filepath.Base(dir) != runID {
		t.Errorf("the run's folder is %q", dir)
	}
}

// The last call counts: inputs that it does not name are gone, and damaged ones are right again.
func inputsAgain(t *testing.T, x *Files) {
	s := newSource(t)
	a, b := s.add("bam", "in/a.bam"), s.add("ref", "in/ref.fa")
	for range 2 {
		must(t, x.StageInputs(t.Context(), runID, []plan.Input{a, b}, s.file))
	}
	x.Leave(t, runID, "in/a.bam", Entry{File, "BAM"})
	must(t, patient{x.Again(t)}.StageInputs(t.Context(), runID, []plan.Input{a}, s.file))
	x.has(t, "in/a.bam", "bam")
	x.hasNot(t, "in/ref.fa")
}

// An input is a copy, never a link: later changes of the source do not reach it.
func inputsCopied(t *testing.T, x *Files) {
	s := newSource(t)
	in := s.add(strings.Repeat("good", 10_000), "in/a")
	for _, open := range []run.Opener{s.file, s.reader} {
		s.overwrite(in, strings.Repeat("good", 10_000))
		must(t, x.StageInputs(t.Context(), runID, []plan.Input{in}, open))
		s.overwrite(in, "bad")
		x.has(t, "in/a", strings.Repeat("good", 10_000))
		must(t, x.StageInputs(t.Context(), runID, nil, open))
		x.hasNot(t, "in/a")
	}
}

// Nothing of an input whose bytes are wrong, missing or cut short is left, and no path leads out of in/.
func inputsRefused(t *testing.T, x *Files) {
	s := newSource(t)
	good, damaged := s.add("bam", "in/a.bam"), s.add("bam2", "in/b.bam")
	at := func(dest string) plan.Input {
		return plan.Input{ChecksumSHA256: good.ChecksumSHA256, DestRelpath: dest}
	}
	cut := func(ctx context.Context, sum string) (io.ReadCloser, int64, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("ba"), failing{})), 4, nil
	}
	s.overwrite(damaged, "BAM2")
	for name, c := range map[string]struct {
		runID string
		list  []plan.Input
		open  run.Opener
		kind  fault.Kind
		code  string
	}{
		"wrong bytes": {runID, []plan.Input{good, damaged}, s.reader, fault.Validation, "input_checksum"},
		"wrong file":  {runID, []plan.Input{good, damaged}, s.file, fault.Validation, "input_checksum"},
		"no bytes": {runID, []plan.Input{{ChecksumSHA256: strings.Repeat("0", 64), DestRelpath: "in/c"}}, s.file, fault.NotFound,
			"artifact_bytes_missing"},
		"cut short":        {runID, []plan.Input{damaged}, cut, fault.Transport, "filesystem"},
		"dot dot":          {runID, []plan.Input{at("in/../x")}, s.file, fault.Validation, "PLAN-DEST-PATH"},
		"absolute":         {runID, []plan.Input{at("/etc/x")}, s.file, fault.Validation, "PLAN-DEST-PATH"},
		"beside in":        {runID, []plan.Input{at("a1/ctl/claim")}, s.file, fault.Validation, "PLAN-DEST-PATH"},
		"twice":            {runID, []plan.Input{good, good}, s.file, fault.Validation, "PLAN-DEST-DUPLICATE"},
		"file and folder":  {runID, []plan.Input{at("in/x"), at("in/x/y")}, s.file, fault.Validation, "PLAN-DEST-DUPLICATE"},
		"a run's id is no": {"../x", []plan.Input{good}, s.file, fault.Validation, "run_id"},
	} {
		step(t, name, func() {
			wantFault(t, x.StageInputs(t.Context(), c.runID, c.list, c.open), c.kind, c.code)
			x.hasNot(t, "in/b.bam")
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := x.StageInputs(ctx, runID, []plan.Input{good}, s.file); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after the caller gave up", err)
	}
}

// step names the case that failed first. The tests may run in a bubble, which has no subtests.
func step(t *testing.T, name string, f func()) {
	t.Helper()
	before := t.Failed()
	if f(); t.Failed() && !before {
		t.Errorf("in the case %q", name)
	}
}

// failing is a source that breaks.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection lost") }

// Whatever a crash or an unknown program left in in/, the result is the inputs, and nothing is written through a link.
func inputsResume(t *testing.T, x *Files) {
	s := newSource(t)
	list := []plan.Input{s.add("bam", "in/a.bam"), s.add("ref", "in/sub/ref.fa")}
	for name, left := range map[string]struct {
		path string
		e    Entry
	}{
		"one of two":           {"in/a.bam", Entry{File, "bam"}},
		"a short file":         {"in/a.bam", Entry{File, "ba"}},
		"wrong bytes":          {"in/a.bam", Entry{File, "BAM"}},
		"a stray file":         {"in/stray", Entry{File, "x"}},
		"a folder for a file":  {"in/a.bam", Entry{Kind: Folder}},
		"a file for a folder":  {"in/sub", Entry{File, "x"}},
		"a symlink for a file": {"in/a.bam", Entry{Kind: Symlink}},
		"a hard link":          {"in/a.bam", Entry{Kind: Hardlink}},
		"a pipe":               {"in/a.bam", Entry{Kind: Pipe}},
	} {
		step(t, name, func() {
			x.Leave(t, runID, left.path, left.e)
			must(t, patient{x.Again(t)}.StageInputs(t.Context(), runID, list, s.file))
			x.has(t, "in/a.bam", "bam")
			x.has(t, "in/sub/ref.fa", "ref")
			x.hasNot(t, "in/stray")
		})
	}
	big := s.add(strings.Repeat("x", 1<<20), "in/big")
	stopped := func(ctx context.Context, sum string) (io.ReadCloser, int64, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<19)), failing{})), 1 << 20, nil
	}
	if err := x.StageInputs(t.Context(), runID, []plan.Input{big}, stopped); err == nil {
		t.Error("staged from half a source")
	}
	must(t, patient{x.Again(t)}.StageInputs(t.Context(), runID, []plan.Input{big}, s.reader))
	x.has(t, "in/big", strings.Repeat("x", 1<<20))
}

// Many concurrent calls for one run all succeed.
func inputsAtOnce(t *testing.T, x *Files) {
	s := newSource(t)
	in := s.add(strings.Repeat("x", 1<<18), "in/x")
	together(20, func(int) {
		if err := x.StageInputs(t.Context(), runID, []plan.Input{in}, s.file); err != nil {
			t.Error(err)
		}
	})
	x.has(t, "in/x", strings.Repeat("x", 1<<18))
}

func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// patient repeats the call, as the engine does, while a data host has not noticed a new folder.
type patient struct{ run.Workspace }

func (p patient) StageInputs(ctx context.Context, runID string, list []plan.Input, open run.Opener) error {
	err := p.Workspace.StageInputs(ctx, runID, list, open)
	for left := 40; fault.CodeOf(err) == "data_host_stale" && left > 0; left-- {
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
		err = p.Workspace.StageInputs(ctx, runID, list, open)
	}
	return err
}

// StageInputs calls that of the workspace, repeatedly if necessary.
func (x *Files) StageInputs(ctx context.Context, runID string, list []plan.Input, open run.Opener) error {
	return patient{x.Workspace}.StageInputs(ctx, runID, list, open)
}
