package staging

import (
	"context"
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// EachFile calls f with every regular file of a run's workspace, including a job's, until f fails or returns false.
// Files that vanish meanwhile are skipped; a folder that cannot be read is an error. A run without a workspace has no
// files.
func (s *Shared) EachFile(ctx context.Context, runID string, f func(open func() (io.ReadCloser, error)) (more bool, err error)) error {
	root, err := s.root(ctx, runID, 1)
	if err != nil {
		return err
	}
	defer root.close()
	_, err = root.eachFile(ctx, runID, maxDepth, f)
	return fsFault("the run's folder cannot be read", err)
}

func (d dir) eachFile(ctx context.Context, name string, depth int, f func(func() (io.ReadCloser, error)) (bool, error)) (more bool,
	err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	st, err := d.stat(name)
	switch {
	case errors.Is(err, unix.ENOENT):
		return true, nil
	case err != nil:
		return false, err
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		return f(func() (io.ReadCloser, error) { return d.open(name) })
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return true, nil
	case depth == 0:
		return false, unix.ELOOP
	}
	sub, err := d.sub(name)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer sub.close()
	list, err := sub.listing()
	if err != nil {
		return false, err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(clearNames)
		for _, n := range names {
			if more, err := sub.eachFile(ctx, n, depth-1, f); !more || err != nil {
				return more, err
			}
		}
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return err == nil, err
		}
	}
}
