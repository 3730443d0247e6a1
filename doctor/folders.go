package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/app"
	"slurmgate/shell"
	"slurmgate/staging"
)

const stateDir, runsDir, runsDirWrite = "state_dir", "runs_dir", "runs_dir_write"

// fileChecks returns the checks of the gateway's own folders.
func fileChecks() []Check {
	in := []string{stateDir}
	return []Check{{
		Code: stateDir, Proves: "gateway.state_dir belongs to the service's user, and no other user can write to it.", Where: Gateway,
		Stops: true, Early: true,
		Remedy: "sudo install -d -o slurmgate -g slurmgate -m 0700 DIR",
		Look: func(_ context.Context, x *Exam) []Result {
			return x.folder("gateway.state_dir", x.Site.Gateway.StateDir, 0)
		},
	}, {
		Code: "state_files", Proves: "The files in gateway.state_dir belong to the service's user, who can write them.", Where: Gateway,
		Stops: true,
		Early: true, Needs: in, Remedy: "sudo chown -R slurmgate: DIR",
		Look: func(_ context.Context, x *Exam) []Result { return x.stateFiles(x.Site.Gateway.StateDir) },
	}, {
		Code: "state_dir_disk", Proves: "gateway.state_dir is on a local disk, as SQLite needs it.", Where: Gateway, Stops: true, Early: true,
		Needs:  in,
		Remedy: "set gateway.state_dir to a folder on a local disk",
		Look:   func(_ context.Context, x *Exam) []Result { return localDisk(x.Site.Gateway.StateDir) },
	}, {
		Code: "ledger_sync", Proves: "The gateway can write to gateway.state_dir, and a synced write takes as long as a disk needs.",
		Where: Gateway, Alone: true,
		Needs: in, Remedy: "check whether the hypervisor or disk controller ignores flushes",
		Look: func(_ context.Context, x *Exam) []Result { return synced(x.Site.Gateway.StateDir) },
	}, {
		Code: "artifact_dir", Proves: "gateway.artifact_dir belongs to the service's user, who can write to it; no other user can.",
		Where: Gateway, Stops: true, Early: true, Remedy: "sudo install -d -o slurmgate -g slurmgate -m 0700 DIR",
		Look: func(_ context.Context, x *Exam) []Result {
			return x.folder("gateway.artifact_dir", x.Site.Gateway.ArtifactDir, 0)
		},
	}, {
		Code: "socket", Proves: "The gateway can make its socket: the folder of gateway.socket is there, and nothing else is in its place.",
		Where: Gateway, Stops: true, Early: true, Remedy: "set gateway.socket to a path in a folder of the service's user",
		Look: func(_ context.Context, x *Exam) []Result { return x.socket(x.Site.Gateway.Socket) },
	}}
}

