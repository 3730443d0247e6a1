package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math"
	"os"
	"sync"

	"slurmgate/fault"
	"slurmgate/files"
)

// Bytes in place can change at any time, also while they are read, and without a change of the file's times. So all
// that is read of them is compared before it is passed on: block by block, with the checksums that the blocks had
// when all of them together had the checksum of the artifact. Those are kept in memory, by that checksum; they stay
// true whatever happens to the file.

const (
	blockBytes = 1 << 20
	mostBlocks = 1 << 19 // whose checksums are kept, 16 MiB
)

// blocks are the checksums of the blocks of some bytes.
type blocks struct {
	size int64 // of all bytes
	sums [][sha256.Size]byte
}

// blockSums are blocks by the checksum of all bytes.
type blockSums struct {
	mu    sync.Mutex
	known map[string]blocks
	count int
}

func (b *blockSums) find(sum string) (blocks, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found, ok := b.known[sum]
	return found, ok
}

func (b *blockSums) keep(sum string, of blocks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || b.count+len(of.sums) > mostBlocks {
		b.known, b.count = map[string]blocks{}, 0
	}
	b.known[sum] = of
	b.count += len(of.sums)
}

// Verified are bytes in place of which nothing is given that is not as it was registered: a block that differs is a
// Validation fault with code input_mismatch. It is safe for concurrent use, but for Read and Seek.
type Verified struct {
	*io.SectionReader
	f *os.File
}

// Close closes the file.
func (v *Verified) Close() error { return v.f.Close() }

// Verified makes the bytes of an open file, whose path is for messages, readable as those with a checksum. The first
// time it reads all of them. It closes the file where it fails.
func (s *Store) Verified(ctx context.Context, f *os.File, path, sum string) (*Verified, error) {
	of, known := s.blocks.find(sum)
	size, err := int64(0), error(nil)
	if known {
		size, err = f.Seek(0, io.SeekEnd)
	} else if of, err = s.sumBlocks(ctx, f, path, sum); err == nil {
		size = of.size
	}
	if err == nil && size != of.size {
		err = OtherBytes(path)
	}
	if err != nil {
		f.Close()
		return nil, fsFault(path+" cannot be read", err)
	}
	return &Verified{io.NewSectionReader(&checkedBlocks{blocks: of, f: f, path: path, held: -1}, 0, size), f}, nil
}

// sumBlocks reads a file to its end, and keeps the checksums of its blocks if it has the checksum.
func (s *Store) sumBlocks(ctx context.Context, f *os.File, path, sum string) (of blocks, err error) {
	if info, err := f.Stat(); err == nil {
		files.Watcher(ctx).Expect(info.Size())
	}
	all, buf := sha256.New(), make([]byte, blockBytes)
	for r := io.NewSectionReader(f, 0, math.MaxInt64); err == nil; {
		var n int
		if n, err = io.ReadFull(r, buf); n > 0 {
			all.Write(buf[:n])
			of.sums, of.size = append(of.sums, sha256.Sum256(buf[:n])), of.size+int64(n)
			files.Count(ctx, n)
		}
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	switch {
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return of, err
	case hex.EncodeToString(all.Sum(nil)) != sum:
		return of, OtherBytes(path)
	}
	s.blocks.keep(sum, of)
	return of, nil
}

// OtherBytes returns the fault of a file whose bytes are not the registered ones, whatever its times.
func OtherBytes(path string) error {
	return fault.New(fault.Validation, "input_mismatch", path+" has other bytes than were registered").
		WithNext("register it again: the same content keeps its artifact, other content becomes a new one").
		WithSteps(fault.Do("artifact.import", "path", path, "in_place", true))
}

// checkedBlocks reads a file block by block and returns none that differs.
type checkedBlocks struct {
	blocks
	f    *os.File
	path string

	mu    sync.Mutex
	held  int64 // the number of the block in block; -1: none
	block []byte
}

// ReadAt implements io.ReaderAt.
func (c *checkedBlocks) ReadAt(p []byte, at int64) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n < len(p) && at < c.size {
		if err := c.load(at / blockBytes); err != nil {
			return n, err
		}
		more := copy(p[n:], c.block[at%blockBytes:])
		n, at = n+more, at+int64(more)
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// load reads a block and compares it.
func (c *checkedBlocks) load(i int64) error {
	if i == c.held {
		return nil
	}
	c.held = -1
	if c.block == nil {
		c.block = make([]byte, min(c.size, blockBytes))
	}
	c.block = c.block[:min(blockBytes, c.size-i*blockBytes)]
	switch _, err := c.f.ReadAt(c.block, i*blockBytes); {
	case err != nil && err != io.EOF:
		return fsFault(c.path+" cannot be read", err)
	case err != nil || sha256.Sum256(c.block) != c.sums[i]:
		return OtherBytes(c.path)
	}
	c.held = i
	return nil
}
