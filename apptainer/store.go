package apptainer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
)

// Store is a folder of images named by their digest, <64 hex>.sif, mode 0444, on a filesystem that the compute nodes see.
// A file in it is always complete. A Store is safe for concurrent use, also by several processes.
type Store struct {
	Archs []string // of the machines that run the images, in Go's spelling; none: unknown, so images of any architecture are accepted

	dir      string
	settle   time.Duration // see settled
	verdicts verdicts[stamp]
}

// Image is one image of the store.
type Image struct {
	Digest    string // SHA-256 of the SIF file, 64 hex digits
	Arch      string // architecture of its programs in Go's spelling; empty in List when the header is unreadable
	SizeBytes int64  // size of the SIF file
	Bad       string // in List: the code of the fault that makes it unusable, e.g. IMAGE-ARCH; empty if usable
}

// Ref returns the digest as plans and the lock file write it: "sha256:" and 64 hex digits.
func (i Image) Ref() string { return "sha256:" + i.Digest }

const (
	imageMode  = 0o444
	tempPrefix = ".adding-"
)

// OpenStore opens the store in dir and creates the folder if it is missing. Its path becomes part of options of
// Apptainer and Slurm: package site has checked that it is plain.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fault.Wrap(fault.Transport, "IMAGE-STORE", "cannot open the image store", err).
			WithNext("check storage.image_store in the site file, and that " + dir + " is on a mounted filesystem this user may write to")
	}
	return &Store{dir: dir, settle: 2 * time.Second}, nil
}

func (s *Store) path(digest string) string { return filepath.Join(s.dir, digest+".sif") }

// Add checks the SIF file at path and copies it into the store. The copy is checked, so a source that changes meanwhile
// does no harm. The file must be a regular one, not a symlink. Adding the same bytes again changes nothing; a damaged
// stored file is replaced.
func (s *Store) Add(ctx context.Context, path string) (Image, error) {
	src, size, err := openRegular(path)
	if err != nil {
		return Image{}, fault.Wrap("", "", "cannot add the image "+path, err)
	}
	defer src.Close()
	if _, err := checkSIF(src, path, size, s.Archs); err != nil { // before a long copy
		return Image{}, err
	}
	tmp, err := os.CreateTemp(s.dir, tempPrefix+"*")
	if err != nil {
		return Image{}, s.broken(err)
	}
	defer os.Remove(tmp.Name()) // no file has this name after the rename
	defer tmp.Close()

	sum, n, err := files.CopyHash(ctx, tmp, src, 0)
	if err != nil {
		return Image{}, copyFault(err)
	}
	arch, err := checkSIF(tmp, path, n, s.Archs)
	if err != nil {
		return Image{}, err
	}
	img := Image{Digest: sum, Arch: arch, SizeBytes: n}
	if _, err := s.Verify(ctx, img.Digest); err == nil {
		return img, nil
	}
	if err := errors.Join(tmp.Chmod(imageMode), tmp.Sync()); err != nil {
		return Image{}, s.broken(err)
	}
	if err := os.Rename(tmp.Name(), s.path(img.Digest)); err != nil {
		return Image{}, s.broken(err)
	}
	if err := syncDir(s.dir); err != nil {
		return Image{}, s.broken(err)
	}
	return img, nil
}

// List returns the images by digest. It reads the headers and does not hash.
func (s *Store) List() ([]Image, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, s.broken(err)
	}
	images := []Image{}
	for _, e := range entries {
		digest, isSIF := strings.CutSuffix(e.Name(), ".sif")
		if !isSIF || !plan.IsSHA256(digest) {
			continue
		}
		f, size, err := openRegular(s.path(digest))
		if err != nil {
			continue // removed since, or not made by Add
		}
		img := Image{Digest: digest, SizeBytes: size}
		if img.Arch, err = checkSIF(f, f.Name(), size, s.Archs); err != nil {
			img.Bad = fault.CodeOf(err)
		}
		f.Close()
		images = append(images, img)
	}
	slices.SortFunc(images, func(a, b Image) int { return strings.Compare(a.Digest, b.Digest) })
	return images, nil
}

func (s *Store) broken(err error) error {
	return fault.Wrap(fault.Transport, "IMAGE-STORE", "the image store "+s.dir+" cannot be used", err).
		WithNext("check that the filesystem is mounted, has free space, and that this user can write to it")
}

// openRegular opens a regular file for reading; it neither follows a symlink at the end of the path nor waits
// for the writer of a FIFO.
func openRegular(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, 0, fault.New(fault.Validation, "IMAGE-FILE", "it is a symbolic link").WithNext("name the file itself")
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fault.New(fault.NotFound, "IMAGE-FILE", "there is no such file")
	case errors.Is(err, fs.ErrPermission):
		return nil, 0, fault.New(fault.Validation, "IMAGE-FILE", "this user has no permission to read it")
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return nil, 0, fault.New(fault.Validation, "IMAGE-FILE", "it is a socket or a device, not a regular file")
	case err != nil:
		return nil, 0, fault.Wrap(fault.Transport, "IMAGE-FILE", "", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fault.New(fault.Validation, "IMAGE-FILE", "it is not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

func copyFault(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return fault.Wrap(fault.Canceled, "", "the caller gave up while the image was read", err)
	case errors.Is(err, context.DeadlineExceeded):
		return fault.Wrap(fault.Timeout, "", "reading the image took too long", err)
	}
	return fault.Wrap(fault.Transport, "IMAGE-IO", "the image could not be read or copied", err)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
