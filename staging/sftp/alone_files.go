package sftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/staging"
)

// stage prepares in/. Files cannot be hashed there, so those that have their name already are sent again.
func (a *alone) stage(ctx context.Context, runID string, t staging.Tree, files []input) ([]stageState, error) {
	states := slices.Repeat([]stageState{missing}, len(files))
	err := a.do(ctx, "the inputs cannot be staged", func(c *sftp.Client) error {
		if err := a.folder(c, a.path(runID)); err != nil {
			return err
		}
		if err := a.prune(c, t, runID, "in"); err != nil {
			return err
		}
		for _, dir := range slices.Sorted(maps.Keys(t.Dirs)) {
			if err := a.folder(c, a.path(runID, dir)); err != nil {
				return err
			}
		}
		return a.staged(c, runID, files, states)
	})
	return states, err
}

// staged removes all but parts of these files from .stage, and sets the states of those that are complete.
func (a *alone) staged(c *sftp.Client, runID string, files []input, states []stageState) error {
	dir := a.path(runID, stageDir)
	switch st, err := c.Lstat(dir); {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !st.IsDir():
		if err := c.Remove(dir); err != nil {
			return err
		}
	}
	if err := a.folder(c, dir); err != nil {
		return err
	}
	ours := map[string]int{}
	for i, f := range files {
		ours[f.temp] = i
	}
	list, err := c.ReadDir(dir)
	for _, e := range list {
		i, whole := ours[e.Name()]
		switch {
		case whole && e.Mode().IsRegular() && e.Size() == files[i].size:
			states[i] = sent
		case !e.Mode().IsRegular() || !transfer.IsPart(e.Name()):
			err = errors.Join(err, a.removeAll(c, path.Join(dir, e.Name())))
		}
	}
	return err
}

// prune removes everything at or below rel that is neither a file nor a folder of the tree.
func (a *alone) prune(c *sftp.Client, t staging.Tree, runID, rel string) error {
	name := a.path(runID, rel)
	st, err := c.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode().IsRegular() && t.Files[rel]:
		return nil
	case !st.IsDir() || !t.Dirs[rel]:
		return a.removeAll(c, name)
	}
	list, err := c.ReadDir(name)
	for _, e := range list {
		err = errors.Join(err, a.prune(c, t, runID, path.Join(rel, e.Name())))
	}
	return err
}

// place gives files their names. Their bytes were hashed while they were sent; the job hashes them again before the
// program starts.
func (a *alone) place(ctx context.Context, runID string, t staging.Tree, files []input) error {
	return a.do(ctx, "the inputs cannot be staged", func(c *sftp.Client) error {
		for dir := range t.Dirs {
			if err := a.walk(c, path.Join(runID, dir)); err != nil {
				return err
			}
		}
		if err := atOnce(files, func(f input) error { return a.placeOne(c, runID, f) }); err != nil {
			return err
		}
		return a.removeAll(c, a.path(runID, stageDir))
	})
}

func (a *alone) placeOne(c *sftp.Client, runID string, f input) error {
	temp, name := a.path(runID, stageDir, f.temp), a.path(runID, f.DestRelpath)
	st, err := c.Lstat(temp)
	if errors.Is(err, fs.ErrNotExist) { // perhaps the answer to an earlier try was lost
		if st, err = c.Lstat(name); err == nil && st.Size() == f.size {
			return nil
		}
	}
	if err == nil && (!st.Mode().IsRegular() || st.Size() != f.size) {
		err = fault.New(fault.Transport, "filesystem",
			fmt.Sprintf("input %s came incomplete: %d bytes instead of %d", f.DestRelpath, st.Size(), f.size))
	}
	if err == nil {
		err = c.Chmod(temp, 0o400)
	}
	if err == nil {
		err = c.PosixRename(temp, name)
	}
	return err
}

