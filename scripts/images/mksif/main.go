// Command mksif wraps a squashfs root filesystem into a SIF container image
// whose bytes depend on nothing but the root filesystem and the architecture:
//
//	mksif -arch amd64 -o OUT.sif ROOT.squashfs
//
// slurmgate pins an image by the SHA-256 of its file, so the same root
// filesystem must give the same file on every machine and every day. The
// image therefore has a zero UUID and no time, and holds one object: the primary
// system partition, aligned to 4096 bytes.
//
// The image is written to a temporary name beside OUT.sif, synced and renamed:
// OUT.sif is either absent, as it was, or complete. Exit status is 0, 1 when the
// image could not be made, or 2 on wrong usage.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/sylabs/sif/v2/pkg/sif"
)

// partitionAlign is the offset granularity of the partition in bytes. It is
// fixed because the library's default is the page size of the building machine.
const partitionAlign = 4096

func main() {
	arch := flag.String("arch", runtime.GOARCH, "CPU `architecture` of the programs inside, in Go's spelling")
	out := flag.String("o", "", "image `file` to write")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mksif [-arch ARCH] -o OUT.sif ROOT.squashfs")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := wrap(*out, flag.Arg(0), *arch); err != nil {
		fmt.Fprintln(os.Stderr, "mksif:", err)
		os.Exit(1)
	}
}

// wrap writes the SIF image out, holding squashfs as its primary partition for
// arch. On error out is left as it was.
func wrap(out, squashfs, arch string) (err error) {
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
	err = write(tmp, root, arch)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return os.Rename(tmp.Name(), out)
}

// write puts the image on f, readable by everyone, and syncs it.
func write(f *os.File, root io.Reader, arch string) error {
	part, err := sif.NewDescriptorInput(sif.DataPartition, root,
		sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, arch),
		sif.OptObjectAlignment(partitionAlign),
	)
	if err != nil {
		return fmt.Errorf("architecture %q: %w", arch, err)
	}
	img, err := sif.CreateContainer(f,
		sif.OptCreateDeterministic(),
		sif.OptCreateWithDescriptors(part),
		sif.OptCreateWithCloseOnUnload(false),
	)
	if err != nil {
		return err
	}
	if err := img.UnloadContainer(); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	return f.Sync()
}

// checkSquashfs refuses anything that does not begin like a little-endian
// squashfs, the only kind the kernel mounts, and leaves r at its start.
func checkSquashfs(r io.ReadSeeker) error {
	magic := make([]byte, 4)
	if _, err := io.ReadFull(r, magic); err != nil || !bytes.Equal(magic, []byte("hsqs")) {
		return errors.New("not a squashfs filesystem")
	}
	_, err := r.Seek(0, io.SeekStart)
	return err
}
