// Package staging manages the workspaces of runs on a filesystem that the gateway and the compute nodes share.
//
//	<runs_dir>/.gateway-id                   the one gateway this folder serves
//	<runs_dir>/<run_id>/in/                  private, verified copies of the inputs (files 0400)
//	<runs_dir>/<run_id>/.stage/              inputs being copied; empty between calls
//	<runs_dir>/<run_id>/a<n>/{out,meta,tmp}  bound into the container; the job makes them
//	<runs_dir>/<run_id>/a<n>/ctl/            token, claim, script, exit, manifest, logs; never bound
//
// Folders have mode 0700, files 0600. A job may leave any entry below its folders, so every path is resolved below an
// open descriptor and never through a symlink, and the properties of an entry are read from its open descriptor. What a
// call writes is durable when the call returns, except for new inputs, see [Shared.StageInputs].
package staging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

var _ run.Workspace = (*Shared)(nil)

// Config describes the shared folder.
type Config struct {
	RunsDir   string // absolute; an existing folder of ours, not writable by others, the same path on every node
	GatewayID string // the id in the ledger
	Marked    bool   // workspaces exist already, so a folder without the mark is refused
	JobUID    *int   // owner of what jobs write; nil: our own user
}

// Shared manages workspaces below one folder. It is safe for concurrent use and implements [run.Workspace].
type Shared struct {
	cfg    Config
	jobUID int
	locks  Locks
	fresh  sync.Map // the runs whose inputs are not durable yet
}

// NewShared checks the folder and marks it as this gateway's. A folder that another gateway marked is a Conflict fault
// with code runs_dir_of_another_gateway; a missing mark in a folder with Marked set is a Transport fault with code
// runs_dir_unavailable.
func NewShared(cfg Config) (*Shared, error) {
	if !filepath.IsAbs(cfg.RunsDir) || filepath.Clean(cfg.RunsDir) != cfg.RunsDir || cfg.RunsDir == "/" {
		return nil, fault.New(fault.Validation, "runs_dir", fmt.Sprintf("runs_dir %q is not a clean absolute path", cfg.RunsDir))
	}
	if msg := plan.CheckWord(cfg.GatewayID); msg != "" {
		return nil, fault.New(fault.Validation, "gateway_id", "the gateway id cannot be used: "+msg)
	}
	s := &Shared{cfg: cfg, jobUID: os.Geteuid()}
	if cfg.JobUID != nil {
		s.jobUID = *cfg.JobUID
	}
	if _, err := os.Lstat(filepath.Join(cfg.RunsDir, GatewayIDFile)); cfg.Marked && errors.Is(err, os.ErrNotExist) {
		return nil, Unmarked(cfg.RunsDir, cfg.GatewayID)
	}
	root, err := openRoot(cfg.RunsDir)
	if err != nil {
		return nil, err
	}
	defer root.close()
	id, err := root.linked(GatewayIDFile+"."+randomName(), GatewayIDFile, []byte(cfg.GatewayID+"\n"), 4<<10)
	if err != nil {
		return nil, fsFault("runs_dir cannot be marked", err)
	}
	if err := s.checkID(id); err != nil {
		return nil, err
	}
	return s, nil
}

// openRoot opens runs_dir by its path, in which an admin may use symlinks, and checks its owner.
func openRoot(path string) (dir, error) {
	bad := func(msg, next string) (dir, error) {
		return dir{}, fault.New(fault.Validation, "runs_dir", "runs_dir "+path+" "+msg).WithNext(next)
	}
	fd, err := unix.Open(path, openDirFlags|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
		return bad("does not exist", "create it, owned by the gateway's user, mode 0700")
	case errors.Is(err, unix.ENOTDIR):
		return bad("is not a folder", "name a folder in the site file")
	case err != nil:
		return dir{}, fsFault("runs_dir cannot be opened", &os.PathError{Op: "open", Path: path, Err: err})
	}
	d := dir{fd}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		d.close()
		return dir{}, fsFault("runs_dir cannot be examined", err)
	}
	switch {
	case int(st.Uid) != os.Geteuid():
		d.close()
		return bad(fmt.Sprintf("belongs to user %d, not to the gateway's user %d", st.Uid, os.Geteuid()), "chown it, or name another folder")
	case st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0:
		d.close()
		return bad(fmt.Sprintf("can be written by others (mode %04o)", st.Mode&0o7777), "chmod go-w "+path)
	}
	return d, nil
}

func (s *Shared) checkID(content []byte) error {
	return CheckID(s.cfg.RunsDir, s.cfg.GatewayID, content)
}

// root opens runs_dir for a call about an attempt.
func (s *Shared) root(ctx context.Context, runID string, n int) (dir, error) {
	if err := CheckAttempt(runID, n); err != nil {
		return dir{}, err
	}
	return s.runsDir(ctx)
}

// attempt opens the folder of an attempt, or one in it.
func (s *Shared) attempt(ctx context.Context, runID string, n int, rel string) (dir, error) {
	root, err := s.root(ctx, runID, n)
	if err != nil {
		return dir{}, err
	}
	defer root.close()
	a, err := root.sub(path.Join(runID, AttemptName(n), rel))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) { // a removed attempt is a file
		return dir{}, AttemptMissing(runID, n, err)
	}
	return a, fsFault("the attempt's folder cannot be opened", err)
}

// runsDir opens runs_dir. The mark is read every time: an unmounted filesystem would otherwise look like a folder in
// which no run has left anything. The problem may be temporary, so it is a Transport fault, code runs_dir_unavailable.
func (s *Shared) runsDir(ctx context.Context) (dir, error) {
	if err := done(ctx); err != nil {
		return dir{}, err
	}
	gone := func(err error) error {
		if isFault(err) { // another gateway's folder: the fault already has the next step
			return fault.Wrap(fault.Transport, "runs_dir_unavailable", "runs_dir is no longer the same folder", err)
		}
		return fault.Wrap(fault.Transport, "runs_dir_unavailable", "runs_dir "+s.cfg.RunsDir+" is missing or no longer the same folder", err).
			WithNext("check that the shared filesystem is mounted")
	}
	fd, err := unix.Open(s.cfg.RunsDir, openDirFlags|unix.O_CLOEXEC, 0)
	if err != nil {
		return dir{}, gone(err)
	}
	d := dir{fd}
	id, err := d.read(GatewayIDFile, 4<<10, false)
	if err == nil {
		err = s.checkID(id)
	}
	if err != nil {
		d.close()
		return dir{}, gone(err)
	}
	return d, nil
}

// RunDir returns the absolute path of a run's folder as jobs see it.
func (s *Shared) RunDir(runID string) string { return filepath.Join(s.cfg.RunsDir, runID) }

// Mark returns the id of the gateway that a runs_dir belongs to, or "" if it has no mark or does not exist.
func Mark(runsDir string) (gatewayID string, err error) {
	fd, err := unix.Open(runsDir, openDirFlags|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", &os.PathError{Op: "open", Path: runsDir, Err: err}
	}
	d := dir{fd}
	defer d.close()
	id, err := d.read(GatewayIDFile, 4<<10, false)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	return strings.TrimSuffix(string(id), "\n"), err
}