func (a *alone) output(ctx context.Context, runID string, n int, rel string) (e entry, err error) {
	err = a.do(ctx, "declared output "+rel+" cannot be examined", func(c *sftp.Client) error {
		full := path.Join(runID, staging.AttemptName(n), rel)
		err := a.walk(c, path.Dir(full))
		var st fs.FileInfo
		if err == nil {
			st, err = c.Lstat(a.path(full))
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return staging.OutputFault(run.OutputMissing, rel, "does not exist")
		case errors.Is(err, errLink), err == nil && st.Mode()&fs.ModeSymlink != 0:
			return staging.OutputFault(run.OutputSymlink, rel, "is a symlink or is reached through one; only regular files are collected")
		case errors.Is(err, fs.ErrPermission):
			return staging.OutputFault(run.OutputUnreadable, rel, "cannot be read by the gateway (permissions)")
		case err != nil:
			return err
		}
		e = entry{mode: st.Sys().(*sftp.FileStat).Mode, nlink: 1, uid: owner(st), size: st.Size(), self: a.self}
		return nil
	})
	return e, err
}

// each calls f with every entry below a folder; f returns whether to descend into it. A folder that cannot be read is
// reported as closed.
func (a *alone) each(ctx context.Context, c *sftp.Client, dir, rel string, depth int,
	f func(rel string, st fs.FileInfo, closed bool) (into bool)) error {
	list, err := c.ReadDirContext(ctx, path.Join(dir, rel))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission) || depth == 0:
		f(rel, nil, true)
		return nil
	}
	for _, e := range list {
		name := path.Join(rel, e.Name())
		if f(name, e, false) {
			if err := a.each(ctx, c, dir, name, depth-1, f); err != nil {
				return err
			}
		}
	}
	return cmp.Or(err, ctx.Err())
}

func (a *alone) list(ctx context.Context, runID string, n int, declared []string) (l listing, err error) {
	err = a.do(ctx, "what is in out/ cannot be listed", func(c *sftp.Client) error {
		l = listing{folders: map[string]bool{}}
		if err := a.attempt(c, runID, n); err != nil {
			return err
		}
		dir := a.path(runID, staging.AttemptName(n))
		switch st, err := c.Lstat(path.Join(dir, "out")); {
		case errors.Is(err, fs.ErrNotExist):
			l.complete = true
			return nil
		case err != nil:
			return err
		case !st.IsDir():
			l.closed, l.complete = []string{"out"}, true
			return nil
		}
		short, cancel := context.WithTimeout(ctx, walkSeconds*time.Second)
		defer cancel()
		err := a.each(short, c, dir, "out", walkDepth+1, func(rel string, st fs.FileInfo, closed bool) bool {
			if closed {
				l.closed = append(l.closed, rel)
			}
			if closed || slices.Contains(declared, rel) {
				return false
			}
			if st.IsDir() {
				l.folders[rel] = true
			}
			if l.all = append(l.all, rel); len(l.all) > walkEntries {
				cancel()
			}
			return st.IsDir()
		})
		if l.complete = err == nil; errors.Is(err, short.Err()) && ctx.Err() == nil {
			return nil
		}
		return err
	})
	return l, err
}

func (a *alone) size(ctx context.Context, runID string) (total int64, err error) {
	err = a.do(ctx, "the run's folder cannot be read", func(c *sftp.Client) error {
		total, err = a.sizeOf(ctx, c, a.path(runID))
		return err
	})
	return total, err
}

// sizeOf adds up the bytes of files at and below a name.
func (a *alone) sizeOf(ctx context.Context, c *sftp.Client, name string) (total int64, err error) {
	st, err := c.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil || !st.IsDir():
		return st.Size(), err
	}
	err = a.each(ctx, c, name, "", maxDepth, func(_ string, st fs.FileInfo, closed bool) bool {
		if !closed && !st.IsDir() {
			total += st.Size()
		}
		return !closed && st.IsDir()
	})
	return total, err
}

func (a *alone) examine(ctx context.Context, runID string, attempts map[int]string) error {
	return a.do(ctx, "the run's folder cannot be examined", func(c *sftp.Client) error {
		return a.known(c, runID, attempts)
	})
}

