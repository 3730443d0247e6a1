package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"slurmgate/fault"
)

// A directory artifact is transferred as a tar file: only regular files, in the order of the manifest, without owner
// and time. So the same artifact gives the same tar file.

// TarWriter writes a directory as a tar file.
type TarWriter struct{ w *tar.Writer }

// NewTarWriter starts a tar file.
func NewTarWriter(w io.Writer) *TarWriter { return &TarWriter{tar.NewWriter(w)} }

// Add writes a file of size bytes.
func (t *TarWriter) Add(path string, size int64, r io.Reader) error {
	err := t.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Size: size, Mode: 0o644, ModTime: time.Unix(0, 0)})
	if err == nil {
		_, err = io.CopyN(t.w, r, size)
	}
	return err
}

// Close ends the tar file.
func (t *TarWriter) Close() error { return t.w.Close() }

// WriteTar writes the directory of a manifest as a tar file; open opens the bytes with a checksum.
func WriteTar(w io.Writer, manifest io.Reader, open func(sha256 string) (io.ReadCloser, error)) error {
	t := NewTarWriter(w)
	_, err := Each(manifest, func(f File) error {
		r, err := open(f.SHA256)
		if err != nil {
			return err
		}
		defer r.Close()
		return t.Add(f.Path, f.Size, r)
	})
	if err != nil {
		return err
	}
	return t.Close()
}

// ReadTar calls f with every file of a tar file, in its own order; folders are skipped. Any other entry, and a name
// that a directory artifact cannot have, is a Validation fault with code directory_entry.
func ReadTar(r io.Reader, f func(path string, size int64, r io.Reader) error) error {
	end := &ending{Reader: r}
	t := tar.NewReader(end)
	for entries := 0; ; entries++ {
		h, err := t.Next()
		if err == io.EOF && end.marked() {
			return nil
		}
		if err != nil {
			return notTar(err)
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "./"))
		switch {
		case entries > 2*MaxFiles:
			return TooMany()
		case h.Typeflag == tar.TypeXGlobalHeader, h.Typeflag == tar.TypeDir:
			continue
		case h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0 && h.PAXRecords["GNU.sparse.major"] != "":
			return Entry(h.Name, "is a link or a special file; a directory artifact has files alone")
		case strings.TrimPrefix(h.Name, "./") != name || CheckPath(name) != "":
			return Entry(h.Name, "cannot be in a directory artifact: "+CheckPath(name))
		}
		if err := f(name, h.Size, t); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = notTar(err)
			}
			return err
		}
	}
}

// ending stores the last bytes read: a tar file that was cut between two files has no end mark.
type ending struct {
	io.Reader
	tail []byte
}

const endMark = 2 * 512 // zero bytes

func (e *ending) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	e.tail = append(e.tail, p[max(0, n-endMark):n]...)
	e.tail = append(e.tail[:0], e.tail[max(0, len(e.tail)-endMark):]...)
	return n, err
}

func (e *ending) marked() bool { return bytes.Equal(e.tail, make([]byte, endMark)) }

func notTar(err error) error {
	if _, is := errors.AsType[*fault.Error](err); is {
		return err
	}
	return fault.Wrap(fault.Validation, "directory_tar", "the directory did not arrive as a whole tar file", err).
		WithNext("send it again, as a tar file that is not compressed")
}

// Entry returns the fault about something that cannot be in a directory artifact.
func Entry(name, why string) error {
	return fault.Invalid("", fault.Problem{Code: "IMPORT-ENTRY", Field: "path",
		Rule: "folders and plain files, with names of visible characters without backslashes and doubled blanks",
		Msg:  fault.Quote(name, 200) + " " + why, Hint: "rename or remove it, or pack the directory into one file"})
}

// TooMany returns the fault about a directory with more files than an artifact may have.
func TooMany() error {
	return fault.Invalid("", fault.Problem{Code: "IMPORT-FILES", Field: "path", Rule: fmt.Sprintf("at most %d files", MaxFiles),
		Msg: "the directory has more files", Hint: "import parts of it, or pack it into one file"})
}
