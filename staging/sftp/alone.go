package sftp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/run"
	"slurmgate/staging"
)

// alone is the far side with SFTP and without a shell. It is weaker in these points:
//
//   - A folder cannot be synced. The gateway takes no claim unless the admin has stated that the server makes names durable: a claim that
//     the server loses in a crash would let a job execute an attempt that was given up.
//   - The number of a file's names is not shown. The job itself checks it before it lists an output in its manifest.
//   - Links are detected before a path is used, not while it is resolved. Only the user of the jobs can create one in
//     between, who can read and write what the gateway can; and outputs must have the checksums of the manifest.
//   - Every step is a round trip.
type alone struct {
	cfg      Config
	channels *channels
	self     int // owner of the mark: the gateway's user id there
}

var (
	errLink      = errors.New("it is a symlink, or behind one")
	errIrregular = errors.New("it is not what the gateway made there")
)

// needed lists the extensions without which operations cannot be exclusive, durable or whole.
var needed = []string{"hardlink@openssh.com", "fsync@openssh.com", "posix-rename@openssh.com"}

func (a *alone) path(parts ...string) string {
	return path.Join(append([]string{a.cfg.DataRunsDir}, parts...)...)
}

// do carries out one operation in the gateway's own runs_dir. f must be safe to repeat.
func (a *alone) do(ctx context.Context, msg string, f func(*sftp.Client) error) error {
	return a.channels.do(ctx, msg, func(c *sftp.Client) error {
		id, err := a.readFile(c, a.path(staging.GatewayIDFile), 4<<10)
		if err == nil {
			err = staging.CheckID(a.cfg.DataRunsDir, a.cfg.GatewayID, id)
		}
		if err != nil && (answered(err) || errors.Is(err, errIrregular)) {
			return fault.Wrap(fault.Transport, "runs_dir_unavailable",
				"runs_dir "+a.cfg.DataRunsDir+" is missing on the SFTP server, or no longer the same folder", err).
				WithNext("check that the shared filesystem is mounted there")
		}
		if err == nil {
			err = f(c)
		}
		if errors.Is(err, errLink) || errors.Is(err, errIrregular) {
			return staging.ForeignEntry(msg, err)
		}
		return err
	})
}

func (a *alone) mark(ctx context.Context) (id []byte, err error) {
	name := a.path(staging.GatewayIDFile)
	unusable := func(msg, next string) error {
		return fault.New(fault.Validation, "runs_dir", "runs_dir "+a.cfg.DataRunsDir+" on the SFTP server "+msg).WithNext(next)
	}
	err = a.channels.do(ctx, "runs_dir cannot be marked", func(c *sftp.Client) error {
		for _, e := range needed {
			if _, offered := c.HasExtension(e); !offered {
				return fault.New(fault.Validation, "sftp_extension", "the SFTP server does not offer "+e+
					", without which claims are neither exclusive nor durable").
					WithNext("set storage.sftp.shell: true, or let the site run OpenSSH's SFTP server")
			}
		}
		_, err := c.Lstat(name)
		unmarked := errors.Is(err, fs.ErrNotExist)
		if unmarked && a.cfg.Marked {
			return staging.Unmarked(a.cfg.DataRunsDir, a.cfg.GatewayID)
		}
		dir, err := c.Stat(a.cfg.DataRunsDir)
		if errors.Is(err, fs.ErrNotExist) {
			return unusable("does not exist", "create it, owned by the user of the gateway's login, mode 0700")
		}
		if err != nil {
			return err
		}
		if !dir.IsDir() || dir.Mode()&0o022 != 0 && dir.Mode()&fs.ModeSticky == 0 {
			return unusable(fmt.Sprintf("is no separate folder: %v", dir.Mode()), "make it a folder that only its user can write")
		}
		if unmarked {
			temp := name + "." + random()
			if err := a.write(c, temp, []byte(a.cfg.GatewayID+"\n")); err != nil {
				return err
			}
			_ = c.Link(temp, name) // the content decides
			if err := c.Remove(temp); err != nil {
				return err
			}
		}
		st, err := c.Lstat(name)
		if err != nil {
			return err
		}
		a.self = owner(st)
		if owner(dir) != a.self {
			return unusable(fmt.Sprintf("belongs to user %d, its mark to user %d", owner(dir), a.self), "chown it, or name another folder")
		}
		id, err = a.readFile(c, name, 4<<10)
		return err
	})
	return id, err
}

func owner(st fs.FileInfo) int { return int(st.Sys().(*sftp.FileStat).UID) }

func random() string { return strings.ToLower(rand.Text()) }

