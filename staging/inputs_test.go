package staging

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
)

func TestStageInputs(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	inputs := []plan.Input{o.add("bam", "in/a.bam"), o.add("ref", "in/ref/x/y.fa"), o.add("", "in/empty"), o.add("bam", "in/again.bam")}
	inputs = append(inputs, o.add(strings.Repeat("0123456789abcdef", 200_000), "in/big"))
	defer unix.Umask(unix.Umask(0)) // the gateway's umask must not matter
	for range 2 {
		must(t, s.StageInputs(t.Context(), runA, inputs, o.open))
	}
	want := []string{
		"drwx------ in", "-r-------- in/a.bam", "-r-------- in/again.bam", "-r-------- in/big", "-r-------- in/empty",
		"drwx------ in/ref", "drwx------ in/ref/x", "-r-------- in/ref/x/y.fa",
	}
	if diff := cmp.Diff(want, list(t, filepath.Join(dir, runA))); diff != "" {
		t.Error(diff)
	}
	if got := content(t, filepath.Join(dir, runA, "in/ref/x/y.fa")); got != "ref" {
		t.Errorf("got %q", got)
	}
	for _, in := range inputs { // a copy, never a link
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(dir, runA, in.DestRelpath), &st))
		if st.Nlink != 1 {
			t.Errorf("%s has %d names", in.DestRelpath, st.Nlink)
		}
	}
	if s.RunDir(runA) != filepath.Join(dir, runA) {
		t.Errorf("run dir %s", s.RunDir(runA))
	}
}

// A file that is right is kept: its inode does not change.
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
		t.Error(got)
	}
}

