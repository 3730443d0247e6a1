package transport

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/apptainer"
	"slurmgate/cached"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/staging"
	far "slurmgate/staging/sftp"
)

// farWorkspace opens the runs_dir of a cluster whose files are reached by SFTP. Unless it is used already, it creates a
// missing one.
func (h *Hosts) farWorkspace(ctx context.Context, s *site.Site, gatewayID string, used bool) (run.Workspace, error) {
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

// farFolder creates a missing folder and its parents.
func (h *Hosts) farFolder(ctx context.Context, s *site.Site, dir string, mode fs.FileMode) error {
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
func (h *Hosts) farFiles(ctx context.Context, s *site.Site, f func(*sftp.Client) error) error {
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

// farTraces returns the mark of a site's runs_dir, or a run in it; both are empty for a new folder.
func (h *Hosts) farTraces(ctx context.Context, s *site.Site) (mark, runID string, err error) {
	ctx, stop := context.WithTimeout(ctx, farLook)
	defer stop()
	err = h.farFiles(ctx, s, func(c *sftp.Client) (err error) {
		dir := s.Storage.SFTP.RunsDir
		if mark, err = doctor.FarMark(c, dir); mark != "" || err != nil {
			return err
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

// farSpace returns the free space on the disk of a site's runs_dir.
func (h *Hosts) farSpace(ctx context.Context, s *site.Site) (free doctor.Space, err error) {
	err = h.farFiles(ctx, s, func(c *sftp.Client) (err error) {
		free, err = doctor.FarSpace(c, s.Storage.SFTP.RunsDir)
		return err
	})
	return free, err
}

const (
	spaceAge  = 30 * time.Second // age at which a figure is queried again
	spaceWait = 5 * time.Second
)

// Room returns a fault while a disk of the site has no room for a new run. A disk that cannot be examined counts as
// free.
func (x *Sites) Room(ctx context.Context, s *site.Site) error {
	if err := doctor.Room(s, ownRunsDir(s)); err != nil || !s.FarFiles() || s.AsCaller() {
		return err
	}
	if free, ok := x.space(ctx, s); ok {
		return doctor.FarRoom(s, free)
	}
	return nil
}

// FreeForRuns returns the free bytes where the runs of a site are. They are unknown if each user has a separate folder,
// perhaps with a quota.
func (x *Sites) FreeForRuns(ctx context.Context, s *site.Site) (bytes int64, known bool) {
	if s.FarFiles() && !s.AsCaller() {
		free, ok := x.space(ctx, s)
		return free.Bytes, ok
	}
	dir := ownRunsDir(s)
	if dir == "" {
		return 0, false
	}
	free, err := staging.Free(dir)
	return free, err == nil
}

// ownRunsDir returns storage.runs_dir where it is a folder of the gateway on this host, else an empty text.
func ownRunsDir(s *site.Site) string {
	if s.FarFiles() || s.AsCaller() {
		return ""
	}
	return s.Storage.RunsDir
}

// RunsDirs lists the folders on this host in which the gateway keeps runs.
func RunsDirs(s *site.Site) (dirs []string) {
	for _, c := range s.All() {
		if dir := ownRunsDir(c); dir != "" {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// space returns the last known free space on the disk of a far site. The first caller waits for the answer.
func (x *Sites) space(ctx context.Context, s *site.Site) (doctor.Space, bool) {
	known, _ := x.free.LoadOrStore(s.Name, &cached.Value[doctor.Space]{})
	look := func() cached.State[doctor.Space] {
		return known.(*cached.Value[doctor.Space]).Look(time.Now, cached.Rule{Fresh: spaceAge, Pause: spaceAge, Limit: spaceWait}, false,
			func(ctx context.Context) (doctor.Space, error) { return x.Hosts.farSpace(ctx, s) })
	}
	free := look()
	if free.Busy != nil && free.At.IsZero() && free.Wait(ctx, spaceWait) {
		free = look()
	}
	return free.Value, free.Err == nil && !free.At.IsZero()
}

// farStore returns the image store of a cluster whose files are reached by SFTP.
func (h *Hosts) farStore(s *site.Site) (*apptainer.FarStore, error) {
	folder, err := h.farImages(s)
	if err != nil {
		return nil, err
	}
	return apptainer.NewFarStore(folder, s.Storage.ImageStore), nil
}

// farImages returns the folder of the image store of farStore.
func (h *Hosts) farImages(s *site.Site) (*far.Folder, error) {
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
