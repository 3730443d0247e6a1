package apptainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/sylabs/sif/v2/pkg/sif"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
	"slurmgate/run"
)

// Place is a folder of images that only the cluster sees.
type Place interface {
	// Check returns the SHA-256 of a file and its state. If the file still has the known state it is not read, and sum
	// is empty. An empty state is one that would not show a change. A missing file is a NotFound fault.
	Check(ctx context.Context, name, known string) (sum, state string, err error)
	// Put sends a file. It appears under its name complete, with these bytes and durable, or not at all. It replaces a
	// file of that name.
	Put(ctx context.Context, name string, src io.ReaderAt, size int64, sum string) error
	// Names returns the names that end with .sif, with their sizes in bytes.
	Names(ctx context.Context) (map[string]int64, error)
	// Head reads the first bytes of a file, at most limit.
	Head(ctx context.Context, name string, limit int) ([]byte, error)
}

// FarStore is a store of images like [Store], in a folder that only the cluster sees. It is safe for concurrent use.
type FarStore struct {
	Archs []string // see [Store]

	place Place
	dir   string // as jobs see it
	// Progress, if set, is called with the bytes of an image that were sent, and its size.
	Progress func(sent, of int64)

	verdicts verdicts[string]
}

// NewFarStore returns the store in the folder p; dir is its path as jobs see it.
func NewFarStore(p Place, dir string) *FarStore {
	return &FarStore{place: p, dir: dir}
}

// FarImages combines the store and the runtime of a site whose images only the cluster sees.
type FarImages struct {
	*FarStore
	*Runtime
}

var _ run.Images = FarImages{}

// Verify has the image with this digest (64 hex) hashed in place, and returns its path as jobs see it. See
// [Store.Verify].
func (s *FarStore) Verify(ctx context.Context, digest string) (string, error) {
	if !plan.IsSHA256(digest) {
		return "", fault.New(fault.Validation, "IMAGE-REF", fmt.Sprintf("%q is not a digest of 64 hex digits", digest))
	}
	v, unlock, err := s.verdicts.lock(ctx, digest)
	if err != nil {
		return "", err
	}
	defer unlock()
	file := path.Join(s.dir, digest+".sif")
	sum, state, err := s.place.Check(ctx, digest+".sif", v.good)
	switch {
	case fault.Is(err, fault.NotFound):
		v.good = ""
		return "", fault.Wrap(fault.NotFound, "IMAGE-NOT-FOUND", "the image store of the cluster does not have sha256:"+digest, err).
			WithSteps(fault.Do("image add"))
	case err != nil:
		return "", fault.Wrap("", "", "cannot read the image "+file+" on the cluster", err)
	case sum == "": // still in the verified state
		return file, nil
	case sum != digest:
		v.good = ""
		return "", fault.New(fault.Tool, "IMAGE-DIGEST",
			fmt.Sprintf("the image %s on the cluster was changed: it is pinned as sha256:%s, but its bytes have sha256:%s", file, digest, sum)).
			WithNext("find out what changed it, then add the original again").WithSteps(fault.Do("image add"))
	}
	v.good = state
	return file, nil
}

// Add checks the SIF file at path and sends it to the store. Adding the same bytes again changes nothing; a damaged
// stored file is replaced. See [Store.Add].
func (s *FarStore) Add(ctx context.Context, path string) (Image, error) {
	src, size, err := openRegular(path)
	if err != nil {
		return Image{}, fault.Wrap("", "", "cannot add the image "+path, err)
	}
	defer src.Close()
	arch, err := checkSIF(src, path, size, s.Archs)
	if err != nil {
		return Image{}, err
	}
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return Image{}, copyFault(err)
	}
	sum, n, err := files.CopyHash(ctx, io.Discard, src, size)
	if err != nil {
		return Image{}, copyFault(err)
	}
	img := Image{Digest: sum, Arch: arch, SizeBytes: n}
	switch _, err := s.Verify(ctx, sum); {
	case err == nil:
		return img, nil
	case !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Tool):
		return Image{}, err // the store cannot be reached
	}
	if err := s.place.Put(ctx, sum+".sif", &counted{src, s.Progress, 0, n, sync.Mutex{}}, n, sum); err != nil {
		return Image{}, fault.Wrap("", "", "cannot add the image "+path, err)
	}
	return img, nil
}

// counted is a reader that reports how much of a file was read.
type counted struct {
	io.ReaderAt
	progress func(sent, of int64)
	sent, of int64
	mu       sync.Mutex
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.ReaderAt.ReadAt(p, off)
	if c.progress != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.sent = min(c.sent+int64(n), c.of)
		c.progress(c.sent, c.of)
	}
	return n, err
}

// headBytes holds the header of a SIF file and the 48 descriptors that images usually have.
const headBytes = 64 << 10

// List returns the images by digest. It reads the headers and does not hash.
func (s *FarStore) List(ctx context.Context) ([]Image, error) {
	names, err := s.place.Names(ctx)
	if err != nil {
		return nil, fault.Wrap("", "", "the image store of the cluster cannot be listed", err)
	}
	images := []Image{}
	for name, size := range names {
		digest, isSIF := strings.CutSuffix(name, ".sif")
		if !isSIF || !plan.IsSHA256(digest) {
			continue
		}
		head, err := s.place.Head(ctx, name, headBytes)
		if errors.Is(err, context.Canceled) || fault.Is(err, fault.Transport) || fault.Is(err, fault.Timeout) {
			return nil, err
		}
		if err != nil {
			continue // removed since, or not made by Add
		}
		img := Image{Digest: digest, SizeBytes: size}
		if img.Arch, err = checkSIF(sif.NewBuffer(head), path.Join(s.dir, name), size, s.Archs); err != nil {
			img.Bad = fault.CodeOf(err)
		}
		images = append(images, img)
	}
	slices.SortFunc(images, func(a, b Image) int { return strings.Compare(a.Digest, b.Digest) })
	return images, nil
}
