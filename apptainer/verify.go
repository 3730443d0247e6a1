package apptainer

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
)

// stamp identifies a state of a file without reading its content. The change time cannot be set back by the file's
// owner, so a rewritten file has another stamp.
type stamp struct {
	dev, ino, size, mtimeNs, ctimeNs int64
}

// Verify hashes the image with this digest (64 hex) and returns its absolute path. A file whose state was verified
// before is not hashed again. An image that is not in the store is a NotFound fault, a file with other bytes a Tool
// fault with code IMAGE-DIGEST, and one that cannot run here a Validation fault.
func (s *Store) Verify(ctx context.Context, digest string) (string, error) {
	if !plan.IsSHA256(digest) {
		return "", fault.New(fault.Validation, "IMAGE-REF", fmt.Sprintf("%q is not a digest of 64 hex digits", digest))
	}
	path := s.path(digest)
	f, size, err := openRegular(path)
	if fault.Is(err, fault.NotFound) {
		return "", fault.New(fault.NotFound, "IMAGE-NOT-FOUND", "the image store does not have sha256:"+digest).
			WithSteps(fault.Do("image add"))
	}
	if err != nil {
		return "", fault.Wrap("", "", "cannot read the image "+path, err)
	}
	defer f.Close()
	v, unlock, err := s.verdicts.lock(ctx, digest)
	if err != nil {
		return "", err
	}
	defer unlock()
	before, err := stampOf(f)
	if err != nil {
		return "", s.broken(err)
	}
	if v.good == before {
		return path, nil
	}
	if _, err := checkSIF(f, path, size, s.Archs); err != nil {
		v.good = stamp{}
		return "", err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", s.broken(err)
	}
	start := time.Now()
	got, _, err := files.CopyHash(ctx, io.Discard, f, 0)
	if err != nil {
		return "", copyFault(err)
	}
	after, err := stampOf(f)
	if err != nil {
		return "", s.broken(err)
	}
	if got != digest {
		v.good = stamp{}
		return "", fault.New(fault.Tool, "IMAGE-DIGEST",
			fmt.Sprintf("the image %s was changed: it is pinned as sha256:%s, but its bytes have sha256:%s", path, digest, got)).
			WithNext("find out what changed it, then add the original again").WithSteps(fault.Do("image add"))
	}
	v.good = settled(before, after, start, s.settle)
	return path, nil
}

// settled returns the stamp of a verified file if it can be trusted: the file did not change while it was read, and its
// last change was early enough that a write in the same tick of the filesystem's clock would show. Otherwise it returns
// the zero stamp.
func settled(before, after stamp, start time.Time, settle time.Duration) stamp {
	if before == after && start.Sub(time.Unix(0, before.ctimeNs)) >= settle {
		return before
	}
	return stamp{}
}

func stampOf(f *os.File) (stamp, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return stamp{int64(st.Dev), int64(st.Ino), st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, err
}
