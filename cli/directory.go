package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// isFolder reports whether a path names a folder.
func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// importFolder imports a folder as a directory artifact. It is read here, with the rights of this program's user, and
// sent as a tar file.
func (s *Session) importFolder(ctx context.Context, args app.ImportArgs, result *app.ImportAnswer) error {
	dir := *args.Path
	if args.Label == "" {
		if args.Label = filepath.Base(dir); plan.CheckLabel(args.Label) != "" {
			args.Label = "directory"
		}
	}
	var res gate.Response
	err := s.retry(ctx, func(c *httpapi.Client) (err error) {
		read, write := io.Pipe()
		packed := make(chan error, 1)
		go func() {
			err := packFolder(write, dir)
			write.CloseWithError(err)
			packed <- err
		}()
		res, err = c.Upload(ctx, read, args.Label, plan.Directory, args.ProjectID)
		read.CloseWithError(errGivenUp)
		// An answer may come before the end of the file has been sent: then the pipe is closed, and the answer counts.
		if perr := <-packed; perr != nil && !errors.Is(perr, errGivenUp) && !errors.Is(perr, io.ErrClosedPipe) {
			return perr // the reason why the upload broke off
		}
		return err
	})
	switch {
	case fault.CodeOf(err) == "gateway_gone":
		return fault.Wrap(fault.KindOf(err), fault.CodeOf(err), dir+" was not imported", err).WithNext("run the command again")
	case err != nil:
		return err
	}
	return decode(res, result)
}

var errGivenUp = errors.New("the upload was given up")

// packFolder writes a folder as a tar file. Links and special files are refused, and so is a file that changes meanwhile.
func packFolder(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fault.Wrap(fault.Validation, "input_unreadable", "the folder cannot be opened", err)
	}
	defer root.Close()
	t := tree.NewTarWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(rel string, d fs.DirEntry, err error) error {
		full := filepath.Join(dir, rel)
		switch {
		case err != nil:
			return fault.Wrap(fault.Validation, "input_unreadable", full+" cannot be read", err)
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			return tree.Entry(full, "is a link or a special file; a directory artifact has files alone")
		}
		if msg := tree.CheckPath(rel); msg != "" {
			return tree.Entry(full, "cannot be in a directory artifact: "+msg)
		}
		f, err := root.Open(rel)
		if err != nil {
			return fault.Wrap(fault.Validation, "input_unreadable", full+" cannot be read", err)
		}
		defer f.Close()
		before, err := f.Stat()
		if err == nil {
			err = t.Add(rel, before.Size(), f)
		}
		if after, serr := f.Stat(); err == io.EOF || serr == nil && (after.Size() != before.Size() || after.ModTime() != before.ModTime()) {
			return fault.New(fault.Validation, "import_changed", full+" changed while it was read").
				WithNext("import it again when nothing writes to it")
		}
		return err
	})
	if err != nil {
		return err
	}
	return t.Close()
}

// openTar fetches a directory and calls f with each file. It fails if they are not those of the artifact's list. The tar file itself goes
// to w.
func (s *Session) openTar(ctx context.Context, o app.ArtifactDoc, w io.Writer, f func(path string, r io.Reader) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	read, write := io.Pipe()
	go func() { write.CloseWithError(s.content(ctx, o.ArtifactID, write)) }()
	defer read.CloseWithError(errGivenUp)
	list := sha256.New()
	lines := tree.NewWriter(list)
	whole := io.TeeReader(read, w)
	err := tree.ReadTar(whole, func(path string, size int64, r io.Reader) error {
		h := sha256.New()
		if err := f(path, io.TeeReader(r, h)); err != nil {
			return err
		}
		return lines.Add(tree.File{SHA256: hex.EncodeToString(h.Sum(nil)), Size: size, Path: path})
	})
	if err == nil {
		_, err = io.Copy(io.Discard, whole)
	}
	if err != nil {
		return err
	}
	if _, err := lines.Close(); err != nil {
		return err
	}
	if got := hex.EncodeToString(list.Sum(nil)); got != o.ChecksumSHA256 {
		return fault.New(fault.Internal, "artifact_corrupt",
			fmt.Sprintf("the received files of %s have a list with checksum %s, but %s is recorded", o.ArtifactID, got, o.ChecksumSHA256)).
			WithNext("check whether the stored bytes are damaged").WithSteps(fault.Do("artifact.verify", "artifact_id", o.ArtifactID))
	}
	return nil
}

// copyTar copies a directory to w as a tar file.
func (s *Session) copyTar(ctx context.Context, o app.ArtifactDoc, w io.Writer) error {
	return s.openTar(ctx, o, w, func(_ string, r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// saveFolder fetches a directory into a folder that is not there yet; an incomplete one is removed.
func saveFolder(ctx context.Context, s *Session, o app.ArtifactDoc, name string) (err error) {
	return newFolder(name, func(root *os.Root) error {
		made := ""
		err := s.openTar(ctx, o, io.Discard, func(rel string, r io.Reader) error {
			if dir := path.Dir(rel); dir != "." && dir != made {
				if err := root.MkdirAll(dir, 0o777); err != nil {
					return unwritable(name, err)
				}
				made = dir
			}
			f, err := root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
			if err != nil {
				return unwritable(name, err)
			}
			_, err = io.Copy(f, r)
			if cerr := f.Close(); err == nil && cerr != nil {
				err = unwritable(name, cerr)
			}
			return err
		})
		if err != nil {
			err = fault.Wrap("", fault.CodeOf(err), "cannot fetch "+o.ArtifactID, err)
		}
		return err
	})
}
