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
	chunk      = 1 << 20  // how much is copied between two checks of the context
)

// writeBoth hashes a large chunk while it is written.
func writeBoth(dst io.Writer, h hash.Hash, b []byte) error {
	if len(b) <= smallChunk || dst == io.Discard {
		h.Write(b) // never fails
		_, err := dst.Write(b)
		return err
	}
	hashed := make(chan struct{})
	go func() {
		h.Write(b)
		close(hashed)
	}()
	_, err := dst.Write(b)
	<-hashed
	return err
}

// CopyHash copies all of src to dst and returns the SHA-256 of the bytes in hex, and how many they were. about is how many to expect, for
// the buffer; 0: unknown.
func CopyHash(ctx context.Context, dst io.Writer, src io.Reader, about int64) (sum string, size int64, err error) {
	h := sha256.New()
	if about == 0 {
		about = smallChunk
	}
	buf := make([]byte, min(about, smallChunk-1)+1)
	for {
		if err := ctx.Err(); err != nil {
			return "", size, err
		}
		n, err := src.Read(buf)
		size += int64(n)
		if err := writeBoth(dst, h, buf[:n]); err != nil {
			return "", size, err
		}
		if n == len(buf) && n < chunk {
			buf = make([]byte, chunk)
		}
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), size, nil
		}
		if err != nil {
			return "", size, err
		}
	}
}
