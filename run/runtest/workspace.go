package runtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Entry is a file or folder that a job, a crash or an unknown program leaves in a run's folder.
type Entry struct {
	Kind Entries
	Data string // content of a file
}

// Entries is a kind of entry.
type Entries string

// The kinds. Links point to a file outside the workspace with the content "secret".
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
	// HidesLinks: the number of names of a file is not visible. The job, which sees it, does not list such an output in
	// its manifest.
	HidesLinks bool
	// Again returns the same workspace in another process of the gateway.
	Again func(t *testing.T) run.Workspace
	// Foreign returns the same workspace of a gateway whose jobs run as another user.
	Foreign func(t *testing.T) run.Workspace
	// Leave creates an entry and the folders above it. It replaces an entry of that name.
	Leave func(t *testing.T, runID, path string, e Entry)
	// Read returns what a job reads at a path; false if there is no plain file.
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

// Workspace runs the suite of [run.Workspace]. test runs one test, for which open makes a workspace.
func Workspace(t *testing.T, test func(t *testing.T, f func(*testing.T)), open func(t *testing.T) *Files) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, *Files)
	}{
		{"inputs", inputs}, {"inputs again", inputsAgain}, {"inputs are copies", inputsCopied}, {"a wrong input", inputsRefused},
		{"inputs after a crash", inputsResume}, {"inputs at once", inputsAtOnce},
		{"attempt", attempt}, {"attempt of another token", attemptForeign}, {"attempt at once", attemptAtOnce},
		{"attempts together", attemptsTogether},
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
		return nil, 0, fault.Wrap(fault.NotFound, "artifact_bytes_missing", "no such object", err)
	}
	st, err := f.Stat()
	must(s.t, err)
	return f, st.Size(), nil
}

// reader opens an input as a stream from another host.
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
