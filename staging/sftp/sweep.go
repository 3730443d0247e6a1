package sftp

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/remote/transfer"
)

const (
	// leftoverAge is how long an incomplete file stays that is not continued. A running transfer writes to its part all
	// the time.
	leftoverAge = 7 * 24 * time.Hour
	// sweepPause is the time between two sweeps of one process.
	sweepPause = 24 * time.Hour
	// sweepTime bounds a sweep. A later sweep continues.
	sweepTime = 10 * time.Second
)

var leftoverSeconds = strconv.Itoa(int(leftoverAge.Seconds()))

// tidy removes parts of interrupted transfers from the workspaces that were not continued for [leftoverAge]. It runs at
// the start, and then with gc, once a day. A failure is ignored: the next sweep tries again.
func (w *Workspace) tidy(ctx context.Context) {
	now := time.Now()
	if last := w.swept.Load(); last != nil && now.Sub(*last) < sweepPause {
		return
	}
	w.swept.Store(&now)
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	_ = w.far.sweep(ctx)
}

func (s *shelled) sweep(ctx context.Context) error {
	_, err := s.run(ctx, call{script: inputScript, name: "sweep", args: []string{leftoverSeconds}, writes: true})
	return err
}

func (a *alone) sweep(ctx context.Context) error {
	return a.do(ctx, "runs_dir cannot be swept", func(c *sftp.Client) error {
		runs, err := c.ReadDirContext(ctx, a.cfg.DataRunsDir)
		if err != nil {
			return err
		}
		return atOnce(runs, func(e fs.FileInfo) error {
			rel := path.Join(e.Name(), stageDir)
			if !strings.HasPrefix(e.Name(), "run_") || a.walk(c, rel) != nil {
				return nil
			}
			return sweepFolder(c, a.path(rel))
		})
	})
}

// sweepFolder removes old parts of files from a folder.
func sweepFolder(c *sftp.Client, dir string) error {
	list, err := c.ReadDir(dir)
	for _, e := range list {
		part := strings.HasPrefix(e.Name(), transfer.TempPrefix) || strings.HasPrefix(e.Name(), addingPrefix)
		if part && e.Mode().IsRegular() && time.Since(e.ModTime()) > leftoverAge {
			if gone := c.Remove(path.Join(dir, e.Name())); !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
		}
	}
	return err
}
