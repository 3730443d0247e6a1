package apptainer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sylabs/sif/v2/pkg/sif"
)

// partitionAlign is the offset granularity of the partition in bytes. It is fixed because the library's default is the page size of the
// building machine.
const partitionAlign = 4096

// Wrap writes a SIF image whose bytes depend only on the root filesystem, a squashfs, and the architecture, in Go's
// spelling: its UUID is zero, it has no time, and it holds one object, the primary system partition. It is written to a
// temporary name in the folder of out, synced and renamed: after an error out is unchanged.
func Wrap(out, squashfs, arch string) (err error) {
	root, err := os.Open(squashfs)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := checkSquashfs(root); err != nil {
		return fmt.Errorf("%s: %w", squashfs, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	err = writeImage(tmp, root, arch)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return os.Rename(tmp.Name(), out)
}

// writeImage writes the image to f, makes it readable by everyone, and syncs it.
func writeImage(f *os.File, root io.Reader, arch string) error {
	part, err := sif.NewDescriptorInput(sif.DataPartition, root, sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, arch),
		sif.OptObjectAlignment(partitionAlign))
	if err != nil {
		return fmt.Errorf("architecture %q: %w", arch, err)
	}
	img, err := sif.CreateContainer(f, sif.OptCreateDeterministic(), sif.OptCreateWithDescriptors(part), sif.OptCreateWithCloseOnUnload(false))
	if err != nil {
		return err
	}
	return errors.Join(img.UnloadContainer(), f.Chmod(0o644), f.Sync())
}

// checkSquashfs returns an error unless r begins like a little-endian squashfs, the only kind that the kernel mounts,
// and leaves r at its start.
func checkSquashfs(r io.ReadSeeker) error {
	magic := make([]byte, 4)
	if _, err := io.ReadFull(r, magic); err != nil || !bytes.Equal(magic, []byte("hsqs")) {
		return errors.New("not a squashfs filesystem")
	}
	_, err := r.Seek(0, io.SeekStart)
	return err
}