// What an earlier call, or anybody, left behind ends as the same bytes, and nothing outside is touched.
//
// proves ABI-19
func TestStageInputsResumes(t *testing.T) {
	type place struct{ in, runDir, outside string }
	cases := map[string]func(p place){
		"nothing":               func(p place) {},
		"an empty run folder":   func(p place) { must(t, os.MkdirAll(p.runDir, 0o755)) },
		"an empty in":           func(p place) { must(t, os.MkdirAll(p.in, 0o700)) },
		"a temp file":           func(p place) { put(t, p.runDir+"/.stage/abc", "ba") },
		"one of two":            func(p place) { put(t, p.in+"/a.bam", "bam") },
		"a short file":          func(p place) { put(t, p.in+"/a.bam", "ba") },
		"wrong bytes":           func(p place) { put(t, p.in+"/a.bam", "BAM") },
		"a stray file":          func(p place) { put(t, p.in+"/stray", "x") },
		"a stray folder":        func(p place) { put(t, p.in+"/stray/deep/er", "x") },
		"a folder for a file":   func(p place) { put(t, p.in+"/a.bam/x", "x") },
		"a file for a folder":   func(p place) { put(t, p.in+"/sub", "x") },
		"a symlink for a file":  func(p place) { put(t, p.in+"/k", ""); must(t, os.Symlink(p.outside+"/f", p.in+"/a.bam")) },
		"a symlinked folder":    func(p place) { put(t, p.in+"/k", ""); must(t, os.Symlink(p.outside, p.in+"/sub")) },
		"in is a symlink":       func(p place) { must(t, os.MkdirAll(p.runDir, 0o700)); must(t, os.Symlink(p.outside, p.in)) },
		"the temps are symlink": func(p place) { put(t, p.in+"/k", ""); must(t, os.Symlink(p.outside, p.runDir+"/.stage")) },
		"a pipe":                func(p place) { put(t, p.in+"/k", ""); must(t, unix.Mkfifo(p.in+"/a.bam", 0o600)) },
		"a hard link":           func(p place) { put(t, p.in+"/k", ""); must(t, os.Link(p.outside+"/f", p.in+"/a.bam")) },
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
				if err := s.StageInputs(t.Context(), runA, inputs, o.open); err != nil {
					t.Error(err)
				}
			})
			want := []string{"drwx------ in", "-r-------- in/a.bam", "drwx------ in/sub", "-r-------- in/sub/ref.fa"}
			if diff := cmp.Diff(want, list(t, p.runDir)); diff != "" {
				t.Error(diff)
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

func TestStageInputsRefuses(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	good := o.add("bam", "in/a.bam")
	damaged := o.add("bam2", "in/b.bam")
	put(t, filepath.Join(o.dir, damaged.ChecksumSHA256), "BAM2")
	missing := plan.Input{ChecksumSHA256: strings.Repeat("0", 64), DestRelpath: "in/c"}
	at := func(dest string) plan.Input {
		return plan.Input{ChecksumSHA256: good.ChecksumSHA256, DestRelpath: dest}
	}
	for name, c := range map[string]struct {
		runID  string
		inputs []plan.Input
		kind   fault.Kind
		code   string
	}{
		"damaged object": {runA, []plan.Input{good, damaged}, fault.Validation, "input_checksum"},
		"no object":      {runA, []plan.Input{missing}, fault.NotFound, "artifact_bytes_missing"},
		"dot dot":        {runA, []plan.Input{at("in/../x")}, fault.Validation, "PLAN-DEST-PATH"},
		"absolute":       {runA, []plan.Input{at("/etc/x")}, fault.Validation, "PLAN-DEST-PATH"},
		"twice":          {runA, []plan.Input{good, good}, fault.Validation, "PLAN-DEST-DUPLICATE"},
		"file, folder":   {runA, []plan.Input{at("in/x"), at("in/x/y")}, fault.Validation, "PLAN-DEST-DUPLICATE"},
		"run id":         {"../x", []plan.Input{good}, fault.Validation, "run_id"},
	} {
		t.Run(name, func(t *testing.T) {
			wantFault(t, s.StageInputs(t.Context(), c.runID, c.inputs, o.open), c.kind, c.code)
			for _, entry := range list(t, dir) {
				if strings.Contains(entry, ".stage") || strings.HasSuffix(entry, "b.bam") {
					t.Error("left behind:", entry)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantFault(t, s.StageInputs(ctx, runA, []plan.Input{good}, o.open), fault.Canceled, "canceled")
}

// A run folder that leads elsewhere is not followed.
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

// The context is looked at between chunks: a cancel in the middle of a file leaves nothing of it.
func TestStageInputsCancelledMidway(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	in := o.add(strings.Repeat("x", 3<<20), "in/big")
	ctx := &countdown{Context: t.Context(), left: 4}
	wantFault(t, s.StageInputs(ctx, runA, []plan.Input{in}, o.open), fault.Canceled, "canceled")
	if diff := cmp.Diff([]string{"drwx------ in"}, list(t, filepath.Join(dir, runA))); diff != "" {
		t.Error(diff)
	}
}

// countdown is cancelled at its left-th look.
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
	dir := smallDisk(t, 1<<20)
	s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1"})
	must(t, err)
	for range 3 { // and again: nothing piles up
		err = s.StageInputs(t.Context(), runA, []plan.Input{small, big}, o.open)
		wantFault(t, err, fault.Transport, "disk_full")
		if diff := cmp.Diff([]string{"drwx------ in", "-r-------- in/a.bam"}, list(t, filepath.Join(dir, runA))); diff != "" {
			t.Error(diff)
		}
	}
	must(t, s.StageInputs(t.Context(), runA, []plan.Input{small}, o.open))
}

// Many calls for one run stage it once, and all of them succeed.
func TestStageInputsConcurrently(t *testing.T) {
	s, dir := newShared(t)
	o := newObjects(t)
	in := o.add(strings.Repeat("x", 1<<20), "in/x")
	errs := make(chan error)
	for range 20 {
		go func() {
			errs <- s.StageInputs(t.Context(), runA, []plan.Input{in}, func(_ context.Context, sum string) (io.ReadCloser, int64, error) {
				f, err := os.Open(filepath.Join(o.dir, sum))
				return f, 1 << 20, err
			})
		}()
	}
	for range 20 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"drwx------ in", "-r-------- in/x"}, list(t, filepath.Join(dir, runA))); diff != "" {
		t.Error(diff)
	}
}
