package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/staging"
)

const stateDir, runsDir = "state_dir", "runs_dir"

// fileChecks are the checks of the gateway's own folders.
func fileChecks() []Check {
	return []Check{{
		Code: stateDir, Proves: "gateway.state_dir exists, belongs to the gateway's user, and nobody else can write to it.", Where: Gateway,
		Remedy: "create gateway.state_dir, owned by the gateway's user, with mode 0700",
		Look:   func(_ context.Context, x *Exam) []Result { return folder(x.Site.Gateway.StateDir, 0) },
	}, {
		Code: "state_dir_disk", Proves: "gateway.state_dir is on a local disk, as SQLite needs it.", Where: Gateway, Needs: []string{stateDir},
		Remedy: "set gateway.state_dir to a folder on a local disk",
		Look:   func(_ context.Context, x *Exam) []Result { return localDisk(x.Site.Gateway.StateDir) },
	}, {
		Code: "ledger_sync", Proves: "A synced write to gateway.state_dir takes as long as a disk needs.", Where: Gateway,
		Needs:  []string{stateDir},
		Remedy: "check whether the hypervisor or disk controller ignores flushes",
		Look:   func(_ context.Context, x *Exam) []Result { return synced(x.Site.Gateway.StateDir) },
	}}
}

// clusterFileChecks are the checks of what the gateway writes to for a cluster.
func clusterFileChecks() []Check {
	return []Check{{
		Code: runsDir, Proves: "storage.runs_dir exists, belongs to the gateway's user, and nobody else can write to it.", Where: Gateway,
		Cluster: true, Remedy: "create storage.runs_dir, owned by the gateway's user, with mode 0700",
		Look: func(_ context.Context, x *Exam) []Result { return folder(x.Cluster.Storage.RunsDir, unix.S_ISVTX) },
	}, {
		Code: "disk_space", Proves: "Each disk of the gateway has more free space than storage.reserve_mb.", Where: Gateway, Cluster: true,
		Needs: []string{runsDir}, Remedy: "free space, or lower storage.reserve_mb",
		Look: func(_ context.Context, x *Exam) []Result {
			if err := Room(x.Cluster); err != nil {
				return failed("", err)
			}
			return ok("each disk has more than storage.reserve_mb (%d MiB) free", x.Cluster.Storage.ReserveMB)
		},
	}, {
		Code: "runs_dir_links", Proves: "link(2) is exclusive in storage.runs_dir, as claims need it.", Where: Gateway, Cluster: true,
		Needs: []string{runsDir}, Remedy: "choose another filesystem for storage.runs_dir: claims need hard links",
		Look: func(_ context.Context, x *Exam) []Result {
			name, _, err := staging.Filesystem(x.Cluster.Storage.RunsDir)
			if err = errors.Join(err, linkProbe(x.Cluster.Storage.RunsDir)); err != nil {
				return failed("", err)
			}
			return ok("the first link wins in %s (%s)", x.Cluster.Storage.RunsDir, name)
		},
	}}
}

// localDisk refuses a network filesystem.
func localDisk(dir string) []Result {
	name, network, err := staging.Filesystem(dir)
	switch {
	case err != nil:
		return failed("", err)
	case network:
		return bad("", "%s is on %s, a network filesystem", dir, name)
	}
	return ok("%s is on %s", dir, name)
}

func folder(dir string, allow uint32) []Result {
	if err := ownedFolder(dir, allow); err != nil {
		return failed("", err)
	}
	return ok("%s", dir)
}

// ownedFolder creates the folder if it is missing, and refuses one that belongs to another user or that others can write to. A bit of allow
// makes a folder writable by others acceptable.
func ownedFolder(dir string, allow uint32) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	switch me := os.Geteuid(); {
	case int(st.Uid) != me:
		return fault.New(fault.Validation, "doctor", "", fmt.Sprintf("%s belongs to uid %d, but this is uid %d", dir, st.Uid, me))
	case st.Mode&0o022 != 0 && st.Mode&allow == 0:
		return fault.New(fault.Validation, "doctor", "", fmt.Sprintf("%s has mode %04o: other users can write to it", dir, st.Mode&0o7777))
	}
	return nil
}

// synced times what the ledger depends on. No program can prove that a disk keeps what it says it has written, but a sync that is faster
// than any disk was not passed on.
func synced(dir string) []Result {
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

// syncTime is the median time of a few small synced writes.
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

// linkProbe checks that a second link to a name fails and the first one stays.
func linkProbe(dir string) error {
	temp, err := os.MkdirTemp(dir, ".doctor-link-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	at := func(name string) string { return filepath.Join(temp, name) }
	err = errors.Join(os.WriteFile(at("a"), []byte("a"), 0o600), os.WriteFile(at("b"), []byte("b"), 0o600), os.Link(at("a"), at("claim")))
	if err != nil {
		return err
	}
	if os.Link(at("b"), at("claim")) == nil {
		return fault.New(fault.Internal, "doctor", "", "a second link replaced the first")
	}
	got, err := os.ReadFile(at("claim"))
	if err == nil && string(got) != "a" {
		err = fault.New(fault.Internal, "doctor", "", "the claim does not contain the winner's content")
	}
	return err
}
