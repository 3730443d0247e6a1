package sftp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/run/runtest"
)

const (
	runA   = "run_0X8Z4D1X467KV94K4TXG0D9BXT"
	tokenA = "0123456789abcdef0123456789abcdef"
	tokenB = "fedcba9876543210fedcba9876543210"
)

// shell runs scripts on this host, as the far side of package remote does.
type shell struct{}

func (shell) Run(ctx context.Context, c remote.Call) (remote.Output, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", c.Script, "sh"}, c.Args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "LC_ALL=C", "LANG=C"}
	cmd.Stdin = c.Stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if c.Sink != nil {
		cmd.Stdout = c.Sink
	}
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
	cut  *cut          // nil: the connection lasts
	hold *hold         // nil: answers come immediately
	sent *atomic.Int64 // bytes to the server; nil: not counted
}

// hold delays the answers to requests with this word until the wanted number of them has come on all channels: a client
// that sends them one after another gets no answer.
type hold struct {
	word string
	want int
	all  chan struct{} // closed when enough have come

	mu   sync.Mutex
	seen int
}

func newHold(word string, want int) *hold {
	return &hold{word: word, want: want, all: make(chan struct{})}
}

// watched is the connection to a server that counts or holds.
type watched struct {
	io.WriteCloser
	s    server
	held *sync.Map // ids of requests with held answers
}

func (w watched) Write(p []byte) (int, error) {
	if w.s.sent != nil {
		w.s.sent.Add(int64(len(p)))
	}
	if h := w.s.hold; h != nil && bytes.Contains(p, []byte(h.word)) {
		w.held.Store(binary.BigEndian.Uint32(p[5:]), true)
		h.mu.Lock()
		if h.seen++; h.seen == h.want {
			close(h.all)
		}
		h.mu.Unlock()
	}
	return w.WriteCloser.Write(p)
}

// answers forwards what the server sends.
func (w watched) answers(from io.Reader) io.Reader {
	if w.s.hold == nil {
		return from
	}
	out, to := io.Pipe()
	go func() {
		for {
			head := make([]byte, 4)
			if _, err := io.ReadFull(from, head); err != nil {
				to.CloseWithError(err)
				return
			}
			packet := make([]byte, binary.BigEndian.Uint32(head))
			if _, err := io.ReadFull(from, packet); err != nil {
				to.CloseWithError(err)
				return
			}
			deliver := func() { to.Write(append(head, packet...)) }
			if _, held := w.held.Load(binary.BigEndian.Uint32(packet[1:])); held {
				go func() {
					<-w.s.hold.all
					deliver()
				}()
			} else {
				deliver()
			}
		}
	}()
	return out
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
	w := watched{to, s, &sync.Map{}}
	c, err := sftp.NewClientPipe(w.answers(from), w, opts...)
	go func() { c.Wait(); cmd.Wait() }()
	return c, err
}

// More opens a channel as on another connection.
func (s server) More(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	return s.SFTP(ctx, opts...)
}

// poolOf returns a pool of a few connections to a server.
func poolOf(t *testing.T, d transfer.Dialer) *transfer.Pool {
	t.Helper()
	p, err := transfer.New(d, transfer.Config{Connections: 2})
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// farSide is a folder of the far side, which jobs, login node and SFTP server see under different names.
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
	if c.Pool == nil {
		c.Pool = poolOf(t, c.Data.(transfer.Dialer))
	}
	w, err := New(t.Context(), c)
	must(t, err)
	t.Cleanup(w.Close)
	return w
}

func (f *farSide) path(rel ...string) string {
	return filepath.Join(append([]string{f.dir}, rel...)...)
}

// suite returns what the conformance suite needs of the far side.
func (f *farSide) suite(t *testing.T) *runtest.Files {
	other := os.Geteuid() + 1
	x := &runtest.Files{Workspace: f.open(t, nil),
		Again:   func(t *testing.T) run.Workspace { return f.open(t, func(c *Config) { c.Marked = true }) },
		Foreign: func(t *testing.T) run.Workspace { return f.open(t, func(c *Config) { c.JobUID = &other }) }}
	return x.In(t, f.dir, f.secret)
}

func must(t testing.TB, err error) {
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
