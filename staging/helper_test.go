package staging

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

const (
	runA   = "run_0X8Z4D1X467KV94K4TXG0D9BXT"
	tokenA = "0123456789abcdef0123456789abcdef"
	tokenB = "fedcba9876543210fedcba9876543210"
)

func newShared(t *testing.T) (*Shared, string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	s, err := NewShared(Config{RunsDir: dir, GatewayID: "gw-1"})
	must(t, err)
	return s, dir
}

// opened returns a workspace with attempt 1 as a job makes it, and its folder.
func opened(t *testing.T) (*Shared, string) {
	t.Helper()
	s, dir := newShared(t)
	must(t, s.OpenAttempt(t.Context(), runA, 1, tokenA))
	a := filepath.Join(dir, runA, "a1")
	for _, d := range []string{"out", "meta", "tmp"} {
		must(t, os.Mkdir(filepath.Join(a, d), 0o700))
	}
	return s, a
}

// objects is a store of test bytes.
type objects struct {
	t     *testing.T
	dir   string
	opens int
}

func newObjects(t *testing.T) *objects { return &objects{t: t, dir: t.TempDir()} }

func (o *objects) add(content, dest string) plan.Input {
	o.t.Helper()
	sum := sha256.Sum256([]byte(content))
	name := hex.EncodeToString(sum[:])
	put(o.t, filepath.Join(o.dir, name), content)
	return plan.Input{Role: "r", ChecksumSHA256: name, DestRelpath: dest}
}

func (o *objects) open(_ context.Context, sum string) (io.ReadCloser, int64, error) {
	o.opens++
	f, err := os.Open(filepath.Join(o.dir, sum))
	if err != nil {
		return nil, 0, fault.Wrap(fault.NotFound, "artifact_bytes_missing", "", err)
	}
	st, err := f.Stat()
	must(o.t, err)
	return f, st.Size(), nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(content), 0o600))
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

// list returns every path below dir with kind and permissions.
func list(t *testing.T, dir string) []string {
	t.Helper()
	var got []string
	must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := os.Lstat(path)
		if err == nil {
			got = append(got, info.Mode().String()+" "+strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	return got
}

// soon fails the test when f waits: opening a pipe must not.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it blocks")
	}
}
