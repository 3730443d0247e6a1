package staging

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run/runtest"
)

// Staged inputs have the modes of files that only the job's user reads, whatever the umask.
func TestStageInputs(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	inputs := []plan.Input{o.add("bam", "in/a.bam"), o.add("ref", "in/ref/x/y.fa"), o.add("", "in/empty"), o.add("bam", "in/again.bam")}
	defer unix.Umask(unix.Umask(0)) // the gateway's umask must not matter
	for range 2 {
		must(t, s.StageInputs(t.Context(), runA, inputs, o.open))
	}
	want := []string{
		"drwx------ in", "-r-------- in/a.bam", "-r-------- in/again.bam", "-r-------- in/empty", "drwx------ in/ref",
		"drwx------ in/ref/x", "-r-------- in/ref/x/y.fa",
	}
	if diff := cmp.Diff(want, list(t, filepath.Join(dir, runA))); diff != "" {
		t.Errorf("the staged inputs differ (-want +got):\n%s", diff)
	}
}

// A correct file is kept: its inode does not change.
func TestStageInputsKeepsWhatIsThere(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	inputs := []plan.Input{o.add("bam", "in/a.bam")}
	inode := func() uint64 {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(dir, runA, "in/a.bam"), &st))
		return st.Ino
	}
	must(t, s.StageInputs(t.Context(), runA, inputs, o.open))
	before := inode()
	must(t, os.Chmod(filepath.Join(dir, runA, "in/a.bam"), 0o644))
	must(t, s.StageInputs(t.Context(), runA, inputs, o.open))
	if inode() != before {
		t.Error("a good file was replaced")
	}
	if got := list(t, filepath.Join(dir, runA, "in")); got[0] != "-r-------- a.bam" {
		t.Errorf("the inputs staged again are %q, want a.bam with the mode 0400", got)
	}
}

// StageInputs repairs whatever an earlier call or another program left, and changes nothing outside.
//
// proves ABI-19
func TestStageInputsResumes(t *testing.T) {
	type place struct{ in, runDir, outside string }
	cases := map[string]func(p place){
		"nothing":               func(p place) {},
		"an empty run folder":   func(p place) { must(t, os.MkdirAll(p.runDir, 0o755)) },
		"an empty in":           func(p place) { must(t, os.MkdirAll(p.in, 0o700)) },
		"a temp file":           func(p place) { put(t, p.runDir+"/.stage/abc", "ba") },
		"a stray folder":        func(p place) { put(t, p.in+"/stray/deep/er", "x") },
		"a symlinked folder":    func(p place) { put(t, p.in+"/k", ""); must(t, os.Symlink(p.outside, p.in+"/sub")) },
		"in is a symlink":       func(p place) { must(t, os.MkdirAll(p.runDir, 0o700)); must(t, os.Symlink(p.outside, p.in)) },
		"the temps are symlink": func(p place) { put(t, p.in+"/k", ""); must(t, os.Symlink(p.outside, p.runDir+"/.stage")) },
	}
	for name, arrange := range cases {
		t.Run(name, func(t *testing.T) {
			s, dir := newShared(t)
			o := newObjects(t)
			p := place{runDir: filepath.Join(dir, runA), in: filepath.Join(dir, runA, "in"), outside: t.TempDir()}
			put(t, p.outside+"/f", "bam")
			arrange(p)
			inputs := []plan.Input{o.add("bam", "in/a.bam"), o.add("ref", "in/sub/ref.fa")}
			soon(t, func() {
				must(t, s.StageInputs(t.Context(), runA, inputs, o.open))
			})
			want := []string{"drwx------ in", "-r-------- in/a.bam", "drwx------ in/sub", "-r-------- in/sub/ref.fa"}
			if diff := cmp.Diff(want, list(t, p.runDir)); diff != "" {
				t.Errorf("the resumed inputs differ (-want +got):\n%s", diff)
			}
			if got := content(t, p.in+"/a.bam") + content(t, p.in+"/sub/ref.fa"); got != "bamref" {
				t.Errorf("got %q", got)
			}
			if diff := cmp.Diff([]string{"-rw------- f"}, list(t, p.outside)); diff != "" || content(t, p.outside+"/f") != "bam" {
				t.Error("outside changed", diff)
			}
		})
	}
}

// A run folder that is a symlink is not followed.
func TestStageInputsSymlinkedRun(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	outside := t.TempDir()
	must(t, os.Symlink(outside, filepath.Join(dir, runA)))
	err := s.StageInputs(t.Context(), runA, []plan.Input{o.add("x", "in/x")}, o.open)
	wantFault(t, err, fault.Conflict, "workspace_foreign_entry")
	wantFault(t, s.OpenAttempt(t.Context(), runA, 1, tokenA), fault.Conflict, "workspace_foreign_entry")
	if got := list(t, outside); got != nil {
		t.Error("written outside:", got)
	}
}

// The context is checked between chunks: a cancel in the middle of a file leaves no part of it.
func TestStageInputsCancelledMidway(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	in := o.add(strings.Repeat("x", 3<<20), "in/big")
	ctx := &countdown{Context: t.Context(), left: 4}
	wantFault(t, s.StageInputs(ctx, runA, []plan.Input{in}, o.open), fault.Canceled, "canceled")
	if diff := cmp.Diff([]string{"drwx------ in"}, list(t, filepath.Join(dir, runA))); diff != "" {
		t.Errorf("the inputs after the cancel differ (-want +got):\n%s", diff)
	}
}

// countdown is a context that is cancelled at the left-th call of Err.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestStageInputsDiskFull(t *testing.T) {
	o := newObjects(t)
	small, big := o.add("bam", "in/a.bam"), o.add(strings.Repeat("x", 2<<20), "in/big")
	dir := runtest.SmallDisk(t, 1<<20)
	s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1"})
	must(t, err)
	for range 3 { // repeated: no files accumulate
		err = s.StageInputs(t.Context(), runA, []plan.Input{small, big}, o.open)
		wantFault(t, err, fault.Transport, "disk_full")
		if diff := cmp.Diff([]string{"drwx------ in", "-r-------- in/a.bam"}, list(t, filepath.Join(dir, runA))); diff != "" {
			t.Errorf("the inputs on a full disk differ (-want +got):\n%s", diff)
		}
	}
	must(t, s.StageInputs(t.Context(), runA, []plan.Input{small}, o.open))
}