// clusterFileChecks returns the checks of the folders to which the gateway writes for a cluster.
func clusterFileChecks() []Check {
	return []Check{{
		Code: runsDir, Proves: "storage.runs_dir belongs to the service's user, and no other user can write to it.",
		Where: Gateway, Cluster: true,
		Early: true, Over: fileSide, Only: asSelf, Remedy: "sudo install -d -o slurmgate -g slurmgate -m 0700 DIR",
		Needs: []string{sftpServer, userFolder},
		Look:  func(ctx context.Context, x *Exam) []Result { return x.runsFolder().owner(ctx) },
	}, {
		Code: ledgerRuns, Proves: "storage.runs_dir is the one that the ledger knows: its mark and its runs are the ledger's.", Where: Gateway,
		Cluster: true, Over: fileSide, Only: asSelf, Needs: []string{runsDir, ledgerCode},
		Remedy: "mount the right filesystem, or restore the ledger that belongs to it",
		Look:   ledgerAndRuns,
	}, {
		Code: runsDirWrite, Proves: "The gateway can write to storage.runs_dir, whose filesystem other hosts can see.", Where: Gateway,
		Alone:   true,
		Cluster: true, Needs: []string{runsDir, ledgerRuns}, Remedy: "mount the filesystem of storage.runs_dir writable",
		Over: fileSide, Only: asSelf,
		Look: func(ctx context.Context, x *Exam) []Result { return x.runsFolder().write(ctx) },
	}, {
		Code: "runs_dir_links", Proves: "link(2) is exclusive in storage.runs_dir, as claims need it.", Where: Gateway, Alone: true,
		Cluster: true,
		Needs:   []string{runsDirWrite}, Remedy: "choose another filesystem for storage.runs_dir: claims need hard links",
		Over: fileSide, Only: asSelf,
		Look: func(ctx context.Context, x *Exam) []Result { return x.runsFolder().links(ctx) },
	}, {
		Code: "clock_runs_dir", Proves: "The clock of storage.runs_dir's filesystem is that of this host.", Where: Gateway, Alone: true,
		Cluster: true,
		Needs:   []string{runsDirWrite}, Remedy: "let chrony or ntpd keep the time on this host and on the file server",
		Over: fileSide, Only: asSelf,
		Look: func(ctx context.Context, x *Exam) []Result { return x.runsFolder().clock(ctx) },
	}, {
		Code: "disk_space", Proves: "Each disk of the gateway has more free space than storage.reserve_mb.", Where: Gateway, Cluster: true,
		Early: true, Remedy: "free space, or lower storage.reserve_mb",
		Look: func(_ context.Context, x *Exam) []Result { return x.disks(spaceLeft) },
	}, {
		Code: "disk_space_far", Proves: "The disk of a storage.runs_dir elsewhere has more free space than storage.reserve_mb, and inodes left.",
		Where: Data, Cluster: true, Only: sftpRuns, Over: fileSide, Needs: []string{runsDir},
		Remedy: "free space there, or lower storage.reserve_mb",
		Look:   farDisk,
	}, {
		Code: "disk_inodes", Proves: "Each disk of the gateway has inodes left for new files.", Where: Gateway, Cluster: true, Early: true,
		Remedy: "remove files that are not needed, or make the filesystem with more inodes",
		Look:   func(_ context.Context, x *Exam) []Result { return x.disks(inodesLeft) },
	}}
}

// folder checks the owner and mode of one of the gateway's folders. It is not created here: one that is missing is fine if the service can
// create it. A bit of allow makes a folder acceptable that others can write to.
func (x *Exam) folder(field, dir string, allow uint32) []Result {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return x.creatable(field, dir)
	case err != nil:
		return bad("give "+x.User.name+" access to the folders above "+dir, "%s: %v", field, &os.PathError{Op: "stat", Path: dir, Err: err})
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return bad("set "+field+" to a folder", "%s: %s is not a folder", field, dir)
	case int(st.Uid) != x.User.uid:
		return bad("sudo chown "+x.User.both()+" "+shell.Quote(dir)+", or set "+field+" to a folder of "+x.User.name,
			"%s belongs to %s, but the gateway runs as %s", dir, userName(int(st.Uid)), x.User.name)
	case st.Mode&0o022 != 0 && st.Mode&allow == 0:
		return bad("sudo chmod go-w "+shell.Quote(dir), "%s has mode %04o: other users can write to it", dir, st.Mode&0o7777)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return bad("mount its filesystem writable, or: sudo chmod u+rwx "+shell.Quote(dir), "%s cannot write to %s: %v", x.User.name, dir, err)
	}
	return ok("%s", dir)
}

// creatable judges a folder that does not exist yet, by the folder above it.
func (x *Exam) creatable(field, dir string) []Result {
	above := nearest(dir)
	if err := unix.Access(above, unix.W_OK|unix.X_OK); err != nil {
		return bad(x.User.install(dir), "%s %s does not exist, and %s cannot create it in %s: %v", field, dir, x.User.name, above, err)
	}
	return ok("%s does not exist yet; the gateway creates it when it starts", dir)
}

// nearest returns the closest folder above a path that exists.
func nearest(path string) string {
	for path != "/" {
		path = filepath.Dir(path)
		if _, err := os.Stat(path); err == nil {
			break
		}
	}
	return path
}

// existing returns the path, or the closest folder above it that exists.
func existing(path string) string {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nearest(path)
	}
	return path
}

