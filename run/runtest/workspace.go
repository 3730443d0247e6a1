package runtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Entry is something that a job, a crash or a stranger leaves in a run's folder.
type Entry struct {
	Kind Entries
	Data string // of a file
}

// Entries are the kinds of entry.
type Entries string

// The kinds. Links lead to a file outside the workspace with the content "secret".
const (
	File     Entries = "file"
	Symlink  Entries = "symlink"
	Hardlink Entries = "hard link"
	Pipe     Entries = "pipe"
	Folder   Entries = "folder"
)

// Files is what the suite needs of a workspace. Paths are relative to a run's folder.
type Files struct {
	run.Workspace
	// Again is the same workspace in another process of the gateway.
	Again func(t *testing.T) run.Workspace
	// Foreign is the same workspace of a gateway whose jobs run as another user.
	Foreign func(t *testing.T) run.Workspace
	// Leave makes an entry and the folders above it. An entry of that name is replaced.
	Leave func(t *testing.T, runID, path string, e Entry)
	// Read is what a job reads there; false if there is no plain file.
	Read func(t *testing.T, runID, path string) (string, bool)
	// Claim does what a job does to get the claim, and returns what it reads back.
	Claim func(t *testing.T, runID string, n int, content string) string
}

// The run and the tokens of the suite.
const (
	runID  = "run_0X8Z4D1X467KV94K4TXG0D9BXT"
	token  = "0123456789abcdef0123456789abcdef"
	token2 = "fedcba9876543210fedcba9876543210"
)

// Workspace is the suite of [run.Workspace]. test runs one test, which open makes a workspace for.
func Workspace(t *testing.T, test func(t *testing.T, f func(*testing.T)), open func(t *testing.T) *Files) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, *Files)
	}{
		{"inputs", inputs}, {"inputs again", inputsAgain}, {"inputs are copies", inputsCopied}, {"a wrong input", inputsRefused},
		{"inputs after a crash", inputsResume}, {"inputs at once", inputsAtOnce},
		{"attempt", attempt}, {"attempt of another token", attemptForeign}, {"attempt at once", attemptAtOnce},
		{"control files whole", controlWhole}, {"control files refused", controlRefused}, {"read control", readControl},
		{"claim before the job", claimFirst}, {"claim after the job", claimSecond}, {"claim at once", claimAtOnce},
		{"claim of no attempt", claimMissing},
		{"output", output}, {"outputs refused", outputsRefused}, {"output of another user", outputForeign}, {"undeclared", undeclared},
		{"removal", removal}, {"removal refused", removalRefused}, {"removal keeps jobs out", removalKeepsOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			test(t, func(t *testing.T) { c.f(t, open(t)) })
		})
	}
}

// source has the bytes of inputs, in files of this host.
type source struct {
	t   *testing.T
	dir string
}

func newSource(t *testing.T) source { return source{t, t.TempDir()} }

// add stores an input and returns it for its place in the workspace.
func (s source) add(content, dest string) plan.Input {
	s.t.Helper()
	sum := sha256.Sum256([]byte(content))
	in := plan.Input{Role: "r", ChecksumSHA256: hex.EncodeToString(sum[:]), DestRelpath: dest}
	s.overwrite(in, content)
	return in
}

func (s source) overwrite(in plan.Input, content string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.dir, in.ChecksumSHA256), []byte(content), 0o600))
}

// file opens an input as a file of this host.
func (s source) file(_ context.Context, sum string) (io.ReadCloser, int64, error) {
	f, err := os.Open(filepath.Join(s.dir, sum))
	if err != nil {
		return nil, 0, fault.Wrap(fault.NotFound, "suite", "artifact_bytes_missing", "no such object", err)
	}
	st, err := f.Stat()
	must(s.t, err)
	return f, st.Size(), nil
}

