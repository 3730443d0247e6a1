package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/apptainer"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/site"
	far "slurmgate/staging/sftp"
)

// farWorkspace opens the runs_dir of a cluster whose files are reached by SFTP, and makes one that is not used yet.
func (h *hosts) farWorkspace(ctx context.Context, s *site.Site, gatewayID string, used bool) (run.Workspace, error) {
	f := s.Storage.SFTP
	data, err := h.data(s)
	if err != nil {
		return nil, err
	}
	c := far.Config{RunsDir: s.Storage.RunsDir, LoginRunsDir: s.LoginFolders().RunsDir, DataRunsDir: f.RunsDir, GatewayID: gatewayID,
		Marked: used, Data: data, SyncsFolders: f.SyncsFolders}
	if shell, err := h.shell(s); err != nil {
		return nil, err
	} else if shell != nil {
		c.Shell = shell
	}
	ctx, stop := context.WithTimeout(ctx, farLook)
	defer stop()
	if !used {
		if err := h.farFolder(ctx, s, f.RunsDir, 0o700); err != nil {
			return nil, fault.Wrap(fault.Transport, "runs_dir_unavailable",
				"cannot create storage.runs_dir "+f.RunsDir+" on "+data.Name(), err).
				WithNext("mount its filesystem there, or create it, owned by the user of the gateway's login, mode 0700")
		}
	}
	if c.Pool, err = h.pool(s); err != nil {
		return nil, err
	}
	w, err := far.New(ctx, c)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// farFolder makes a folder with those above it, where it is missing.
func (h *hosts) farFolder(ctx context.Context, s *site.Site, dir string, mode fs.FileMode) error {
	return h.farFiles(ctx, s, func(c *sftp.Client) error {
		if _, err := c.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := c.MkdirAll(dir); err != nil {
			return err
		}
		return c.Chmod(dir, mode)
	})
}

// farFiles calls f with an SFTP channel to a site's data host.
func (h *hosts) farFiles(ctx context.Context, s *site.Site, f func(*sftp.Client) error) error {
	data, err := h.data(s)
	if err != nil {
		return err
	}
	c, err := data.SFTP(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	err = f(c)
	if cut := ctx.Err(); cut != nil {
		err = cut
	}
	return errors.Join(err, c.Close())
}

// farTraces says whose a site's runs_dir is, by its mark, or names a run in it; both are empty for a new folder.
func (h *hosts) farTraces(ctx context.Context, s *site.Site) (mark, runID string, err error) {
	ctx, stop := context.WithTimeout(ctx, farLook)
	defer stop()
	err = h.farFiles(ctx, s, func(c *sftp.Client) error {
		dir := s.Storage.SFTP.RunsDir
		f, err := c.Open(path.Join(dir, ".gateway-id"))
		if errors.Is(err, fs.ErrNotExist) {
			mark = ""
		} else if err != nil {
			return err
		} else {
			defer f.Close()
			text, err := io.ReadAll(io.LimitReader(f, 4<<10))
			if err != nil {
				return err
			}
			mark = strings.TrimSpace(string(text))
			return nil
		}
		entries, err := c.ReadDirContext(ctx, dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "run_") {
				runID = e.Name()
			}
		}
		return err
	})
	return mark, runID, err
}

// farSpace is what is free on the disk of a site's runs_dir.
func (h *hosts) farSpace(ctx context.Context, s *site.Site) (free doctor.Space, err error) {
	err = h.farFiles(ctx, s, func(c *sftp.Client) (err error) {
		free, err = doctor.FarSpace(c, s.Storage.SFTP.RunsDir)
		return err
	})
	return free, err
}

const (
	spaceAge  = 30 * time.Second // how old a figure may be before it is asked for again
	spaceWait = 5 * time.Second
)

// freeSpace is what was free on the disks of far sites when they were last asked.
type freeSpace struct {
	mu    sync.Mutex
	known map[string]spaceThen
}

type spaceThen struct {
	doctor.Space
	ok bool
	at time.Time
}

// farRoom refuses a new run while the disk of a far site has no room for it. A disk that cannot be examined refuses nothing.
func (g *gateway) farRoom(ctx context.Context, s *site.Site) error {
	if !s.FarFiles() || s.AsCaller() {
		return nil
	}
	if free, ok := g.spaceOf(ctx, s); ok {
		return doctor.FarRoom(s, free)
	}
	return nil
}

// spaceOf asks once and then at most every [spaceAge]; whoever comes meanwhile gets the last answer.
func (g *gateway) spaceOf(ctx context.Context, s *site.Site) (doctor.Space, bool) {
	g.free.mu.Lock()
	last, asked := g.free.known[s.Name]
	if asked && time.Since(last.at) < spaceAge {
		g.free.mu.Unlock()
		return last.Space, last.ok
	}
	if g.free.known == nil {
		g.free.known = map[string]spaceThen{}
	}
	last.at = time.Now()
	g.free.known[s.Name] = last // nobody else asks now
	g.free.mu.Unlock()
	if asked {
		go g.askSpace(context.WithoutCancel(ctx), s)
		return last.Space, last.ok
	}
	return g.askSpace(ctx, s)
}

func (g *gateway) askSpace(ctx context.Context, s *site.Site) (doctor.Space, bool) {
	ctx, stop := context.WithTimeout(ctx, spaceWait)
	defer stop()
	free, err := g.hosts.farSpace(ctx, s)
	g.free.mu.Lock()
	defer g.free.mu.Unlock()
	g.free.known[s.Name] = spaceThen{free, err == nil, time.Now()}
	return free, err == nil
}

// farStore is the image store of a cluster whose files are reached by SFTP.
func (h *hosts) farStore(s *site.Site) (*apptainer.FarStore, error) {
	folder, err := h.farImages(s)
	if err != nil {
		return nil, err
	}
	return apptainer.NewFarStore(folder, s.Storage.ImageStore), nil
}

// farImages is the folder of that store.
func (h *hosts) farImages(s *site.Site) (*far.Folder, error) {
	data, err := h.data(s)
	if err != nil {
		return nil, err
	}
	var shell far.Shell
	if host, err := h.shell(s); err != nil {
		return nil, err
	} else if host != nil {
		shell = host
	}
	pool, err := h.pool(s)
	if err != nil {
		return nil, err
	}
	return far.NewFolder(shell, s.LoginFolders().ImageStore, data, s.Storage.SFTP.ImageStore, pool), nil
}