// walk checks every folder of rel, in one round trip. For a link it returns errLink, for any other entry that is no
// folder errIrregular.
func (a *alone) walk(c *sftp.Client, rel string) error {
	parts := strings.Split(rel, "/")
	type seen struct {
		st  fs.FileInfo
		err error
	}
	found := make([]chan seen, len(parts))
	for i := range parts {
		found[i] = make(chan seen, 1)
		go func() {
			st, err := c.Lstat(a.path(parts[:i+1]...))
			found[i] <- seen{st, err}
		}()
	}
	for i := range parts {
		s := <-found[i]
		switch {
		case s.err != nil:
			return s.err
		case s.st.Mode()&fs.ModeSymlink != 0:
			return fmt.Errorf("%s: %w", strings.Join(parts[:i+1], "/"), errLink)
		case s.st.Mode().IsRegular(): // the file that replaces a removed attempt
			return fmt.Errorf("%s is a file: %w", strings.Join(parts[:i+1], "/"), fs.ErrNotExist)
		case !s.st.IsDir():
			return fmt.Errorf("%s: %w", strings.Join(parts[:i+1], "/"), errIrregular)
		}
	}
	return nil
}

// attempt is walk to the ctl folder of an attempt.
func (a *alone) attempt(c *sftp.Client, runID string, n int) error {
	err := a.walk(c, path.Join(runID, staging.AttemptName(n), "ctl"))
	if errors.Is(err, fs.ErrNotExist) {
		return staging.AttemptMissing(runID, n, err)
	}
	return err
}

// write creates a new durable file.
func (a *alone) write(c *sftp.Client, name string, data []byte) error {
	f, err := c.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return finish(c, f, err)
}

// readFile reads at most limit bytes of a regular file. A pipe is never opened: that would block the server.
func (a *alone) readFile(c *sftp.Client, name string, limit int64) ([]byte, error) {
	p, err := a.readPart(c, name, 0, limit)
	return p.Data, err
}

// readPart reads at most limit bytes, starting at byte from; a negative from counts from the end.
func (a *alone) readPart(c *sftp.Client, name string, from, limit int64) (p run.Part, err error) {
	st, err := c.Lstat(name)
	if err != nil {
		return p, err
	}
	if st.Mode()&fs.ModeSymlink != 0 {
		return p, fmt.Errorf("%s: %w", path.Base(name), errLink)
	}
	if !st.Mode().IsRegular() {
		return p, fmt.Errorf("%s: %w", path.Base(name), errIrregular)
	}
	f, err := c.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return p, err
	}
	defer f.Close()
	p.From = staging.Within(from, st.Size())
	if _, err := f.Seek(p.From, io.SeekStart); err != nil {
		return p, err
	}
	p.Data, err = io.ReadAll(io.LimitReader(f, limit))
	return p, err
}

// folder creates a folder, or accepts an existing one of the gateway's user. Its mode is 0700 afterwards.
func (a *alone) folder(c *sftp.Client, name string) error {
	made := c.Mkdir(name)
	st, err := c.Lstat(name)
	switch {
	case err != nil:
		return errors.Join(made, err)
	case st.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s: %w", path.Base(name), errLink)
	case !st.IsDir() || owner(st) != a.self:
		return fmt.Errorf("%s: %w", path.Base(name), errIrregular)
	case st.Mode().Perm() != 0o700:
		return c.Chmod(name, 0o700)
	}
	return nil
}

// carries reports whether the attempt's folder exists with this token. A folder with another token, or without one, is a Conflict.
func (a *alone) carries(c *sftp.Client, runID, name, token string) (bool, error) {
	if _, err := c.Lstat(a.path(runID, name)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	got := []byte("none")
	err := a.walk(c, path.Join(runID, name, "ctl"))
	if err == nil {
		got, err = a.readFile(c, a.path(runID, name, "ctl", staging.TokenFile), 256)
	}
	switch {
	case err == nil && string(got) == token+"\n":
		return true, nil
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, errLink), errors.Is(err, errIrregular):
		return false, staging.Ahead(name, got, token, err)
	}
	return false, err
}

