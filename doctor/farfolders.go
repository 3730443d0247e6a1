package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/site"
	"slurmgate/staging"
)

// farRuns is the runs_dir of a cluster whose folders are elsewhere.
type farRuns struct{ *Exam }

func (x farRuns) name() string {
	return x.Cluster.Storage.SFTP.RunsDir + " on " + x.Cluster.Storage.SFTP.Host
}

func (x farRuns) lacks(names []string, runID string) bool {
	return len(names) < mostRuns && !slices.Contains(names, runID) // else those are not all of them
}

func (x farRuns) shared(dir string) shared { return farShared{x.Exam, dir} }

// newFile makes a file that is not there yet.
const newFile = os.O_WRONLY | os.O_CREATE | os.O_EXCL

// token returns a random word.
func token() string { return strings.ToLower(rand.Text()) }

// owner checks the owner and mode of a far runs_dir.
func (x farRuns) owner(ctx context.Context) []Result {
	dir, host := x.Cluster.Storage.SFTP.RunsDir, x.Cluster.Storage.SFTP.Host
	var st *sftp.FileStat
	var owner string
	err := x.sftp(ctx, func(c *sftp.Client) error {
		info, err := c.Stat(dir)
		if err != nil {
			return err
		}
		st, owner = info.Sys().(*sftp.FileStat), "another user"
		home, err := c.RealPath(".")
		if mine, failed := c.Stat(home); err == nil && failed == nil && mine.Sys().(*sftp.FileStat).UID == st.UID {
			owner = ""
		}
		if owner != "" { // another user's home proves nothing: only the owner may set the mode
			if c.Chmod(dir, info.Mode().Perm()) == nil {
				owner = ""
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return farFault(err, dir, x.Cluster, "install -d -m 700 "+dir)
	case st.Mode&0o170000 != 0o040000:
		return bad("set storage.sftp.runs_dir to a folder", "%s on %s is not a folder", dir, host)
	case owner != "":
		return bad("make it a folder of the user of storage.sftp.user", "%s on %s belongs to user id %d, not to the user of the "+
			"gateway's login", dir, host, st.UID)
	case st.Mode&0o022 != 0 && st.Mode&0o1000 == 0:
		return bad("chmod go-w "+dir+" there", "%s on %s has mode %04o: other users can write to it", dir, host, st.Mode&0o7777)
	}
	if x.there.Name == "" && x.REST != nil { // no shell can report it
		x.there = nss.User{Name: x.User.name, UID: int(st.UID), GID: int(st.GID)}
	}
	return ok("%s on %s", dir, host)
}

// farFault returns the result for a folder that the SFTP server does not show.
func farFault(err error, dir string, s *site.Site, create string) []Result {
	f := s.Storage.SFTP
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return bad(fmt.Sprintf("make it there (%s), or correct its path in the site file", create), "the folder %s does not exist on %s", dir,
			f.Host)
	case errors.Is(err, fs.ErrPermission):
		return bad("make the login user the owner of the folder, and let that user enter all folders above it (chmod +x)",
			"the login user may not look at the folder %s on %s", dir, f.Host)
	}
	return failed("", fmt.Errorf("%s on %s: %w", dir, f.Host, err))
}

// whyNot replaces SFTP's only message for every failed write, "Failure", by the error of the login node's shell for the
// same write.
func (x *Exam) whyNot(ctx context.Context, err error) error {
	status, is := errors.AsType[*sftp.StatusError](err)
	if !is || status.FxCode() != sftp.ErrSSHFxFailure {
		return err
	}
	const unsaid = "the SFTP server does not say why: look for a full disk, a used-up quota or a read-only filesystem there"
	if x.Shell == nil {
		return fmt.Errorf("%w (%s)", err, unsaid)
	}
	out, failed := x.script(ctx, `cd -- "$1" && head -c 4096 /dev/zero >"$2"; s=$?; rm -f -- "$2"; exit "$s"`,
		x.Cluster.LoginFolders().RunsDir, ".doctor-file-"+token())
	if failed != nil || out.Exit == 0 {
		return fmt.Errorf("%w (%s)", err, unsaid)
	}
	return errors.New(fault.Clip(strings.TrimSpace(out.Stderr)))
}

// write writes a file, reads it back, and compares the clocks.
func (x farRuns) write(ctx context.Context) []Result {
	f := x.Cluster.Storage.SFTP
	err := x.probeFile(ctx, func(c *sftp.Client, name, content string) error {
		got, err := readFar(c, path.Join(f.RunsDir, name), 1<<10)
		if err == nil && string(got) != content {
			err = errors.New("what was written does not read back")
		}
		return err
	})
	if err != nil {
		return failed("free space or inodes there, raise the quota of the login user, or mount the filesystem writable: df -h -i "+f.RunsDir,
			fmt.Errorf("cannot write to %s on %s: %w", f.RunsDir, f.Host, x.whyNot(ctx, err)))
	}
	return ok("%s on %s", f.RunsDir, f.Host)
}

func (x farRuns) clock(ctx context.Context) []Result {
	f := x.Cluster.Storage.SFTP
	before := x.Now().Truncate(time.Second) // SFTP shows seconds
	var shown time.Time
	err := x.probeFile(ctx, func(c *sftp.Client, name, _ string) error {
		st, err := c.Stat(path.Join(f.RunsDir, name))
		if err == nil {
			shown = st.ModTime()
		}
		return err
	})
	if err != nil {
		return failed("", err)
	}
	return skew("the filesystem of "+f.RunsDir+" on "+f.Host, shown, before, x.Now())
}

// links tests the operation by which claims are taken: the shell's ln, or the server's link with SFTP alone.
func (x farRuns) links(ctx context.Context) []Result {
	f := x.Cluster.Storage.SFTP
	if f.HasShell() {
		return shellLinks(ctx, x.Exam)
	}
	err := x.sftp(ctx, func(c *sftp.Client) error {
		dir := path.Join(f.RunsDir, ".doctor-link-"+token())
		at := func(name string) string { return path.Join(dir, name) }
		err := c.Mkdir(dir)
		if err != nil {
			return err
		}
		for _, name := range []string{"a", "b"} {
			err = errors.Join(err, writeFar(c, at(name), []byte(name)))
		}
		if err = errors.Join(err, c.Link(at("a"), at("claim"))); err == nil && c.Link(at("b"), at("claim")) == nil {
			err = errors.New("a second link replaced the first")
		}
		if err == nil {
			var got []byte
			if got, err = readFar(c, at("claim"), 8); err == nil && string(got) != "a" {
				err = errors.New("the claim does not contain the winner's content")
			}
		}
		for _, name := range []string{"a", "b", "claim"} {
			_ = c.Remove(at(name)) // the folder's removal reports it
		}
		return errors.Join(err, c.RemoveDirectory(dir))
	})
	if err != nil {
		return failed("", fmt.Errorf("%s on %s: %w", f.RunsDir, f.Host, err))
	}
	return ok("the first link wins in %s on %s", f.RunsDir, f.Host)
}

const linkScript = `cd -- "$1" && mkdir -m 700 -- "$2" && cd -- "$2" || exit 1
echo a >a && echo b >b && ln -T a claim || { echo "a link cannot be made" >&2; status=1; }
if [ -z "$status" ] && ln -T b claim 2>/dev/null; then echo "a second link replaced the first" >&2; status=1; fi
[ "$(cat claim)" = a ] || { echo "the claim does not contain the winner's content" >&2; status=1; }
rm -f a b claim
cd .. && rmdir -- "$2" || status=1
exit ${status:-0}`

func shellLinks(ctx context.Context, x *Exam) []Result {
	dir, host := x.Cluster.LoginFolders().RunsDir, x.ScriptHost
	out, err := x.script(ctx, linkScript, dir, ".doctor-link-"+token())
	switch {
	case err != nil:
		return failed("", err)
	case out.Exit != 0:
		return bad("", "%s on %s: %s", dir, host, strings.TrimSpace(out.Stderr))
	}
	return ok("the first link wins in %s on %s", dir, host)
}

// farDisk judges what is free on the disk of the far runs_dir.
func farDisk(ctx context.Context, x *Exam) []Result {
	f := x.Cluster.Storage.SFTP
	var free Space
	err := x.sftp(ctx, func(c *sftp.Client) (err error) {
		free, err = FarSpace(c, f.RunsDir)
		return err
	})
	if err != nil {
		return unknown("look at the disk there", "%s does not say how much space is free in %s: %v", f.Host, f.RunsDir, err)
	}
	if err := FarRoom(x.Cluster, free); err != nil {
		return failed("", err)
	}
	return ok("%d MiB are free in %s on %s", free.Bytes>>20, f.RunsDir, f.Host)
}

// FarSpace returns the free space of the disk of a far folder.
func FarSpace(c *sftp.Client, dir string) (Space, error) {
	st, err := c.StatVFS(dir)
	if err != nil {
		return Space{}, err
	}
	free := Space{Bytes: int64(st.Bavail * st.Frsize), Inodes: -1}
	if st.Files > 0 {
		free.Inodes = int64(st.Favail)
	}
	return free, nil
}

// marked reads the id of the gateway that the far runs_dir belongs to, and the names of the runs in it.
func (x farRuns) marked(ctx context.Context) (mark string, names []string, err error) {
	err = x.sftp(ctx, func(c *sftp.Client) (err error) {
		dir := x.Cluster.Storage.SFTP.RunsDir
		if mark, err = FarMark(c, dir); err != nil {
			return err
		}
		entries, err := c.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries[:min(len(entries), mostRuns)] {
			names = append(names, e.Name())
		}
		return err
	})
	return mark, names, err
}

// FarMark reads the id of the gateway that a far runs_dir belongs to; empty: it has no mark, or does not exist.
func FarMark(c *sftp.Client, dir string) (gatewayID string, err error) {
	text, err := readFar(c, path.Join(dir, staging.GatewayIDFile), 4<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}
