package staging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/run"
)

// OpenAttempt creates <run_id>/a<n>/ctl with the token in ctl/token and the control files. The job creates the folders
// of its program itself, after it has taken the claim.
//
// The attempt folder is built under a temporary name, synced, moved into place in one exclusive step, and read back
// there. So an attempt folder is never visible without its token, and a crash leaves no doubtful state. Calling it
// again with the same token succeeds and rewrites the control files. A folder with another token, or with none, is a
// Conflict fault with code workspace_ahead_of_ledger: the attempt was opened, and the ledger does not know about it.
func (s *Shared) OpenAttempt(ctx context.Context, runID string, n int, token string, files ...run.ControlFile) error {
	if err := CheckOpen(token, files); err != nil {
		return err
	}
	root, err := s.root(ctx, runID, n)
	if err != nil {
		return err
	}
	defer root.close()
	runDir, err := root.mkdir(runID)
	if err != nil {
		return fsFault("the run's folder cannot be made", err)
	}
	defer runDir.close()
	_, fresh := s.fresh.Load(runID)
	if err := openAttempt(runDir, n, token, files, fresh); err != nil {
		return fsFault(fmt.Sprintf("attempt %d of %s cannot be opened", n, runID), err)
	}
	s.fresh.Delete(runID)
	if err := errors.Join(dropUnfinished(runDir, n), together(runDir.sync, root.sync)); err != nil {
		return fsFault("the run's folder cannot be synced", err)
	}
	return nil
}

// openAttempt creates the folder unless it exists. With fresh it also makes the inputs durable.
func openAttempt(runDir dir, n int, token string, files []run.ControlFile, fresh bool) error {
	name, temp := AttemptName(n), tempName(n, token)
	files = withToken(token, files)
	_, err := runDir.stat(name)
	if errors.Is(err, unix.ENOENT) {
		steps := []func() error{func() error { return build(runDir, temp, files, (*written).sync) }}
		if fresh {
			steps = append(steps, func() error { return syncInputs(runDir) })
		}
		if err = together(steps...); err == nil {
			err = moveExclusive(runDir, temp, name)
		}
		if err == nil {
			return eachControl(runDir, name, files, holds)
		}
	}
	// Only the folder's present content decides: it may have existed before, another call with the same token may have
	// been first, and on a network filesystem a successful move can report an error.
	ours, verdict := carries(runDir, name, token)
	rest := runDir.removeAll(temp)
	switch {
	case verdict != nil:
		return verdict
	case ours:
		return errors.Join(rest, eachControl(runDir, name, files[1:], writeControl))
	}
	return errors.Join(err, rest, fmt.Errorf("%s did not appear", name))
}

// tempName returns a name that is unique to a call, so that a folder half built by another call is never moved into
// place.
func tempName(n int, token string) string {
	return "." + AttemptName(n) + "." + token + "." + randomName()
}

func withToken(token string, files []run.ControlFile) []run.ControlFile {
	return append([]run.ControlFile{{Name: TokenFile, Data: []byte(token + "\n")}}, files...)
}

// eachControl calls do for every control file of an attempt folder, until it fails.
func eachControl(runDir dir, name string, files []run.ControlFile, do func(ctl dir, f run.ControlFile) error) error {
	ctl, err := runDir.sub(name + "/ctl")
	if err != nil {
		return err
	}
	defer ctl.close()
	for _, f := range files {
		if err := do(ctl, f); err != nil {
			return err
		}
	}
	return nil
}

// carries reports whether the attempt folder exists with this token. A folder with another token, or without one, is a Conflict.
func carries(runDir dir, name, token string) (bool, error) {
	if _, err := runDir.names(); err != nil { // listing bypasses a network filesystem's cache
		return false, err
	}
	if _, err := runDir.stat(name); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		return false, err
	}
	got := []byte("none")
	ctl, err := runDir.sub(name + "/ctl")
	if err == nil {
		defer ctl.close()
		got, err = ctl.read(TokenFile, 256, false)
	}
	switch {
	case err == nil && bytes.Equal(got, []byte(token+"\n")):
		return true, nil
	case err == nil, errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, errIrregular):
		return false, Ahead(name, got, token, err)
	}
	return false, err
}

// build writes the whole attempt folder under a temporary name, and then calls settle, which makes it durable or leaves
// that to a later sync. Everything is written before anything is synced.
func build(runDir dir, temp string, files []run.ControlFile, settle func(w *written, folders ...dir) error) error {
	if err := unix.Mkdirat(runDir.fd, temp, 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: temp, Err: err}
	}
	a, err := runDir.sub(temp)
	if err != nil {
		return err
	}
	defer a.close()
	if err := unix.Mkdirat(a.fd, "ctl", 0o700); err != nil {
		return &os.PathError{Op: "mkdir", Path: "ctl", Err: err}
	}
	ctl, err := a.sub("ctl")
	if err != nil {
		return err
	}
	defer ctl.close()
	var w written
	for _, f := range files {
		if err := w.add(ctl, f.Name, f.Data); err != nil {
			w.close() // the error that matters is the first
			return err
		}
	}
	return settle(&w, ctl, a)
}

// moveExclusive renames a folder unless the new name exists. A filesystem without RENAME_NOREPLACE, such as NFS, gets a plain rename,
// which replaces only an empty folder, and an attempt folder is never empty.
func moveExclusive(d dir, from, to string) error {
	err := unix.Renameat2(d.fd, from, d.fd, to, unix.RENAME_NOREPLACE)
	switch err {
	case nil:
		return nil
	case unix.ENOSYS, unix.EINVAL, unix.EPERM:
		return movePlain(d, from, to)
	}
	return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
}

func movePlain(d dir, from, to string) error {
	if _, err := d.stat(to); err == nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: unix.EEXIST}
	}
	return d.rename(from, d, to)
}

// dropUnfinished removes what crashed calls for this attempt left under temporary names. The attempt folder exists
// already, so none of them can be moved into its place any more.
func dropUnfinished(runDir dir, n int) error {
	names, err := runDir.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasPrefix(name, "."+AttemptName(n)+".") {
			if err := runDir.removeAll(name); err != nil {
				return err
			}
		}
	}
	return nil
}
