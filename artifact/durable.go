package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

const (
	chunkSize  = 1 << 20  // how much is copied or hashed between two checks of the context
	firstChunk = 32 << 10 // and of a file that may be small: most are
)

// dropStale removes temporary files that nobody has locked.
func (s *Store) dropStale() error {
	entries, err := fs.ReadDir(s.root.FS(), "tmp")
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := s.root.OpenFile("tmp/"+e.Name(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // gone, or not one of ours
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && e.Type().IsRegular() {
			err = s.root.Remove("tmp/" + e.Name())
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *Store) sync(folder string) error {
	d, err := s.root.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// copyHash copies all of src to dst and returns the SHA-256 in hex and the number of bytes.
func copyHash(ctx context.Context, dst io.Writer, src io.Reader) (string, int64, error) {
	h := sha256.New()
	var size int64
	first := int64(firstChunk)
	if l, ok := src.(*io.LimitedReader); ok {
		first = max(1, min(l.N, first))
	}
	buf := make([]byte, first)
	for {
		if err := ctx.Err(); err != nil {
			return "", 0, err
		}
		n, err := src.Read(buf)
		size += int64(n)
		h.Write(buf[:n])
		if _, werr := dst.Write(buf[:n]); werr != nil {
			return "", 0, werr
		}
		if n == len(buf) && n < chunkSize {
			buf = make([]byte, chunkSize)
		}
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), size, nil
		}
		if err != nil {
			return "", 0, err
		}
	}
}
