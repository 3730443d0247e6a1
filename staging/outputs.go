package staging

import (
	"context"
	"errors"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"slurmgate/run"
)

// OpenOutput opens a declared output and returns its size in bytes. Every check is made on the descriptor that is returned: a regular file
// below out/, reached without a symlink, with a single name, owned by the job's user. Anything else is a Tool fault with one of the codes
// above. Opening never blocks, not even on a pipe.
func (s *Shared) OpenOutput(ctx context.Context, runID string, n int, srcRelpath string) (io.ReadCloser, int64, error) {
	if err := CheckSource(srcRelpath); err != nil {
		return nil, 0, err
	}
	root, err := s.root(ctx, runID, n)
	if err != nil {
		return nil, 0, err
	}
	defer root.close()
	rel := runID + "/" + AttemptName(n) + "/" + srcRelpath
	f, err := root.open(rel)
	if errors.Is(err, unix.ENOENT) {
		refresh(root, path.Dir(rel))
		f, err = root.open(rel)
	}
	if err != nil {
		return nil, 0, openFault(srcRelpath, err)
	}
	size, err := s.acceptable(f, srcRelpath)
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// refresh lists every folder of rel, with a bound, so that a network filesystem drops its cache of missing names.
func refresh(root dir, rel string) {
	for i := range len(rel) + 1 {
		if i < len(rel) && rel[i] != '/' {
			continue
		}
		sub, err := root.sub(rel[:i])
		if err != nil {
			return
		}
		f, err := sub.listing()
		sub.close()
		if err != nil {
			return
		}
		for range 100 {
			if _, err := f.Readdirnames(1000); err != nil {
				break
			}
		}
		f.Close()
	}
}

func openFault(rel string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return OutputFault(run.OutputMissing, rel, "does not exist")
	case errors.Is(err, unix.ELOOP):
		return OutputFault(run.OutputSymlink, rel, "is a symlink or is reached through one; only regular files are collected")
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return OutputFault(run.OutputIrregular, rel, "is a socket or device, not a regular file")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return OutputFault(run.OutputUnreadable, rel, "cannot be read by the gateway (permissions)")
	}
	return fsFault("declared output "+rel+" cannot be opened", err)
}

func (s *Shared) acceptable(f *os.File, rel string) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fsFault("declared output "+rel+" cannot be examined", err)
	}
	return st.Size, Acceptable(rel, st.Mode, uint64(st.Nlink), int(st.Uid), s.jobUID)
}