func (a *alone) open(ctx context.Context, runID string, n int, token string, files []run.ControlFile) error {
	name := staging.AttemptName(n)
	return a.do(ctx, fmt.Sprintf("attempt %d of %s cannot be opened", n, runID), func(c *sftp.Client) error {
		if err := a.folder(c, a.path(runID)); err != nil {
			return err
		}
		ours, err := a.carries(c, runID, name, token)
		if err != nil {
			return err
		}
		if ours {
			err = a.rewrite(c, a.path(runID, name, "ctl"), files[1:])
		} else {
			err = a.build(c, runID, name, token, files)
		}
		if err != nil {
			return err
		}
		err = atOnce(files, func(f run.ControlFile) error {
			got, err := a.readFile(c, a.path(runID, name, "ctl", f.Name), int64(len(f.Data))+1)
			if err == nil && !bytes.Equal(got, f.Data) {
				err = fault.New(fault.Transport, "filesystem", f.Name+" reads back differently")
			}
			return err
		})
		if err != nil {
			return err
		}
		list, err := c.ReadDir(a.path(runID))
		for _, e := range list {
			if strings.HasPrefix(e.Name(), "."+name+".") { // of crashed calls
				err = errors.Join(err, a.removeAll(c, a.path(runID, e.Name())))
			}
		}
		return err
	})
}

// build creates the whole folder under another name and moves it into place. OpenSSH's rename replaces at most an empty
// folder, which an attempt's never is; only the token there shows whether it was moved.
func (a *alone) build(c *sftp.Client, runID, name, token string, files []run.ControlFile) error {
	temp := a.path(runID, "."+name+"."+token+"."+random())
	for _, dir := range []string{temp, temp + "/ctl"} {
		if err := a.folder(c, dir); err != nil {
			return err
		}
	}
	err := atOnce(files, func(f run.ControlFile) error { return a.write(c, path.Join(temp, "ctl", f.Name), f.Data) })
	if err != nil {
		return err
	}
	moved := c.Rename(temp, a.path(runID, name))
	ours, err := a.carries(c, runID, name, token)
	if err == nil && !ours {
		return fault.Wrap(fault.Transport, "filesystem", name+" did not appear", moved)
	}
	return errors.Join(err, a.removeAll(c, temp))
}

func (a *alone) rewrite(c *sftp.Client, ctl string, files []run.ControlFile) error {
	err := atOnce(files, func(f run.ControlFile) error {
		temp := path.Join(ctl, ".tmp."+f.Name+"."+random())
		if err := a.write(c, temp, f.Data); err != nil {
			return err
		}
		return c.PosixRename(temp, path.Join(ctl, f.Name))
	})
	if err != nil {
		return err
	}
	list, err := c.ReadDir(ctl)
	for _, e := range list {
		if strings.HasPrefix(e.Name(), ".tmp.") { // of crashed calls
			err = errors.Join(err, c.Remove(path.Join(ctl, e.Name())))
		}
	}
	return err
}

func (a *alone) read(ctx context.Context, runID string, n int, name string, from, limit int64) (p run.Part, err error) {
	err = a.do(ctx, "control file "+name+" cannot be read", func(c *sftp.Client) error {
		if err := a.attempt(c, runID, n); err != nil {
			return err
		}
		p, err = a.readPart(c, a.path(runID, staging.AttemptName(n), "ctl", name), from, limit)
		if errors.Is(err, fs.ErrNotExist) {
			return staging.ControlMissing(runID, n, name, err)
		}
		return err
	})
	return p, err
}

// claim links the file with the gateway's own claim, which was written when the attempt was opened. A lost answer is
// settled by a repetition: the link is refused then, and the content shows who has the claim.
func (a *alone) claim(ctx context.Context, runID string, n int, content []byte) (got []byte, err error) {
	err = a.do(ctx, "the claim cannot be taken or read", func(c *sftp.Client) error {
		if err := a.attempt(c, runID, n); err != nil {
			return err
		}
		ctl := a.path(runID, staging.AttemptName(n), "ctl")
		if !a.cfg.SyncsFolders {
			got, err = a.readFile(c, path.Join(ctl, run.ClaimFile), staging.MaxClaim)
			if err == nil && !bytes.Equal(got, content) || err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err // a job has it
			}
			return fault.New(fault.Transport, "claim_not_durable",
				"over SFTP alone the gateway cannot make sure that the claim of an attempt outlives a crash of the server").
				WithNext("set storage.sftp.shell: true; or, if the server makes new names durable before it answers (a filesystem mounted " +
					"with sync or dirsync), storage.sftp.syncs_folders: true")
		}
		mine := path.Join(ctl, voidFile)
		if there, err := a.readFile(c, mine, staging.MaxClaim); err != nil || !bytes.Equal(there, content) {
			mine = path.Join(ctl, ".claim.gateway."+random())
			if err := a.write(c, mine, content); err != nil {
				return err
			}
			defer c.Remove(mine)
		}
		linked := c.Link(mine, path.Join(ctl, run.ClaimFile))
		got, err = a.readFile(c, path.Join(ctl, run.ClaimFile), staging.MaxClaim)
		if errors.Is(err, fs.ErrNotExist) && linked != nil {
			return linked
		}
		return err
	})
	return got, err
}
