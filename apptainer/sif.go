package apptainer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sylabs/sif/v2/pkg/sif"

	"slurmgate/fault"
)

// The global header of a SIF file, little-endian, as far as it is read here:
//
//	offset 32  magic "SIF_MAGIC\0"   offset  88  number of descriptors, int64
//	offset 42  version "01\0"        offset  96  offset of the descriptors, int64
//	                                 offset 104  size of the descriptors, int64
const (
	headerBytes     = 128
	magicOffset     = 32
	totalOffset     = 88
	descrOffset     = 96
	descrSizeOffset = 104
	descriptorBytes = 585
	maxDescriptors  = 4096
)

// checkSIF reads the header of an image and returns its architecture in Go's spelling. It accepts what Apptainer can
// run: one primary system partition, a plain squashfs, of one of archs (none: of any architecture), with every object
// inside the file. It does not read the partition: only the digest shows that the bytes are right.
func checkSIF(f sif.ReadWriter, name string, size int64, archs []string) (arch string, err error) {
	refuse := func(code, rule, msg, hint string) error {
		return fault.Invalid("this file cannot be used as an image", fault.Problem{Code: code, Field: "image", Rule: rule, Msg: msg,
			Hint: hint, File: name})
	}
	notSIF := func(msg string) error {
		return refuse("IMAGE-FORMAT", "a SIF file", msg, "make one with: apptainer build FILE.sif docker://…")
	}
	if msg := checkHeader(f, size); msg != "" {
		return "", notSIF(msg)
	}
	img, err := sif.LoadContainer(f, sif.OptLoadWithCloseOnUnload(false))
	if err != nil {
		return "", notSIF(err.Error())
	}
	var prim *sif.Descriptor
	img.WithDescriptors(func(d sif.Descriptor) bool {
		if d.Offset() < 0 || d.Size() < 0 || d.Size() > size || d.Offset() > size-d.Size() {
			err = refuse("IMAGE-TRUNCATED", "all objects of the image inside its file",
				fmt.Sprintf("object %d ends at byte %d, but the file has %d bytes", d.ID(), d.Offset()+d.Size(), size),
				"the file is incomplete: copy or build it again")
			return true
		}
		if _, part, _, perr := d.PartitionMetadata(); perr == nil && part == sif.PartPrimSys {
			if prim != nil {
				err = notSIF("it has two primary system partitions")
				return true
			}
			prim = &d
		}
		return false
	})
	if err != nil {
		return "", err
	}
	if prim == nil {
		return "", notSIF("it has no primary system partition (an OCI-SIF, or only data)")
	}
	fs, _, arch, err := prim.PartitionMetadata()
	if err != nil {
		return "", notSIF(err.Error())
	}
	if fs != sif.FsSquash {
		return "", refuse("IMAGE-FILESYSTEM", "a read-only squashfs partition", "its root filesystem is "+fs.String(),
			"rebuild the image with: apptainer build, without --sandbox or --encrypt")
	}
	if header := img.PrimaryArch(); header != arch {
		return "", refuse("IMAGE-ARCH", "one architecture in header and partition",
			"the header says "+header+", but the system partition says "+arch,
			"build the image again")
	}
	if len(archs) > 0 && !slices.Contains(archs, arch) {
		machines := strings.Join(archs, ", ")
		return "", refuse("IMAGE-ARCH", "an image of the machines' architecture",
			"it is built for "+arch+", but the machines that would run it are "+machines, "build the image on a machine of that architecture")
	}
	return arch, nil
}

// checkHeader returns what is wrong with the header, "" if nothing: the library trusts its numbers when it allocates
// memory.
func checkHeader(r io.ReaderAt, size int64) string {
	var h [headerBytes]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return "it is shorter than a SIF header"
	}
	if !bytes.Equal(h[magicOffset:magicOffset+10], []byte("SIF_MAGIC\x00")) {
		return "it does not begin with a SIF header"
	}
	num := func(at int) int64 { return int64(binary.LittleEndian.Uint64(h[at:])) }
	total, off, length := num(totalOffset), num(descrOffset), num(descrSizeOffset)
	switch {
	case total < 1 || total > maxDescriptors:
		return fmt.Sprintf("its header counts %d objects", total)
	case off < headerBytes || length < total*descriptorBytes || length > size || off > size-length:
		return "its list of objects is outside the file"
	}
	return ""
}
