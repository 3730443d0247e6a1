package sftp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/run"
	"slurmgate/run/runtest"
	"slurmgate/staging"
)

const (
	runA   = "run_0X8Z4D1X467KV94K4TXG0D9BXT"
	tokenA = "0123456789abcdef0123456789abcdef"
)

// shell runs scripts as the far side of package remote does, on this host.
type shell struct{}

func (shell) Run(ctx context.Context, c remote.Call) (remote.Output, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", c.Script, "sh"}, c.Args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "LC_ALL=C", "LANG=C"}
	cmd.Stdin = c.Stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		return remote.Output{}, err
	}
	if int64(stdout.Len()) > c.Limit {
		return remote.Output{}, errors.New("the script printed more than its limit")
	}
	return remote.Output{Stdout: stdout.Bytes(), Stderr: stderr.String(), Exit: cmd.ProcessState.ExitCode()}, nil
}

// server is OpenSSH's SFTP server on this host, without the connection.
type server struct {
	args []string
	cut  *cut // nil: the connection lasts
}

// cut ends the connection once: after the server has carried out the first request with this word in it, and before its answer arrives.
type cut struct {
	word  string
	state atomic.Int32 // 1: the request was sent, 2: the connection is cut
}

type cutWriter struct {
	io.WriteCloser
	cut *cut
}

func (w cutWriter) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.cut.word)) {
		w.cut.state.CompareAndSwap(0, 1)
	}
	return w.WriteCloser.Write(p)
}

type cutReader struct {
	io.Reader
	cut *cut
}

func (r cutReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.cut.state.CompareAndSwap(1, 2) {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func (s server) SFTP(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	cmd := exec.Command("/usr/lib/openssh/sftp-server", s.args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	from, to := io.Reader(out), in
	if s.cut != nil {
		from, to = cutReader{out, s.cut}, cutWriter{in, s.cut}
	}
	c, err := sftp.NewClientPipe(from, to, opts...)
	go func() { c.Wait(); cmd.Wait() }()
	return c, err
}

// farSide is a folder as the far side has it: jobs, login node and SFTP server know it under different names.
type farSide struct {
	dir    string // runs_dir here
	secret string // a file outside
	config Config
}

func newFar(t *testing.T, change func(*Config)) *farSide {
	t.Helper()
	base := t.TempDir()
	f := &farSide{dir: filepath.Join(base, "runs"), secret: filepath.Join(base, "secret")}
	must(t, os.Mkdir(f.dir, 0o700))
	must(t, os.WriteFile(f.secret, []byte("secret"), 0o600))
	must(t, os.Symlink("runs", filepath.Join(base, "login")))
	must(t, os.Symlink("runs", filepath.Join(base, "data")))
	f.config = Config{RunsDir: "/where/jobs/see/it", LoginRunsDir: filepath.Join(base, "login"), DataRunsDir: filepath.Join(base, "data"),
		GatewayID: "gw-1", Shell: shell{}, Data: server{}}
	if change != nil {
		change(&f.config)
	}
	return f
}

func (f *farSide) open(t *testing.T, change func(*Config)) *Workspace {
	t.Helper()
	c := f.config
	if change != nil {
		change(&c)
	}
	w, err := New(t.Context(), c)
	must(t, err)
	t.Cleanup(w.Close)
	return w
}

func (f *farSide) path(rel ...string) string {
	return filepath.Join(append([]string{f.dir}, rel...)...)
}

// suite is what the conformance suite needs of the far side.
func (f *farSide) suite(t *testing.T) *runtest.Files {
	other := os.Geteuid() + 1
	return &runtest.Files{Workspace: f.open(t, nil),
		Again:   func(t *testing.T) run.Workspace { return f.open(t, func(c *Config) { c.Marked = true }) },
		Foreign: func(t *testing.T) run.Workspace { return f.open(t, func(c *Config) { c.JobUID = &other }) },
		Leave: func(t *testing.T, runID, rel string, e runtest.Entry) {
			name := f.path(runID, rel)
			must(t, os.MkdirAll(filepath.Dir(name), 0o700))
			must(t, os.RemoveAll(name))
			must(t, map[runtest.Entries]func() error{
				runtest.File:     func() error { return os.WriteFile(name, []byte(e.Data), 0o600) },
				runtest.Symlink:  func() error { return os.Symlink(f.secret, name) },
				runtest.Hardlink: func() error { return os.Link(f.secret, name) },
				runtest.Pipe:     func() error { return unix.Mkfifo(name, 0o600) },
				runtest.Folder:   func() error { return os.Mkdir(name, 0o700) },
			}[e.Kind]())
			t.Cleanup(func() {
				if got := content(t, f.secret); got != "secret" {
					t.Errorf("a file outside was written: %q", got)
				}
			})
		},
		Read: func(t *testing.T, runID, rel string) (string, bool) {
			name := f.path(runID, rel)
			if st, err := os.Lstat(name); err != nil || !st.Mode().IsRegular() {
				return "", false
			}
			return content(t, name), true
		},
		Claim: func(t *testing.T, runID string, n int, mine string) string {
			ctl := f.path(runID, staging.AttemptName(n), "ctl")
			own := filepath.Join(ctl, ".claim."+strings.ToLower(rand.Text()))
			must(t, os.WriteFile(own, []byte(mine), 0o600))
			_ = os.Link(own, filepath.Join(ctl, run.ClaimFile)) // the content decides, whatever link says
			return content(t, filepath.Join(ctl, run.ClaimFile))
		}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func wantFault(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Fatalf("got %v (kind %s, code %s), want kind %s, code %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}
