package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/run"
)

// A finished run's workspace is removed so that no job of it that comes late executes anything, whenever it comes:
//
//	before    the claim is another's, or the gateway's own: exit 90
//	meanwhile the list of pinned files is gone first: exit 91
//	after     a file has the name of the attempt's folder: Slurm cannot make the folder of the job's output, and never starts the script
//
// That file also tells a ledger restored from a backup that the attempt was made: OpenAttempt says workspace_ahead_of_ledger.
//
//	<run_id>/a<n>   slurmgate-removed 1 token=<32 hex>

// goneFile is what stays where an attempt was.
func goneFile(token string) []byte { return []byte("slurmgate-removed 1 token=" + token + "\n") }

// RemoveRun removes a finished run's workspace but for one small file for each attempt. attempts are the tokens of all its attempts, every one
// ended. still is asked when nobody can stage the run any more; unless it says yes, nothing happens. A workspace with an attempt the ledger does not
// know is a Conflict with code workspace_ahead_of_ledger and stays as it is. Called again after it was cut short, it goes on. freed counts
// the bytes of the files.
func (s *Shared) RemoveRun(ctx context.Context, runID string, attempts map[int]string, still func() (bool, error)) (freed int64, err error) {
	const op = "staging.RemoveRun"
	if err := checkRun(op, runID, 1); err != nil {
		return 0, err
	}
	unlock, err := s.lock(ctx, runID)
	if err != nil {
		return 0, err
	}
	defer unlock()
	root, err := s.root(ctx, op)
	if err != nil {
		return 0, err
	}
	defer root.close()
	runDir, err := root.mkdir(runID) // also where somebody else removed it: the files below are what keeps late jobs out
	if err != nil {
		return 0, fsFault(op, "the run's folder cannot be opened", err)
	}
	defer runDir.close()
	if err := knownOnly(runDir, attempts); err != nil {
		return 0, fsFault(op, "the run's folder cannot be examined", err)
	}
	if ok, err := still(); !ok || err != nil {
		return 0, err
	}
	for n, token := range attempts {
		if err := retire(runDir, n, token); err != nil {
			return freed, fsFault(op, fmt.Sprintf("attempt %d of %s cannot be removed", n, runID), err)
		}
	}
	freed, err = removeBut(ctx, runDir, isAttemptName)
	return freed, fsFault(op, "the workspace of "+runID+" cannot be removed", err)
}

// knownOnly makes sure that everything with an attempt's name is of one of these attempts, by its token.
func knownOnly(runDir dir, attempts map[int]string) error {
	names, err := runDir.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !isAttemptName(name) {
			continue
		}
		n, _ := strconv.Atoi(name[1:]) // it has the form
		token, known := attempts[n]
		if !known {
			return fault.New(fault.Conflict, "staging.knownOnly", "workspace_ahead_of_ledger", "the ledger knows no attempt "+name).
				WithNext("find out which ledger opened this attempt; it is left as it is")
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

// isGone tells whether the attempt was removed before.
func isGone(runDir dir, name, token string) (bool, error) {
	st, err := runDir.stat(name)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		if errors.Is(err, unix.ENOENT) {
			err = nil
		}
		return false, err
	}
	got, err := runDir.read(name, 256, false)
	return err == nil && string(got) == string(goneFile(token)), err
}

// retire puts a file where an ended attempt's folder is, in one step where the filesystem can. The folder gets another name, to be removed.
func retire(runDir dir, n int, token string) error {
	name := attemptName(n)
	if gone, err := isGone(runDir, name, token); gone || err != nil {
		return err
	}
	if err := disarm(runDir, name, token); err != nil {
		return err
	}
	temp := ".gone." + name + "." + randomName()
	if err := runDir.write(temp, goneFile(token)); err != nil {
		return err
	}
	for range 10 {
		err := unix.Renameat2(runDir.fd, name, runDir.fd, temp, unix.RENAME_EXCHANGE)
		if err == nil {
			return runDir.sync()
		}
		if err != unix.ENOENT { // this filesystem cannot exchange: away with the folder first
			if err := runDir.rename(name, runDir, temp+".d"); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		// A job that starts between the two steps has Slurm make the folder again; nothing is pinned there.
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

// disarm makes sure that no job can execute an ended attempt that is still there: nobody else can take its claim, and nothing is pinned.
func disarm(runDir dir, name, token string) error {
	ctl, err := runDir.sub(name + "/ctl")
	if errors.Is(err, unix.ENOENT) {
		return nil // never opened, or removed by somebody else
	}
	if err != nil {
		return err
	}
	defer ctl.close()
	if _, err := ctl.stat(run.ClaimFile); errors.Is(err, unix.ENOENT) {
		if _, err := ctl.linked(".claim.gateway."+randomName(), run.ClaimFile, run.VoidClaim(token), maxClaim); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return errors.Join(ctl.unlink(run.PinnedFile), ctl.sync())
}

func isAttemptName(name string) bool {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "a"))
	return err == nil && n > 0 && name == attemptName(n)
}

// removeBut removes what is in a folder but what is kept.
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
		n, err := d.size(name, maxDepth)
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

// maxDepth is how deep folders are measured; below, a job made them to annoy.
const maxDepth = 200

// size adds up the bytes of files at and below a name. What vanishes meanwhile, and what cannot be read, counts nothing.
func (d dir) size(name string, depth int) (int64, error) {
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
			more, err := sub.size(n, depth-1)
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
	const op = "staging.RunSize"
	if err := checkRun(op, runID, 1); err != nil {
		return 0, err
	}
	root, err := s.root(ctx, op)
	if err != nil {
		return 0, err
	}
	defer root.close()
	n, err := root.size(runID, maxDepth)
	return n, fsFault(op, "the run's folder cannot be read", err)
}
