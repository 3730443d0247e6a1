package sftp

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/staging"
)

// RemoveRun removes a finished run's workspace except for one small file per attempt. See [staging.Shared.RemoveRun].
func (w *Workspace) RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (freed int64,
	err error) {
	if err := check(ctx, runID, 1); err != nil {
		return 0, err
	}
	unlock, err := w.locks.Lock(ctx, runID)
	if err != nil {
		return 0, err
	}
	defer unlock()
	if err := w.far.examine(ctx, runID, attempts); err != nil {
		return 0, err
	}
	if ok, err := still(); !ok || err != nil {
		return 0, err
	}
	w.tidy(ctx)
	return w.far.remove(ctx, runID, attempts)
}

// RunSize adds up the bytes of a run's files; 0 when it has none.
func (w *Workspace) RunSize(ctx context.Context, runID string) (int64, error) {
	if err := check(ctx, runID, 1); err != nil {
		return 0, err
	}
	return w.far.size(ctx, runID)
}

// maxDepth bounds the depth of searched folders; only a hostile job nests them deeper.
const maxDepth = 200

// EachFile calls f with every regular file of a run's workspace, including a job's, until f fails or returns false.
// Files that vanish meanwhile are skipped; a folder that cannot be read is an error. A run without a workspace has no
// files.
func (w *Workspace) EachFile(ctx context.Context, runID string, f func(open func() (io.ReadCloser, error)) (more bool, err error)) error {
	if err := check(ctx, runID, 1); err != nil {
		return err
	}
	if _, err := w.far.size(ctx, runID); err != nil { // checks that runs_dir exists and is the gateway's
		return err
	}
	_, err := w.eachFile(ctx, runID, maxDepth, f)
	return err
}

func (w *Workspace) eachFile(ctx context.Context, rel string, depth int, f func(func() (io.ReadCloser, error)) (bool, error)) (more bool,
	err error) {
	if depth == 0 {
		return false, staging.ForeignEntry("the run's folder cannot be read", errors.New("its folders are nested too deeply"))
	}
	type file struct {
		name   string
		size   int64
		folder bool
	}
	var found []file
	err = w.channels.do(ctx, "the run's folder cannot be read", func(c *sftp.Client) error {
		found = nil
		entries, err := c.ReadDirContext(ctx, w.onData(rel))
		for _, e := range entries {
			if e.IsDir() || e.Mode().IsRegular() {
				found = append(found, file{e.Name(), e.Size(), e.IsDir()})
			}
		}
		return err
	})
	if fault.Is(err, fault.Transport) && errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range found {
		name := path.Join(rel, e.name)
		if e.folder {
			more, err = w.eachFile(ctx, name, depth-1, f)
		} else {
			more, err = f(func() (io.ReadCloser, error) { return w.fetch(ctx, "a file of the run", w.onData(name), e.size) })
		}
		if !more || err != nil {
			return more, err
		}
	}
	return true, nil
}

func tokens(runID string, attempts map[int]string) []string {
	args := []string{runID}
	for _, n := range slices.Sorted(maps.Keys(attempts)) {
		args = append(args, strconv.Itoa(n), attempts[n], strings.TrimSuffix(string(run.VoidClaim(attempts[n])), "\n"))
	}
	return args
}

func (s *shelled) examine(ctx context.Context, runID string, attempts map[int]string) error {
	_, err := s.run(ctx, call{script: removalScript, name: "examine", args: tokens(runID, attempts), writes: true})
	return s.fault("the run's folder cannot be examined", runID, 1, "", err)
}

func (s *shelled) remove(ctx context.Context, runID string, attempts map[int]string) (int64, error) {
	const msg = "the run's workspace cannot be removed"
	return s.number(ctx, msg, runID, call{script: removalScript, name: "remove", args: tokens(runID, attempts), writes: true})
}

func (s *shelled) size(ctx context.Context, runID string) (int64, error) {
	return s.number(ctx, "the run's folder cannot be read", runID,
		call{script: removalScript, name: "size", args: []string{runID}})
}

// number runs a script and returns the number of bytes that it prints.
func (s *shelled) number(ctx context.Context, msg, runID string, c call) (int64, error) {
	out, err := s.run(ctx, c)
	if err != nil {
		return 0, s.fault(msg, runID, 1, "", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil || n < 0 {
		return 0, fault.Wrap(fault.Transport, "far_shell", msg+": the script on the login node gave half an answer", err)
	}
	return n, nil
}