// reader opens an input as a stream from somewhere else.
func (s source) reader(ctx context.Context, sum string) (io.ReadCloser, int64, error) {
	r, size, err := s.file(ctx, sum)
	if err != nil {
		return nil, 0, err
	}
	return struct{ io.ReadCloser }{r}, size, nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// has fails the test unless a job reads this content.
func (x *Files) has(t *testing.T, path, want string) {
	t.Helper()
	if got, ok := x.Read(t, runID, path); !ok || got != want {
		t.Errorf("%s: %.40q %v, want %.40q", path, got, ok, want)
	}
}

func (x *Files) hasNot(t *testing.T, path string) {
	t.Helper()
	if got, ok := x.Read(t, runID, path); ok {
		t.Errorf("%s is there: %.40q", path, got)
	}
}

func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Errorf("%v (%s, %s), want %s, %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

// opened opens attempt 1, with the folders that its job makes.
func (x *Files) opened(t *testing.T, files ...run.ControlFile) {
	t.Helper()
	must(t, x.OpenAttempt(t.Context(), runID, 1, token, files...))
}

// Inputs get to their places whole, whether they are files of this host or come from elsewhere.
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

// The last call counts: what it does not name is gone, and what went bad is right again.
func inputsAgain(t *testing.T, x *Files) {
	s := newSource(t)
	a, b := s.add("bam", "in/a.bam"), s.add("ref", "in/ref.fa")
	for range 2 {
		must(t, x.StageInputs(t.Context(), runID, []plan.Input{a, b}, s.file))
	}
	x.Leave(t, runID, "in/a.bam", Entry{File, "BAM"})
	must(t, x.Again(t).StageInputs(t.Context(), runID, []plan.Input{a}, s.file))
	x.has(t, "in/a.bam", "bam")
	x.hasNot(t, "in/ref.fa")
}

// An input is a copy, never a link: what happens to the source later does not reach it.
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

// What a crash or a stranger left in in/ ends as the inputs, and nothing is written through a link.
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
			must(t, x.Again(t).StageInputs(t.Context(), runID, list, s.file))
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
	must(t, x.Again(t).StageInputs(t.Context(), runID, []plan.Input{big}, s.reader))
	x.has(t, "in/big", strings.Repeat("x", 1<<20))
}

// Many calls for one run all succeed.
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

// An attempt is opened with its control files; opened again, it has the files of the last call.
func attempt(t *testing.T, x *Files) {
	for _, script := range []string{"one", "", strings.Repeat("two", 1000)} {
		must(t, x.Again(t).OpenAttempt(t.Context(), runID, 1, token, run.ControlFile{Name: run.ScriptFile, Data: []byte(script)},
			run.ControlFile{Name: run.PinnedFile, Data: []byte("p" + script)}))
		x.has(t, "a1/ctl/"+run.ScriptFile, script)
		x.has(t, "a1/ctl/"+run.PinnedFile, "p"+script)
		x.has(t, "a1/ctl/token", token+"\n")
	}
	must(t, x.OpenAttempt(t.Context(), runID, 2, token2))
	x.has(t, "a2/ctl/token", token2+"\n")
	wantFault(t, x.OpenAttempt(t.Context(), runID, 0, token), fault.Validation, "attempt_number")
	wantFault(t, x.OpenAttempt(t.Context(), runID, 3, "../../etc"), fault.Validation, "token")
	wantFault(t, x.OpenAttempt(t.Context(), "../x", 1, token), fault.Validation, "run_id")
}

// A folder that carries another token, or none, is left as it is.
func attemptForeign(t *testing.T, x *Files) {
	x.opened(t, run.ControlFile{Name: run.ScriptFile, Data: []byte("mine")})
	x.Leave(t, runID, "a2/ctl/exit", Entry{File, "x"})
	x.Leave(t, runID, "a3", Entry{File, token + "\n"})
	for n := 1; n <= 3; n++ {
		err := x.Again(t).OpenAttempt(t.Context(), runID, n, token2, run.ControlFile{Name: run.ScriptFile, Data: []byte("theirs")})
		wantFault(t, err, fault.Conflict, "workspace_ahead_of_ledger")
	}
	x.has(t, "a1/ctl/"+run.ScriptFile, "mine")
	x.hasNot(t, "a2/ctl/"+run.ScriptFile)
	x.has(t, "a3", token+"\n")
}

// Of callers with different tokens those with one of them get the attempt.
func attemptAtOnce(t *testing.T, x *Files) {
	const callers = 30
	var errs [callers]error
	token := func(i int) string { return fmt.Sprintf("%032x", i/3) } // three callers share each
	together(callers, func(i int) { errs[i] = x.OpenAttempt(t.Context(), runID, 1, token(i)) })
	winner, ok := x.Read(t, runID, "a1/ctl/token")
	if !ok {
		t.Fatal("nobody got the attempt")
	}
	for i, err := range errs {
		switch won := token(i)+"\n" == winner; {
		case err == nil && !won:
			t.Errorf("%s was told it has the attempt, the folder says %s", token(i), winner)
		case err != nil: // overtaken: asked again, the answer is definite
			if again := x.OpenAttempt(t.Context(), runID, 1, token(i)); won != (again == nil) || !won && !fault.Is(again, fault.Conflict) {
				t.Errorf("%v, then %v", err, again)
			}
		}
	}
}

// Whoever reads a control file while it is replaced sees the old one or the new one.
func controlWhole(t *testing.T, x *Files) {
	const size = 100_000
	x.opened(t, run.ControlFile{Name: run.ScriptFile, Data: bytes.Repeat([]byte("0"), size)})
	together(2, func(who int) {
		for i := range 20 {
			if who == 0 {
				if err := x.OpenAttempt(t.Context(), runID, 1, token, run.ControlFile{Name: run.ScriptFile,
					Data: bytes.Repeat([]byte{'0' + byte(i%10)}, size)}); err != nil {
					t.Error(err)
				}
				continue
			}
			got, err := x.ReadControl(t.Context(), runID, 1, run.ScriptFile, 2*size, false)
			if err != nil || len(got) != size || bytes.Count(got, got[:1]) != size {
				t.Errorf("%d bytes, %.5q…, %v", len(got), got, err)
			}
		}
	})
}

// The claim and the token are not for the gateway to write, and no name leads elsewhere.
func controlRefused(t *testing.T, x *Files) {
	for _, name := range []string{"", ".", "..", "a/b", "../x", ".hidden", "a\nb", run.ClaimFile, "token", strings.Repeat("x", 200)} {
		wantFault(t, x.OpenAttempt(t.Context(), runID, 1, token, run.ControlFile{Name: name}), fault.Validation, "control_name")
	}
	_, err := x.ReadControl(t.Context(), runID, 1, "../token", 10, false)
	wantFault(t, err, fault.Validation, "control_name")
}

func readControl(t *testing.T, x *Files) {
	x.opened(t)
	x.Leave(t, runID, "a1/ctl/stdout", Entry{File, "0123456789"})
	for _, c := range []struct {
		limit int64
		tail  bool
		want  string
	}{{100, false, "0123456789"}, {100, true, "0123456789"}, {4, false, "0123"}, {4, true, "6789"}, {0, false, ""}, {0, true, ""}} {
		got, err := x.ReadControl(t.Context(), runID, 1, "stdout", c.limit, c.tail)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
	x.Leave(t, runID, "a1/ctl/link", Entry{Kind: Symlink})
	x.Leave(t, runID, "a1/ctl/pipe", Entry{Kind: Pipe})
	x.Leave(t, runID, "a1/ctl/folder", Entry{Kind: Folder})
	for _, c := range []struct {
		n    int
		name string
		kind fault.Kind
		code string
	}{
		{1, "manifest", fault.NotFound, "control_missing"}, {7, "exit", fault.NotFound, "attempt_missing"},
		{1, "link", fault.Conflict, "workspace_foreign_entry"}, {1, "pipe", fault.Conflict, "workspace_foreign_entry"},
		{1, "folder", fault.Conflict, "workspace_foreign_entry"}, {0, "exit", fault.Validation, "attempt_number"},
	} {
		_, err := x.ReadControl(t.Context(), runID, c.n, c.name, 10, false)
		if fault.KindOf(err) != c.kind || fault.CodeOf(err) != c.code {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

const jobClaim = "slurmgate-claim 1 job=7 task=- restart=0 token=" + token + " node=n1\n"

// Once the gateway has the claim no job gets it, and the gateway gets it again after a crash.
func claimFirst(t *testing.T, x *Files) {
	x.opened(t)
	void := string(run.VoidClaim(token))
	for range 2 {
		if got, err := x.Again(t).TakeClaim(t.Context(), runID, 1, []byte(void)); err != nil || string(got) != void {
			t.Errorf("%q %v", got, err)
		}
		if got := x.Claim(t, runID, 1, jobClaim); got != void {
			t.Errorf("the job read %q", got)
		}
	}
	x.has(t, "a1/ctl/claim", void)
}

// Once a job has the claim the gateway does not get it: it reads the job's.
func claimSecond(t *testing.T, x *Files) {
	x.opened(t)
	if got := x.Claim(t, runID, 1, jobClaim); got != jobClaim {
		t.Fatalf("the job read %q", got)
	}
	for range 2 {
		if got, err := x.TakeClaim(t.Context(), runID, 1, run.VoidClaim(token)); err != nil || string(got) != jobClaim {
			t.Errorf("%q %v", got, err)
		}
	}
	x.has(t, "a1/ctl/claim", jobClaim)
}

// Of many takers, jobs and gateways, exactly one wins, and all read the same.
func claimAtOnce(t *testing.T, x *Files) {
	x.opened(t)
	const takers = 40
	var mine, got [takers]string
	together(takers, func(i int) {
		mine[i] = strings.Replace(jobClaim, "job=7", fmt.Sprint("job=", 100+i), 1)
		if i%2 == 0 {
			got[i] = x.Claim(t, runID, 1, mine[i])
			return
		}
		data, err := x.TakeClaim(t.Context(), runID, 1, []byte(mine[i]))
		if err != nil {
			t.Error(err)
		}
		got[i] = string(data)
	})
	won := 0
	for i := range takers {
		if got[i] == mine[i] {
			won++
		}
		if got[i] != got[0] {
			t.Errorf("taker %d read %q, taker 0 %q", i, got[i], got[0])
		}
	}
	if won != 1 {
		t.Errorf("%d takers won", won)
	}
	x.has(t, "a1/ctl/claim", got[0])
}

// There is no claim of an attempt that is not there, and an entry that is not a claim is no answer.
func claimMissing(t *testing.T, x *Files) {
	x.opened(t)
	_, err := x.TakeClaim(t.Context(), runID, 2, run.VoidClaim(token))
	wantFault(t, err, fault.NotFound, "attempt_missing")
	x.hasNot(t, "a2/ctl/claim")
	x.Leave(t, runID, "a1/ctl/claim", Entry{Kind: Symlink})
	_, err = x.TakeClaim(t.Context(), runID, 1, run.VoidClaim(token))
	wantFault(t, err, fault.Conflict, "workspace_foreign_entry")
}

// Output is read from its beginning, each time.
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
	for rel, code := range map[string]string{
		"out/none": run.OutputMissing, "out/none/deeper": run.OutputMissing, "out/file/x": run.OutputMissing,
		"out/symlink": run.OutputSymlink, "out/symlink/x": run.OutputSymlink, "out/hardlink": run.OutputHardlink,
		"out/pipe": run.OutputIrregular, "out/folder": run.OutputIrregular,
	} {
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

// A file that does not belong to the job's user is no output of the job.
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

// What the ledger does not know all of stays as it is, and so does a run that somebody took up again.
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

var errDown = fault.New(fault.Transport, "suite", "ledger_down", "the ledger does not answer")

// After a removal nothing of the attempt can be opened, claimed or read, and the next attempt has a workspace again.
func removalKeepsOut(t *testing.T, x *Files) {
	x.opened(t)
	_, err := x.RemoveRun(t.Context(), runID, map[int]string{1: token}, yes)
	must(t, err)
	wantFault(t, x.OpenAttempt(t.Context(), runID, 1, token), fault.Conflict, "workspace_ahead_of_ledger")
	_, err = x.TakeClaim(t.Context(), runID, 1, run.VoidClaim(token))
	wantFault(t, err, fault.NotFound, "attempt_missing")
	_, err = x.ReadControl(t.Context(), runID, 1, run.ExitFile, 100, false)
	wantFault(t, err, fault.NotFound, "attempt_missing")
	must(t, x.OpenAttempt(t.Context(), runID, 2, token2))
	x.has(t, "a2/ctl/token", token2+"\n")
}
