package files

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// Opening with openat2 and step by step agree, and neither leads out of the folder.
func TestOpenBeneath(t *testing.T) {
	base := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(base, "d/e"), 0o700), os.WriteFile(filepath.Join(base, "d/e/f"), []byte("x"), 0o600),
		os.Symlink("d", filepath.Join(base, "dl")), os.Symlink("f", filepath.Join(base, "d/e/fl")), os.Symlink("/", filepath.Join(base, "root")),
		os.Symlink("gone", filepath.Join(base, "dangling")))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for rel, want := range map[string]error{
		"d/e/f": nil, "d": nil, ".": nil, "dl/e/f": unix.ELOOP, "dl": unix.ELOOP, "d/e/fl": unix.ELOOP, "root/etc/passwd": unix.ELOOP,
		"dangling": unix.ELOOP, "none": unix.ENOENT, "none/x": unix.ENOENT, "d/e/f/x": unix.ENOTDIR, "../x": unix.EXDEV,
		"/etc/passwd": unix.EXDEV,
	} {
		for name, open := range map[string]func(int, string, int, uint32) (int, error){"openat2": openat2, "walk": walk} {
			fd, err := open(int(f.Fd()), rel, unix.O_RDONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				unix.Close(fd)
			}
			if name == "openat2" && (err == unix.ENOSYS || err == unix.EPERM) {
				t.Log("this kernel has no openat2: only the step-by-step way is checked")
				continue
			}
			if err != want {
				t.Errorf("%s %s: %v, want %v", name, rel, err, want)
			}
			if fd, err := open(int(f.Fd()), rel, unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
				unix.Close(fd)
			} else if want == unix.ELOOP && err != unix.ELOOP {
				t.Errorf("%s %s as a folder: %v, want ELOOP", name, rel, err)
			}
		}
	}
}

func TestCopyHash(t *testing.T) {
	for _, size := range []int{0, 1, 100, smallChunk - 1, smallChunk, smallChunk + 1, chunk, 3*chunk + 5} {
		data := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		want := sha256.Sum256(data)
		for _, about := range []int64{0, 1, int64(size), 10 * chunk} {
			for _, src := range []io.Reader{bytes.NewReader(data), iotest.DataErrReader(bytes.NewReader(data)),
				iotest.HalfReader(bytes.NewReader(data))} {
				var dst bytes.Buffer
				sum, n, err := CopyHash(t.Context(), &dst, src, about)
				if err != nil || n != int64(size) || sum != hex.EncodeToString(want[:]) || !bytes.Equal(dst.Bytes(), data) {
					t.Errorf("%d bytes, expecting %d: %d copied, %v", size, about, n, err)
				}
			}
		}
	}
}

// An error of either end is returned, and the context is checked between two chunks.
func TestCopyHashFails(t *testing.T) {
	down := errors.New("down")
	if sum, _, err := CopyHash(t.Context(), io.Discard, io.MultiReader(strings.NewReader("x"), iotest.ErrReader(down)), 0); err != down ||
		sum != "" {
		t.Errorf("%q %v", sum, err)
	}
	if sum, _, err := CopyHash(t.Context(), failing{down}, strings.NewReader("x"), 0); err != down || sum != "" {
		t.Errorf("%q %v", sum, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sum, n, err := CopyHash(ctx, io.Discard, strings.NewReader("x"), 0); err != context.Canceled || n != 0 || sum != "" {
		t.Errorf("%q %d %v", sum, n, err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
