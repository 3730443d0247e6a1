package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/app"
	"slurmgate/artifact"
	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/ledger"
	"slurmgate/nss"
	"slurmgate/site"
	"slurmgate/staging"
	"slurmgate/transport"
)

// backupMark is the file of state_dir with the time of the last backup; the metrics show it.
const backupMark = "last-backup.json"

// lastBackup is the content of the mark.
type lastBackup struct {
	At      time.Time `json:"at"`
	Folder  string    `json:"folder"`
	Damaged int       `json:"damaged"`
}

// backUp makes a backup of a site's gateway from its files, whether it runs or not.
func backUp(ctx context.Context, a app.BackupArgs, progress func(done, of, bytes int64)) (m backup.Made, err error) {
	s, err := site.Load(a.Site)
	if err != nil {
		return m, err
	}
	if err := apart(s, a.Dir); err != nil {
		return m, err
	}
	l, err := ledger.OpenToRead(ctx, ledgerFile(s))
	if err != nil {
		return m, err
	}
	defer l.Close()
	store, err := artifact.OpenToRead(s.Gateway.ArtifactDir)
	if err != nil {
		return m, err
	}
	defer store.Close()
	host, _ := os.Hostname()
	src := backup.Source{Ledger: l, Object: store.Open, Now: time.Now, Config: configOf(a.Site, s),
		Open: func(ctx context.Context, path string) (backup.Ledger, error) { return ledger.OpenToRead(ctx, path) },
		Manifest: backup.Manifest{Version: built().Version, Host: host, Sites: s.Names(), SiteFile: a.Site, StateDir: s.Gateway.StateDir,
			ArtifactDir: s.Gateway.ArtifactDir}}
	m, err = src.Make(ctx, a.Dir, backup.Options{Keep: a.Keep, Verify: a.Verify, Progress: progress})
	if err != nil || m.Folder == "" {
		return m, err
	}
	return m, markBackup(s.Gateway.StateDir, lastBackup{m.CreatedAt, m.Folder, m.DamagedCount})
}

// apart refuses a folder for backups that is inside what is backed up, or that gc and runs change.
func apart(s *site.Site, dir string) error {
	inside := map[string]string{s.Gateway.StateDir: "gateway.state_dir", s.Gateway.ArtifactDir: "gateway.artifact_dir"}
	for _, runs := range transport.RunsDirs(s) {
		inside[runs] = "storage.runs_dir"
	}
	for folder, field := range inside {
		if rel, err := filepath.Rel(folder, dir); err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return fault.New(fault.Validation, "backup_inside", fmt.Sprintf("%s is inside %s (%s)", dir, field, folder)).
				WithNext("name a folder outside it, on another disk if possible")
		}
	}
	return nil
}

// configOf returns the files of the configuration, by their name in the backup.
func configOf(file string, s *site.Site) map[string]string {
	c := map[string]string{"site.yaml": file, "domain": s.DomainDir}
	for _, name := range s.Sites {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), name)
		}
		c[filepath.Join("sites", filepath.Base(name))] = path
	}
	return c
}

// markBackup records a backup next to the ledger, as a file of its owner.
func markBackup(stateDir string, b lastBackup) error {
	data, err := json.Marshal(b)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(stateDir)
	if err != nil {
		return err
	}
	defer root.Close()
	temp := backupMark + "." + strconv.Itoa(os.Getpid())
	defer root.Remove(temp)
	if err = root.WriteFile(temp, data, 0o600); err == nil {
		var st unix.Stat_t
		if unix.Stat(stateDir, &st) == nil && os.Geteuid() == 0 {
			err = root.Lchown(temp, int(st.Uid), int(st.Gid))
		}
	}
	if err == nil {
		err = root.Rename(temp, backupMark)
	}
	if err != nil {
		return fault.Wrap(fault.Transport, "backup_mark", "the backup is complete, but its time cannot be recorded in "+
			stateDir, err)
	}
	return nil
}

// readBackupMark reads the time of the last backup; nil if it is unknown.
func readBackupMark(stateDir string) *lastBackup {
	data, err := os.ReadFile(filepath.Join(stateDir, backupMark))
	var b lastBackup
	if err != nil || json.Unmarshal(data, &b) != nil {
		return nil
	}
	return &b
}

