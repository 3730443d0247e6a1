package oci

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// zstdWindow bounds the memory that a layer compressed with zstd may request: that of zstd --long=27.
const zstdWindow = 128 << 20

// archive returns a reader of a layer's archive: uncompressed, or compressed with gzip or zstd, as its first bytes
// show.
func archive(r io.Reader) (io.Reader, func(), error) {
	b := bufio.NewReaderSize(r, 256<<10)
	head, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, func() {}, err
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderMaxMemory(zstdWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return b, func() {}, nil
}

// bounded reads an uncompressed layer and enforces its limit.
type bounded struct {
	io.Reader
	ctx  context.Context
	left *int64
	most int64
}

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, tooLarge(fmt.Sprintf("the image has more than %d MiB when it is unpacked", b.most>>20))
	}
	return n, err
}

// A visit is called for an entry of a layer's archive, the index-th.
type visit func(h *tar.Header, index int, body io.Reader) error

// entries visits every entry of a layer's archive and returns the SHA-256 of the uncompressed archive, 64 hex. left is
// how many of most uncompressed bytes are still allowed.
func entries(ctx context.Context, path string, left *int64, most int64, each visit) (string, error) {
	f, err := open(path, unix.O_RDONLY)
	if err != nil {
		return "", cacheFault(err)
	}
	defer f.Close()
	z, done, err := archive(f)
	if err != nil {
		return "", unreadable(err)
	}
	defer done()
	sum := sha256.New()
	all := io.TeeReader(bounded{z, ctx, left, most}, sum)
	t := tar.NewReader(all)
	for index := 0; ; index++ {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = each(h, index, t)
		}
		if err != nil {
			return "", unreadable(err)
		}
	}
	if _, err := io.Copy(io.Discard, all); err != nil { // the bytes after the archive's end are part of its digest
		return "", unreadable(err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// unreadable converts an error of reading a layer to a fault.
func unreadable(err error) error {
	var own *fault.Error
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Canceled, "", "the caller gave up while the image was built", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "", "building the image took too long", err)
	}
	return odd("a layer cannot be read: "+fault.Clip(err.Error()), "")
}

// flatten reads the layers, lowest first, into a tree.
func (p *Puller) flatten(ctx context.Context, r *Resolved, layers []string) (*tree, error) {
	limits := p.limits()
	t, left := newTree(limits), limits.UnpackedBytes
	for i, path := range layers {
		t.layer = i
		p.report(fmt.Sprintf("reading layer %d of %d", i+1, len(layers)), 0, 0)
		sum, err := entries(ctx, path, &left, limits.UnpackedBytes, func(h *tar.Header, index int, _ io.Reader) error { return t.add(h, index) })
		if err != nil {
			return nil, err
		}
		if want := r.config.RootFS.DiffIDs[i]; want.Hex != sum {
			return nil, odd(fmt.Sprintf("layer %d of %d unpacks to sha256:%s, but the configuration says %s", i+1, len(layers), sum, want), "")
		}
	}
	t.layer = len(layers)
	return t, nil
}
