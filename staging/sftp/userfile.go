package sftp

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/remote"
	"slurmgate/remote/transfer"
)

//go:embed userfile.sh
var userFileScript string

// UserFile is a regular file of the far side that is read with the rights of the logged-in user.
type UserFile struct {
	io.Reader // its Size bytes, or an error
	Size      int64

	w    *Workspace
	path string
	seen identity
	stop context.CancelFunc
}

// identity holds the properties of a file that change only when it is written or replaced.
type identity struct {
	mode              uint32
	device, inode     uint64
	size              int64
	modified, changed string // times
}

const exitKernelFile = 83

// OpenFile opens a file for an import: a regular one of at most limit bytes, under its real name, that the user who is
// logged in may read. The user's side reports what it is, so it is only certain that the bytes came through that user's
// login. Faults are those of an import of a file on the gateway's host.
func (w *Workspace) OpenFile(ctx context.Context, name string, limit int64) (*UserFile, error) {
	if !path.IsAbs(name) || path.Clean(name) != name {
		return nil, noImport("IMPORT-PATH", "an absolute path in its plain spelling",
			fault.Clip(name)+" is not a plain absolute path", "give the file's full path")
	}
	is, err := w.examineFile(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case is.mode&unix.S_IFMT != unix.S_IFREG:
		return nil, noImport("IMPORT-KIND", "only a regular file", fault.Clip(name)+" is "+files.Kind(is.mode)+", not a regular file",
			"name a file")
	case is.size > limit:
		return nil, noImport("IMPORT-SIZE", fmt.Sprintf("at most %d bytes", limit), fmt.Sprintf("%s has %d bytes", fault.Clip(name), is.size), "")
	}
	ctx, stop := context.WithCancel(ctx)
	out, in := io.Pipe()
	go func() {
		_, err := w.cfg.Pool.Get(ctx, transfer.File{Path: name, Size: is.size, Name: name}, 0, nil, in)
		if fault.Is(err, fault.Tool) || fault.CodeOf(err) == transfer.CodeMissing { // it was correct when it was examined
			err = changedFile(name)
		}
		in.CloseWithError(err)
	}()
	return &UserFile{Reader: out, Size: is.size, w: w, path: name, seen: is, stop: func() { stop(); out.Close() }}, nil
}

// Unchanged returns a fault if the file has changed since it was opened. Call it after the last byte.
func (f *UserFile) Unchanged(ctx context.Context) error {
	is, err := f.w.examineFile(ctx, f.path)
	if err == nil && is != f.seen {
		err = changedFile(f.path)
	}
	return err
}

// Close ends the transfer.
func (f *UserFile) Close() error {
	f.stop()
	return nil
}

func (w *Workspace) examineFile(ctx context.Context, name string) (is identity, err error) {
	if w.cfg.Shell == nil {
		return is, fault.New(fault.Internal, "import_shell", "a file cannot be imported over SFTP alone")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := w.cfg.Shell.Run(ctx, remote.Call{Script: userFileScript, Args: []string{name}, Limit: 4 << 10})
	if err != nil {
		return is, fault.Wrap("", "", fault.Clip(name)+" cannot be examined", err)
	}
	name = fault.Clip(name)
	switch out.Exit {
	case 0:
		_, err = fmt.Sscanf(string(out.Stdout), "%x %d %d %d %s %s\n", &is.mode, &is.device, &is.inode, &is.size, &is.modified, &is.changed)
		if err == nil && is.size >= 0 {
			return is, nil
		}
	case exitNoControl:
		return is, fault.New(fault.NotFound, "import_missing", "there is no file "+name+" on the cluster").
			WithNext("check the spelling of the path")
	case exitOutputSymlink:
		next := "give the path of the file itself"
		if to := strings.TrimSpace(out.Stderr); to != "" { // otherwise the user may not read the target
			next += ", which is " + fault.ClipEnd(to, 200)
		}
		return is, noImport("IMPORT-SYMLINK", "no symlink", name+" is a symlink or is reached through one", next)
	case exitUnreadable:
		return is, noImport("IMPORT-ACCESS", "readable by the user whom jobs run as", name+" is not readable by that user",
			"make the file readable for that user")
	case exitKernelFile:
		return is, noImport("IMPORT-KIND", "only a file of data", name+" is a file of the kernel", "name a file of data")
	}
	return is, fault.New(fault.Transport, "far_shell",
		fmt.Sprintf("%s cannot be examined: the script on the login node ended with status %d: %s", name, out.Exit, fault.Clip(out.Stderr)))
}

func noImport(code, rule, msg, hint string) error {
	return &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: code, Field: "path", Rule: rule, Msg: msg, Hint: hint}}}
}

func changedFile(name string) error {
	return fault.New(fault.Validation, "import_changed", fault.Clip(name)+" changed while it was read").
		WithNext("import it again when nothing writes to it")
}