// known checks that everything with an attempt's name belongs to one of these attempts, by its token.
func (a *alone) known(c *sftp.Client, runID string, attempts map[int]string) error {
	if err := a.folder(c, a.path(runID)); err != nil {
		return err
	}
	list, err := c.ReadDir(a.path(runID))
	if err != nil {
		return err
	}
	for _, e := range list {
		if !staging.IsAttemptName(e.Name()) {
			continue
		}
		n, _ := strconv.Atoi(e.Name()[1:]) // it has the form
		token, known := attempts[n]
		if !known {
			return staging.Unknown(e.Name())
		}
		gone, err := a.gone(c, a.path(runID, e.Name()), token)
		if err == nil && !gone {
			_, err = a.carries(c, runID, e.Name(), token)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gone reports whether the attempt was removed before.
func (a *alone) gone(c *sftp.Client, name, token string) (bool, error) {
	got, err := a.readFile(c, name, 256)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errLink) || errors.Is(err, errIrregular) {
		return false, nil
	}
	return err == nil && string(got) == string(staging.GoneFile(token)), err
}

func (a *alone) remove(ctx context.Context, runID string, attempts map[int]string) (freed int64, err error) {
	err = a.do(ctx, "the run's workspace cannot be removed", func(c *sftp.Client) error {
		if err := a.known(c, runID, attempts); err != nil {
			return err
		}
		for n := range attempts { // the job's files may fill the disk: make room for the files written below
			name := staging.AttemptName(n)
			if a.disarm(c, runID, name) == nil {
				left, _ := a.removeBut(ctx, c, a.path(runID, name), staging.Identifies)
				said, _ := a.removeBut(ctx, c, a.path(runID, name, "ctl"), staging.Identifies)
				freed += left + said
			}
		}
		for n, token := range attempts {
			if err := a.retire(c, runID, staging.AttemptName(n), token); err != nil {
				return err
			}
		}
		rest, err := a.removeBut(ctx, c, a.path(runID), staging.IsAttemptName)
		freed += rest
		return err
	})
	return freed, err
}

// removeBut removes everything in a folder except the given names.
func (a *alone) removeBut(ctx context.Context, c *sftp.Client, dir string, keep func(string) bool) (freed int64, err error) {
	list, err := c.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		if keep(e.Name()) {
			continue
		}
		name := path.Join(dir, e.Name())
		n, err := a.sizeOf(ctx, c, name)
		if err == nil {
			err = a.removeAll(c, name)
		}
		if err != nil {
			return freed, err
		}
		freed += n
	}
	return freed, nil
}

// disarm makes sure that no job executes an ended attempt that has a folder: its claim is taken, and nothing is pinned.
func (a *alone) disarm(c *sftp.Client, runID, name string) error {
	if err := a.walk(c, path.Join(runID, name, "ctl")); err != nil {
		return err
	}
	ctl := a.path(runID, name, "ctl")
	_ = c.Link(path.Join(ctl, voidFile), path.Join(ctl, run.ClaimFile))
	if err := c.Remove(path.Join(ctl, run.PinnedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// retire replaces an ended attempt's folder by a file, so that no job of it can start; see [staging.Shared.RemoveRun].
func (a *alone) retire(c *sftp.Client, runID, name, token string) error {
	at := a.path(runID, name)
	if gone, err := a.gone(c, at, token); gone || err != nil {
		return err
	}
	if a.walk(c, path.Join(runID, name, "ctl")) == nil {
		if err := a.disarm(c, runID, name); err != nil {
			return err
		}
	}
	temp := a.path(runID, ".gone."+name+"."+random())
	if err := a.write(c, temp, staging.GoneFile(token)); err != nil {
		return err
	}
	var last error
	for range 10 {
		if err := c.PosixRename(at, temp+"."+random()+".d"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// A job that starts between the two steps makes Slurm create the folder again; it holds no pinned files.
		if last = c.Link(temp, at); last == nil {
			return c.Remove(temp)
		}
	}
	return last
}

const (
	removeDepth = 64 // deeper entries are moved up first, because the length of paths is limited
	removeTries = 5  // for a folder that is refilled during the removal
)

// removeAll removes a file, or a folder with everything in it. Symlinks are removed, not followed.
func (a *alone) removeAll(c *sftp.Client, name string) error { return removeBelow(c, name, name, 0) }

func removeBelow(c *sftp.Client, top, name string, depth int) error {
	st, err := c.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		if err := c.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if depth == removeDepth {
		return c.Rename(name, path.Join(top, ".deep."+random()))
	}
	if st.Mode().Perm()&0o700 != 0o700 {
		if err := c.Chmod(name, 0o700); err != nil {
			return err
		}
	}
	for range removeTries {
		list, lerr := c.ReadDir(name)
		if err = lerr; errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range list {
			if err == nil {
				err = removeBelow(c, top, path.Join(name, e.Name()), depth+1)
			}
		}
		if err != nil {
			return err
		}
		if err = c.RemoveDirectory(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	return err
}
