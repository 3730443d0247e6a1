//go:build cluster

package transfer

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"
)

// openssh is OpenSSH's own SFTP server, a process for each connection, and a folder of this host.
type openssh struct {
	dir string

	mu    sync.Mutex
	in    bool // the direction that is cut
	after []int
	left  int // bytes until the next cut; negative: none
}

func newOpenSSH(t *testing.T) *openssh {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("SLURMGATE_TEST_DIR"), "transfer") // on the cluster's common filesystem
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &openssh{dir: dir, left: -1}
}

func (s *openssh) SFTP(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	return s.More(ctx, opts...)
}

func (s *openssh) More(_ context.Context, opts ...sftp.ClientOption) (*sftp.Client, error) {
	cmd := exec.Command("/usr/lib/openssh/sftp-server")
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
	end := sync.OnceFunc(func() {
		in.Close()
		out.Close()
		go cmd.Wait() // it ends with its input
	})
	return sftp.NewClientPipe(reader{s, out, end}, writer{s, in, end}, opts...)
}

// reader and writer are the two directions of a connection.
type reader struct {
	s   *openssh
	r   io.Reader
	end func()
}

type writer struct {
	s   *openssh
	w   io.Writer
	end func()
}

func (r reader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	n, cut := r.s.allow(false, n)
	if cut {
		r.end()
		return n, errCut
	}
	return n, err
}

func (w writer) Write(b []byte) (int, error) {
	n, cut := w.s.allow(true, len(b))
	n, err := w.w.Write(b[:n])
	if cut {
		w.end()
		return n, errCut
	}
	return n, err
}

func (w writer) Close() error {
	w.end()
	return nil
}

// allow gives how many of n bytes pass before the next cut.
func (s *openssh) allow(in bool, n int) (int, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left < 0 || in != s.in {
		return n, false
	}
	if n < s.left {
		s.left -= n
		return n, false
	}
	n, s.left = s.left, -1
	if len(s.after) > 0 {
		s.left, s.after = s.after[0], s.after[1:]
	}
	return n, true
}

func (s *openssh) content(name string) ([]byte, bool) {
	b, err := os.ReadFile(name)
	return b, err == nil
}

func (s *openssh) names() (out []string) {
	entries, _ := os.ReadDir(s.dir) // none when it is gone, which the caller sees
	for _, e := range entries {
		out = append(out, filepath.Join(s.dir, e.Name()))
	}
	return out
}

func (s *openssh) cut(rng *rand.Rand, after ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in, s.after, s.left = rng.IntN(2) == 0, after, -1
	if len(after) > 0 {
		s.left, s.after = after[0], after[1:]
	}
}

func (s *openssh) mend() {}

// proves SITE-05
func TestClusterManyCuts(t *testing.T) {
	for seed := range uint64(60) {
		s := newOpenSSH(t)
		if err := os.WriteFile(filepath.Join(s.dir, "f"), []byte("what was there"), 0o600); err != nil {
			t.Fatal(err)
		}
		manyCuts(t, s, s.dir, rand.New(rand.NewPCG(seed, 16)), seed)
	}
}

// With the sizes of the product: several connections, a mode without write permission, a file that is replaced, and nothing left over.
func TestClusterLargeFile(t *testing.T) {
	s := newOpenSSH(t)
	p := newPool(s, Config{Connections: 4}, tuned)
	t.Cleanup(p.Close)
	data := bytes.Repeat(randomBytes(1, 1<<20), 80)
	f := File{Path: filepath.Join(s.dir, "f"), Size: int64(len(data)), SHA256: sumOf(data), Mode: 0o400}
	for range 2 {
		if _, err := p.Put(t.Context(), f, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(f.Path)
	if err != nil || st.Mode().Perm() != 0o400 || st.Size() != f.Size || len(s.names()) != 1 {
		t.Errorf("%v, %v, files %s", st, err, strings.Join(s.names(), " "))
	}
	var out bytes.Buffer
	if _, err := p.Get(t.Context(), f, 0, nil, &out); err != nil || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
}

// A pipe is refused before it is opened, which would hang the server.
func TestClusterPipe(t *testing.T) {
	s := newOpenSSH(t)
	name := filepath.Join(s.dir, "f")
	if out, err := exec.Command("mkfifo", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := newPool(s, Config{Connections: 1, Stall: 5 * time.Second}, tuned)
	t.Cleanup(p.Close)
	if _, err := p.Get(t.Context(), File{Path: name, Size: 3}, 0, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Error(err)
	}
}
