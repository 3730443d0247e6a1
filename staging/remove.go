package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"slurmgate/run"
)

// A finished run's workspace is removed so that no late job of the run executes anything, whenever it starts:
//
//	before    the claim is another job's, or the gateway's: exit 90
//	during    the list of pinned files is removed first: exit 91
//	after     a file has the name of the attempt's folder: Slurm cannot create the folder of the job's output, and never starts the script
//
// That file also shows a ledger restored from a backup that the attempt existed: OpenAttempt reports workspace_ahead_of_ledger.
//
//	<run_id>/a<n>   slurmgate-removed 1 token=<32 hex>

// RemoveRun removes a finished run's workspace except for one small file per attempt. attempts are the tokens of all
// its attempts, all of which have ended. still is called once the run can no longer be staged; unless it returns true,
// nothing happens. A workspace with an attempt that the ledger does not know is a Conflict with code
// workspace_ahead_of_ledger and is not changed. Called again after an interruption, it continues. freed is the total
// size of the removed files.
func (s *Shared) RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (freed int64,
	err error) {
	unlock, err := s.locks.Lock(ctx, runID)
	if err != nil {
		return 0, err
	}
	defer unlock()
	s.fresh.Delete(runID)
	root, err := s.root(ctx, runID, 1)
	if err != nil {
		return 0, err
	}
	defer root.close()
	runDir, err := root.mkdir(runID) // even if it was removed: the files below keep late jobs out
	if err != nil {
		return 0, fsFault("the run's folder cannot be opened", err)
	}
	defer runDir.close()
	if err := knownOnly(runDir, attempts); err != nil {
		return 0, fsFault("the run's folder cannot be examined", err)
	}
	if ok, err := still(); !ok || err != nil {
		return 0, err
	}
	for n, token := range attempts { // the job's files may fill the disk: make room for the files written below
		left, _ := emptied(ctx, runDir, n, token) // what cannot be removed yet is removed or reported below
		freed += left
	}
	for n, token := range attempts {
		if err := retire(runDir, n, token); err != nil {
			return freed, fsFault(fmt.Sprintf("attempt %d of %s cannot be removed", n, runID), err)
		}
	}
	rest, err := removeBut(ctx, runDir, IsAttemptName)
	return freed + rest, fsFault("the workspace of "+runID+" cannot be removed", err)
}

// emptied disarms an ended attempt and removes the content of its folder, without the entries that identify the
// attempt.
func emptied(ctx context.Context, runDir dir, n int, token string) (freed int64, err error) {
	if err := disarm(runDir, AttemptName(n), token); err != nil {
		return 0, err
	}
	for _, folder := range []string{"", "/ctl"} {
		d, err := runDir.sub(AttemptName(n) + folder)
		if err != nil {
			return freed, err
		}
		left, err := removeBut(ctx, d, Identifies)
		d.close()
		freed += left
		if err != nil {
			return freed, err
		}
	}
	return freed, nil
}

// Identifies reports whether an entry of an attempt's folder, or of its control folder, is kept until a file replaces
// the folder: it identifies the attempt, and keeps its jobs out.
func Identifies(name string) bool { return name == "ctl" || name == TokenFile || name == run.ClaimFile }

// knownOnly checks that everything with an attempt's name belongs to one of these attempts, by its token.
func knownOnly(runDir dir, attempts map[int]string) error {
	names, err := runDir.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !IsAttemptName(name) {
			continue
		}
		n, _ := strconv.Atoi(name[1:]) // it has the form
		token, known := attempts[n]
		if !known {
			return Unknown(name)
		}
		if gone, err := isGone(runDir, name, token); gone || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := carries(runDir, name, token); err != nil {
			return err
		}
	}
	return nil
}

// isGone reports whether the attempt was removed before.
func isGone(runDir dir, name, token string) (bool, error) {
	st, err := runDir.stat(name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return false, err
	}
	got, err := runDir.read(name, 256, false)
	return err == nil && string(got) == string(GoneFile(token)), err
}

// retire replaces an ended attempt's folder by a file, atomically where the filesystem supports it. The folder gets
// another name, to be removed.
func retire(runDir dir, n int, token string) error {
	name := AttemptName(n)
	if gone, err := isGone(runDir, name, token); gone || err != nil {
		return err
	}
	if err := disarm(runDir, name, token); err != nil {
		return err
	}
	temp := ".gone." + name + "." + randomName()
	if err := runDir.write(temp, GoneFile(token)); err != nil {
		return err
	}
	for range 10 {
		err := unix.Renameat2(runDir.fd, name, runDir.fd, temp, unix.RENAME_EXCHANGE)
		if err == nil {
			return runDir.sync()
		}
		if err != unix.ENOENT { // this filesystem cannot exchange two names: move the folder away first
			if err := runDir.rename(name, runDir, temp+".d"); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		// A job that starts between the two steps makes Slurm create the folder again; it holds no pinned files.
		if err := moveExclusive(runDir, temp, name); err == nil {
			return runDir.sync()
		}
		if st, err := runDir.stat(name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			if err := runDir.rename(name, runDir, ".gone."+name+"."+randomName()); err != nil {
				return err
			}
		}
	}
	return &os.PathError{Op: "rename", Path: name, Err: unix.EBUSY}
}

// disarm makes sure that no job can execute an ended attempt that still exists: its claim is taken, and nothing is pinned.
func disarm(runDir dir, name, token string) error {
	ctl, err := runDir.sub(name + "/ctl")
	if errors.Is(err, unix.ENOENT) {
		return nil // never opened, or already removed
	}
	if err != nil {
		return err
	}
	defer ctl.close()
	if _, err := ctl.stat(run.ClaimFile); errors.Is(err, unix.ENOENT) {
		if _, err := ctl.linked(".claim.gateway."+randomName(), run.ClaimFile, run.VoidClaim(token), MaxClaim); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return errors.Join(ctl.unlink(run.PinnedFile), ctl.sync())
}

// removeBut removes everything in a folder except the given names.
func removeBut(ctx context.Context, d dir, keep func(string) bool) (freed int64, err error) {
	names, err := d.names()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return freed, err
		}
		if keep(name) {
			continue
		}
		n, err := d.size(ctx, name, maxDepth)
		if err != nil {
			return freed, err
		}
		if err := d.removeAll(name); err != nil {
			return freed, err
		}
		freed += n
	}
	return freed, d.sync()
}

// maxDepth bounds the depth of measured folders; only a hostile job nests them deeper.
const maxDepth = 200

// size adds up the bytes of files at and below a name. Entries that vanish meanwhile or cannot be read count as 0.
func (d dir) size(ctx context.Context, name string, depth int) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	st, err := d.stat(name)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return st.Size, err
	}
	sub, err := d.sub(name)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || depth == 0 {
		sub.close()
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(sub.fd), name) // closes the folder
	defer f.Close()
	for total := int64(0); ; {
		names, err := f.Readdirnames(clearNames)
		for _, n := range names {
			more, err := sub.size(ctx, n, depth-1)
			if err != nil {
				return total, err
			}
			total += more
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// RunSize adds up the bytes of a run's files; 0 when it has none.
func (s *Shared) RunSize(ctx context.Context, runID string) (int64, error) {
	root, err := s.root(ctx, runID, 1)
	if err != nil {
		return 0, err
	}
	defer root.close()
	n, err := root.size(ctx, runID, maxDepth)
	return n, fsFault("the run's folder cannot be read", err)
}
