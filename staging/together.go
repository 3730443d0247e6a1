package staging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"slurmgate/run"
)

// syncsWhole lists the filesystems where syncfs(2) makes everything durable that was written before, by any descriptor:
// those of this machine, and those whose client writes out and commits all its data. For fuse and similar ones it
// reaches the local kernel alone.
var syncsWhole = map[string]bool{"ext": true, "xfs": true, "btrfs": true, "tmpfs": true, "overlay": true, "nfs": true, "ceph": true}

// fewAttempts is the number of attempts below which each is opened separately.
const fewAttempts = 4

// OpenTogether is [Shared.OpenAttempt] for attempts of several runs. All folders get temporary names, the filesystem is
// synced, all are moved into place, and it is synced once more. A folder with the name of an attempt is therefore
// complete, as after OpenAttempt, and the inputs are durable too. On a filesystem that other machines may share, the
// files are read back. An existing folder is opened with OpenAttempt.
func (s *Shared) OpenTogether(ctx context.Context, list []run.Opening) []error {
	name, network, err := Filesystem(s.cfg.RunsDir)
	if len(list) < fewAttempts || err != nil || !syncsWhole[name] {
		return run.OpenEach(ctx, s, list)
	}
	root, err := s.runsDir(ctx)
	if err != nil {
		return slices.Repeat([]error{err}, len(list))
	}
	defer root.close()
	errs, temps := make([]error, len(list)), make([]string, len(list))
	parallel(len(list), func(i int) { temps[i], errs[i] = buildUnsynced(root, list[i]) })
	if err := root.syncFS(); err != nil {
		return slices.Repeat([]error{fsFault("the attempts' folders cannot be synced", err)}, len(list))
	}
	parallel(len(list), func(i int) {
		if errs[i] == nil && temps[i] != "" {
			errs[i] = moveUnsynced(root, list[i], temps[i], network)
		}
	})
	if err := root.syncFS(); err != nil {
		return slices.Repeat([]error{fsFault("the runs' folders cannot be synced", err)}, len(list))
	}
	parallel(len(list), func(i int) {
		if temps[i] != "" {
			s.fresh.Delete(list[i].RunID)
		} else if errs[i] == nil {
			errs[i] = s.OpenAttempt(ctx, list[i].RunID, list[i].N, list[i].Token, list[i].Files...)
		}
	})
	return errs
}

// buildUnsynced writes an attempt's folder under a temporary name. temp is empty if the attempt's folder exists.
func buildUnsynced(root dir, o run.Opening) (temp string, err error) {
	if err := errors.Join(CheckAttempt(o.RunID, o.N), CheckOpen(o.Token, o.Files)); err != nil {
		return "", err
	}
	runDir, err := root.mkdir(o.RunID)
	if err != nil {
		return "", fsFault("the run's folder cannot be made", err)
	}
	defer runDir.close()
	if _, err := runDir.stat(AttemptName(o.N)); !errors.Is(err, unix.ENOENT) {
		return "", nil // OpenAttempt opens it, or reports what is wrong
	}
	temp = tempName(o.N, o.Token)
	err = build(runDir, temp, withToken(o.Token, o.Files), func(w *written, _ ...dir) error { return w.close() })
	return temp, fsFault(fmt.Sprintf("attempt %d of %s cannot be opened", o.N, o.RunID), err)
}

// moveUnsynced moves a folder into place. The folder must be durable under its temporary name.
func moveUnsynced(root dir, o run.Opening, temp string, readBack bool) error {
	runDir, err := root.sub(o.RunID)
	if err != nil {
		return fsFault("the run's folder cannot be opened", err)
	}
	defer runDir.close()
	switch err = moveExclusive(runDir, temp, AttemptName(o.N)); {
	case err == nil && readBack:
		err = eachControl(runDir, AttemptName(o.N), withToken(o.Token, o.Files), holds)
	case err != nil: // another call was first, or a network filesystem reports an error for a successful move
		err = openAttempt(runDir, o.N, o.Token, o.Files, true)
	}
	return fsFault(fmt.Sprintf("attempt %d of %s cannot be opened", o.N, o.RunID), errors.Join(err, dropUnfinished(runDir, o.N)))
}

// syncFS makes everything durable that was written to the folder's filesystem before.
func (d dir) syncFS() error {
	if err := unix.Syncfs(d.fd); err != nil {
		return &os.PathError{Op: "syncfs", Path: "folder", Err: err}
	}
	return nil
}

// parallel calls f for the numbers below n, a few at a time.
func parallel(n int, f func(i int)) {
	var workers errgroup.Group
	workers.SetLimit(2 * runtime.GOMAXPROCS(0))
	for i := range n {
		workers.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = workers.Wait()
}
