// Package sftp manages the workspaces of runs on a filesystem of the cluster that the gateway does not mount. The
// layout and the contract of every call are those of package staging.
//
// Where the cluster offers a shell, constant scripts there take all decisive steps, each in one round trip: exclusive
// folders, claims by link(2), syncing of files and folders, reading back and hashing. SFTP carries the bytes, to the
// same host or to another (dtn) that sees the same filesystem, perhaps under another path.
//
// With SFTP alone each step is a request, and less is certain: a folder cannot be synced over SFTP, and the number of a
// file's names is not shown. See alone.go.
package sftp

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/remote"
	"slurmgate/remote/transfer"
	"slurmgate/run"
	"slurmgate/staging"
)

var _ run.Workspace = (*Workspace)(nil)

// Shell runs scripts on the far side; [remote.Host] does.
type Shell interface {
	Run(ctx context.Context, c remote.Call) (remote.Output, error)
}

// Data opens SFTP channels; [remote.Host] does.
type Data interface {
	SFTP(ctx context.Context, opts ...sftp.ClientOption) (*sftp.Client, error)
}

// Config describes the far folder. It is one folder under up to three names.
type Config struct {
	RunsDir      string // as jobs see it: absolute and plain
	LoginRunsDir string // as the shell sees it; empty: RunsDir
	DataRunsDir  string // as the SFTP server sees it; empty: RunsDir
	GatewayID    string // the id in the ledger
	Marked       bool   // workspaces exist already, so a folder without the mark is refused
	JobUID       *int   // owner of what jobs write; nil: the gateway's user on the far side

	Shell Shell // nil: SFTP alone
	Data  Data
	Pool  *transfer.Pool // carries the bytes of inputs and outputs to and from Data; the caller closes it
	// SyncsFolders is the admin's statement about a server used alone: a name that it has confirmed survives its crash.
	SyncsFolders bool
}

// Workspace manages workspaces below the far folder. It is safe for concurrent use and implements [run.Workspace].
type Workspace struct {
	cfg      Config
	far      far
	channels *channels
	locks    staging.Locks
	swept    atomic.Pointer[time.Time] // when tidy ran last
}

// far is what decides: the shell, or requests over SFTP. Errors are faults.
type far interface {
	// mark marks runs_dir unless it is marked, and returns whose it is then.
	mark(ctx context.Context) ([]byte, error)
	// stage leaves in in/ only what belongs there, and reports how far each file has come.
	stage(ctx context.Context, runID string, t staging.Tree, files []input) ([]stageState, error)
	// place gives files that lie complete in .stage their names.
	place(ctx context.Context, runID string, t staging.Tree, files []input) error
	open(ctx context.Context, runID string, n int, token string, files []run.ControlFile) error
	read(ctx context.Context, runID string, n int, name string, from, limit int64) (run.Part, error)
	claim(ctx context.Context, runID string, n int, content []byte) ([]byte, error)
	// output examines a declared output.
	output(ctx context.Context, runID string, n int, rel string) (entry, error)
	// list lists the entries below out/ that are not declared.
	list(ctx context.Context, runID string, n int, declared []string) (listing, error)
	size(ctx context.Context, runID string) (int64, error)
	examine(ctx context.Context, runID string, attempts map[int]string) error
	remove(ctx context.Context, runID string, attempts map[int]string) (freed int64, err error)
	// sweep removes old parts of inputs.
	sweep(ctx context.Context) error
}

// entry is what the far side reports about a file.
type entry struct {
	mode  uint32 // as stat(2) has it
	nlink uint64
	uid   int
	size  int64
	self  int // the gateway's user id there
}

// Shell returns the shell of the workspace's login, or nil with SFTP alone.
func (w *Workspace) Shell() Shell { return w.cfg.Shell }

// New connects, checks the folder and marks it as this gateway's. A folder that another gateway marked is a Conflict
// fault with code runs_dir_of_another_gateway; a missing mark in a folder with Marked set is a Transport fault with
// code runs_dir_unavailable.
func New(ctx context.Context, cfg Config) (*Workspace, error) {
	for _, dir := range []*string{&cfg.LoginRunsDir, &cfg.DataRunsDir} {
		if *dir == "" {
			*dir = cfg.RunsDir
		}
	}
	for _, dir := range []string{cfg.RunsDir, cfg.LoginRunsDir, cfg.DataRunsDir} {
		if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" {
			return nil, fault.New(fault.Validation, "runs_dir", fmt.Sprintf("runs_dir %q is not a clean absolute path", dir))
		}
	}
	if msg := plan.CheckWord(cfg.GatewayID); msg != "" {
		return nil, fault.New(fault.Validation, "gateway_id", "the gateway id cannot be used: "+msg)
	}
	w := &Workspace{cfg: cfg, channels: newChannels(cfg.Data)}
	if cfg.Shell != nil {
		w.far = newShelled(cfg)
	} else {
		w.far = &alone{cfg: cfg, channels: w.channels}
	}
	if err := w.mark(ctx); err != nil {
		w.Close()
		return nil, err
	}
	w.tidy(ctx)
	return w, nil
}

// mark marks the folder and makes sure that the SFTP server sees the same one.
func (w *Workspace) mark(ctx context.Context) error {
	id, err := w.far.mark(ctx)
	if err == nil {
		err = staging.CheckID(w.cfg.RunsDir, w.cfg.GatewayID, id)
	}
	if err != nil || w.cfg.Shell == nil {
		return err
	}
	mark := w.onData(staging.GatewayIDFile)
	return w.channels.do(ctx, "the SFTP server cannot read "+mark, func(c *sftp.Client) error {
		got, err := readFile(c, mark, 4<<10)
		if err == nil && strings.TrimSuffix(string(got), "\n") != w.cfg.GatewayID {
			err = fault.New(fault.Validation, "runs_dir",
				fmt.Sprintf("%s on the SFTP server is not the folder that the login node has at %s", w.cfg.DataRunsDir, w.cfg.LoginRunsDir)).
				WithNext("correct storage.sftp.runs_dir in the site file")
		}
		return err
	})
}

// Close closes the SFTP channels. The hosts and the pool stay open.
func (w *Workspace) Close() { w.channels.close() }

// RunDir returns the absolute path of a run's folder as jobs see it.
func (w *Workspace) RunDir(runID string) string { return path.Join(w.cfg.RunsDir, runID) }

// onData returns a path below runs_dir as the SFTP server sees it.
func (w *Workspace) onData(parts ...string) string {
	return path.Join(append([]string{w.cfg.DataRunsDir}, parts...)...)
}

// Free returns how many bytes this user can still write to the filesystem of runs_dir, and how many files can still be
// created there. limited is false where the filesystem creates inodes on demand.
func (w *Workspace) Free(ctx context.Context) (bytes, inodes int64, limited bool, err error) {
	return Free(ctx, w.cfg.Data, w.cfg.DataRunsDir)
}

// check returns a fault if runID and n cannot be an attempt's, or if the caller has given up.
func check(ctx context.Context, runID string, n int) error {
	if err := staging.CheckAttempt(runID, n); err != nil {
		return err
	}
	return staging.Failed("the caller gave up", ctx.Err())
}