// stateFiles checks who owns the files of the ledger: one call as root, by hand, is enough to lock the service out.
func (x *Exam) stateFiles(dir string) []Result {
	n := 0
	for _, name := range []string{"ledger.db", "ledger.db-wal", "ledger.db-shm", "gateway.lock", "locks", "local"} {
		path := filepath.Join(dir, name)
		var st unix.Stat_t
		err := unix.Lstat(path, &st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		n++
		next := "sudo chown -R " + x.User.both() + " " + shell.Quote(dir)
		switch {
		case err != nil:
			return bad(next, "%v", &os.PathError{Op: "stat", Path: path, Err: err})
		case int(st.Uid) != x.User.uid:
			return bad(next, "%s belongs to %s, but the gateway runs as %s", path, userName(int(st.Uid)), x.User.name)
		}
		if err := unix.Access(path, unix.W_OK); err != nil {
			return bad("sudo chmod u+w "+shell.Quote(path), "%s cannot write %s: %v", x.User.name, path, err)
		}
	}
	return ok("%s in %s", plural(n, "file"), dir)
}

// socket checks the place of the socket, and who serves it.
func (x *Exam) socket(path string) []Result {
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err != nil && errors.Is(err, os.ErrNotExist) {
		r := x.creatable("the folder of gateway.socket,", dir)
		if r[0].Status != app.CheckOK {
			r[0].Remedy += "; below /run, let the unit make it (RuntimeDirectory=), because /run is empty after a reboot"
		}
		return r
	} else if err != nil || !st.IsDir() {
		return bad("set gateway.socket to a path in a folder", "the folder of gateway.socket, %s, cannot be used: %v", dir, err)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return bad("sudo chown "+x.User.both()+" "+shell.Quote(dir)+", or set gateway.socket to a path in a folder of "+x.User.name,
			"%s cannot create the socket in %s: %v", x.User.name, dir, err)
	}
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); {
	case errors.Is(err, unix.ENOENT):
		return ok("%s can be created", path)
	case err != nil:
		return bad("", "%v", &os.PathError{Op: "stat", Path: path, Err: err})
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return bad("move "+path+" away, or set gateway.socket to another path", "%s is in the place of the gateway's socket, and is no socket",
			path)
	case int(st.Uid) != x.User.uid:
		return bad("set gateway.socket to another path, or stop the program of that user", "%s is a socket of %s", path, userName(int(st.Uid)))
	}
	if pid := serving(path); pid > 0 {
		return ok("%s, served by pid %d", path, pid)
	}
	return ok("%s, on which nothing listens", path)
}

// localDisk refuses a network filesystem.
func localDisk(dir string) []Result {
	dir = existing(dir)
	name, network, err := staging.Filesystem(dir)
	switch {
	case err != nil:
		return failed("", err)
	case network:
		return bad("", "%s is on %s, a network filesystem", dir, name)
	}
	return ok("%s is on %s", dir, name)
}

// Differences of two clocks of which doctor warns, and which are a fault: munge's credentials and network filesystems bear little more.
const (
	clockDrift = 5 * time.Second
	clockOff   = 30 * time.Second
)

// skew judges a clock that showed a time between two times of this host.
func skew(whose string, shown, before, after time.Time) []Result {
	off := time.Duration(0)
	switch {
	case shown.Before(before):
		off = shown.Sub(before)
	case shown.After(after):
		off = shown.Sub(after)
	}
	ahead := "ahead of"
	if off < 0 {
		ahead = "behind"
	}
	switch d := off.Abs(); {
	case d >= clockOff:
		return bad("", "the clock of %s is %s %s this host's", whose, d.Round(time.Second), ahead)
	case d >= clockDrift:
		return warning("", "the clock of %s is %s %s this host's", whose, d.Round(time.Second), ahead)
	}
	return ok("the clock of %s agrees with this host's", whose)
}

// synced times the syncs on which the ledger depends. No program can prove that a disk keeps what it reports as
// written, but a sync that is faster than any disk was not passed on.
func synced(dir string) []Result {
	dir = existing(dir)
	name, _, _ := staging.Filesystem(dir) // state_dir_disk reports the error
	each, err := syncTime(dir)
	switch {
	case err != nil:
		return failed("set gateway.state_dir to a disk that can be synced", err)
	case name == "tmpfs" || name == "ramfs":
		return warning("set gateway.state_dir to a disk", "%s is in memory: the ledger does not survive a restart of this host", dir)
	case each < 15*time.Microsecond:
		return warning("", "a synced write takes %s, which is faster than a disk: syncs may be ignored", each)
	}
	return ok("a synced write takes %s", each)
}

// syncTime returns the median time of a few small synced writes.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, ".doctor-sync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var took []time.Duration
	for range 25 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)/2].Round(time.Microsecond), nil
}