func lastBackupAt(s *site.Site) *time.Time {
	b := readBackupMark(s.Gateway.StateDir)
	if b == nil {
		return nil
	}
	return new(b.At.UTC())
}

// restoreBackup puts a backup back into the folders that the site file names.
func restoreBackup(ctx context.Context, a app.RestoreArgs, progress func(done, of, bytes int64)) (out app.RestoreAnswer, err error) {
	s, err := loadSite(a.Site)
	if fault.CodeOf(err) == "SITE-FILE" {
		return out, fault.Wrap(fault.KindOf(err), "SITE-FILE", "", err).
			WithNext("copy config/site.yaml of the backup to that path and correct its folders first")
	}
	if err != nil {
		return out, err
	}
	owner, err := ownerOf(ctx, s.Gateway.StateDir, a.Owner)
	if err != nil {
		return out, err
	}
	out.Owner = owner.Name
	t := backup.Target{StateDir: s.Gateway.StateDir, ArtifactDir: s.Gateway.ArtifactDir, Partial: a.Partial, Progress: progress,
		UID: owner.UID, GID: owner.GID}
	lock, err := ledger.TakeLock(filepath.Join(t.StateDir, "gateway.lock"))
	if err != nil {
		return out, err
	}
	defer lock.Release()
	// From here on nothing else uses the state folder.
	if err := t.Empty(); err != nil {
		return out, err
	}
	store, err := artifact.Open(t.ArtifactDir)
	if err != nil {
		return out, err
	}
	defer store.Close()
	t.Verify = store.Verify
	t.Put = func(ctx context.Context, r io.Reader) (string, error) {
		sum, _, err := store.Put(ctx, r, math.MaxInt64)
		return sum, err
	}
	t.Adopt = func(ctx context.Context, path string, at time.Time, source string) error {
		l, err := ledger.Open(ctx, path, ledger.Options{Filesystem: staging.Filesystem})
		if err != nil {
			return err
		}
		defer l.Close()
		if err := l.Integrity(ctx); err != nil {
			return err
		}
		return l.Restored(ctx, &at, source)
	}
	if out.Restored, err = t.Restore(ctx, a.Dir); err != nil {
		return out, err
	}
	out.Advice = afterRestore(s, out.Restored)
	out.NextSteps = []fault.Step{fault.Do("doctor"), fault.Do("run.list", "state", "blocked")}
	return out, nil
}

// afterRestore returns the admin's steps before the gateway is started.
func afterRestore(s *site.Site, r backup.Restored) []string {
	return append(transport.FormerFolders(s), "make sure that the gateway this backup is of no longer runs anywhere",
		"compare the configuration with "+filepath.Join(r.Folder, "config"), "start the gateway: systemctl start slurmgate")
}

// ownerOf returns the user who gets the restored files: the named one, or the owner of the state folder.
func ownerOf(ctx context.Context, dir, name string) (nss.User, error) {
	if name != "" {
		u, err := nss.Host{}.User(ctx, name)
		if missing(err) {
			return u, fault.Wrap(fault.Validation, "no_such_user", "there is no user "+name, err).WithNext("create it first")
		}
		if err != nil {
			return u, err
		}
		return u, own(dir, u)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nss.User{}, fault.Wrap(fault.NotFound, "state_dir", "gateway.state_dir cannot be used", err).
			WithNext("create it, owned by the gateway's user: install -d -o slurmgate -g slurmgate -m 700 " + dir)
	}
	st := info.Sys().(*syscall.Stat_t)
	uid := int(st.Uid)
	u, err := nss.Host{}.UserOf(ctx, uid)
	if err != nil { // its ids are enough
		u = nss.User{Name: "#" + strconv.Itoa(uid), UID: uid, GID: int(st.Gid)}
	}
	switch me := os.Geteuid(); {
	case me != 0 && me != uid:
		return nss.User{}, ownFolder(dir)
	case uid == 0:
		return nss.User{}, fault.New(fault.Validation, "owner_unclear",
			"gateway.state_dir "+dir+" belongs to root, which is not the gateway's user").
			WithNext("name the gateway's user: --owner slurmgate")
	}
	return u, nil
}

// own creates the state folder for a user, or gives it to that user.
func own(dir string, u nss.User) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(dir, u.UID, u.GID)
	}
	if err != nil {
		return fault.Wrap(fault.Transport, "state_dir", "gateway.state_dir cannot be given to "+u.Name, err)
	}
	return nil
}
