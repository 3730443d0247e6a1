package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/staging"
)

// state checks the gateway's own disk, and reports whether it can be used.
func (d *checks) state(s *site.Site) bool {
	if !d.check("state folder", s.Gateway.StateDir, ownedFolder(s.Gateway.StateDir, 0),
		"create gateway.state_dir, owned by this user, with mode 0700") {
		return false
	}
	name, network, err := staging.Filesystem(s.Gateway.StateDir)
	if err != nil {
		d.check("ledger disk", "", err, "")
	} else if d.verdict(!network, "fail", "ledger disk", s.Gateway.StateDir+" on "+name,
		s.Gateway.StateDir+" is on "+name+", a network filesystem", "set gateway.state_dir to a local disk") {
		d.sync(s.Gateway.StateDir, name)
	}
	return true
}

// disks checks what the gateway writes to for the cluster, and reports whether the checks of Slurm can use it.
func (d *checks) disks(s *site.Site) bool {
	if !d.check("runs folder", s.Storage.RunsDir, ownedFolder(s.Storage.RunsDir, unix.S_ISVTX),
		"create storage.runs_dir, owned by this user, with mode 0700") {
		return false
	}
	name, _, err := staging.Filesystem(s.Storage.RunsDir)
	d.check("runs disk", s.Storage.RunsDir+" on "+name, err, "")
	d.check("free space", fmt.Sprintf("each disk has more than storage.reserve_mb (%d MiB)", s.Storage.ReserveMB), Room(s), "")
	d.check("hard links", "link(2) is exclusive in "+s.Storage.RunsDir, linkProbe(s.Storage.RunsDir),
		"claims need hard links: choose another filesystem for storage.runs_dir")
	return true
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

// sync times what the ledger depends on. No program can prove that a disk keeps what it says it has written, but a sync that is faster
// than any disk was not passed on.
func (d *checks) sync(dir, filesystem string) {
	each, err := syncTime(dir)
	switch {
	case filesystem == "tmpfs" || filesystem == "ramfs":
		d.add("warn", "ledger sync", dir+" is in memory: the ledger does not survive a restart of this host", "set gateway.state_dir to a disk")
	case err == nil && each < 15*time.Microsecond:
		d.add("warn", "ledger sync", fmt.Sprintf("a synced write takes %s, which is faster than a disk: syncs may be ignored", each),
			"check whether the hypervisor or disk controller ignores flushes")
	default:
		d.check("ledger sync", fmt.Sprintf("a synced write takes %s", each), err, "put gateway.state_dir on a disk that can be synced")
	}
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
