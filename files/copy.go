package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
)

const (
	smallChunk = 32 << 10 // the first chunk; most files are not larger
	chunk      = 1 << 20  // bytes copied between two checks of the context
	chunks     = 4        // chunks of a copy that are read and written, and not yet hashed
)

// CopyHash copies all of src to dst and returns the SHA-256 of the bytes in hex, and their number. about is the
// expected number, for the buffer; 0: unknown.
func CopyHash(ctx context.Context, dst io.Writer, src io.Reader, about int64) (sum string, size int64, err error) {
	h := sha256.New()
	size, err = CopyInto(ctx, h, dst, src, about)
	if err != nil {
		return "", size, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// CopyInto is CopyHash with the caller's hash. A large file is hashed while the next bytes are read and written. The
// hash has all copied bytes, also after an error, and size is their number.
func CopyInto(ctx context.Context, h hash.Hash, dst io.Writer, src io.Reader, about int64) (size int64, err error) {
	if about == 0 {
		about = smallChunk
	}
	buf := make([]byte, min(about, smallChunk-1)+1)
	for {
		n, err := copyOne(ctx, h, dst, src, buf)
		size += int64(n)
		switch {
		case err == io.EOF:
			return size, nil
		case err != nil:
			return size, err
		case n == len(buf):
			more, err := copyLarge(ctx, h, dst, src)
			return size + more, err
		}
	}
}

// copyOne reads, writes and hashes one chunk.
func copyOne(ctx context.Context, h hash.Hash, dst io.Writer, src io.Reader, buf []byte) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	n, err := src.Read(buf)
	if _, werr := dst.Write(buf[:n]); werr != nil {
		return 0, werr
	}
	h.Write(buf[:n]) // never fails
	Count(ctx, n)
	return n, err
}

// copyLarge hashes in a separate goroutine.
func copyLarge(ctx context.Context, h hash.Hash, dst io.Writer, src io.Reader) (size int64, err error) {
	free, full, hashed := make(chan []byte, chunks), make(chan []byte, chunks), make(chan struct{})
	for range chunks {
		free <- nil
	}
	go func() {
		defer close(hashed)
		for b := range full {
			h.Write(b)
			free <- b[:cap(b)]
		}
	}()
	defer func() {
		close(full)
		<-hashed
	}()
	for {
		if err := ctx.Err(); err != nil {
			return size, err
		}
		buf := <-free
		if buf == nil {
			buf = make([]byte, chunk)
		}
		n, err := readMost(src, buf)
		if _, werr := dst.Write(buf[:n]); werr != nil {
			return size, werr
		}
		size += int64(n)
		Count(ctx, n)
		full <- buf[:n]
		switch {
		case err == io.EOF:
			return size, nil
		case err != nil:
			return size, err
		}
	}
}

// readMost reads at least half of b. Unlike io.ReadAtLeast it returns an error that comes with bytes.
func readMost(src io.Reader, b []byte) (n int, err error) {
	for n < len(b)/2 && err == nil {
		var more int
		more, err = src.Read(b[n:])
		n += more
	}
	return n, err
}
