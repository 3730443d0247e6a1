package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"slurmgate/fault"
)

// maxDocument is the size up to which a document is read whole.
const maxDocument = 32 << 20

// examined lists the files that Verify reads; all others are only hashed.
var examined = []string{runFile, paramsFile, policyFile, packFile, exitFile, eventsFile, crateFile, manifestFile, ReceiptFile, KeysFile,
	batchFile, signatureFile}

// contents is an archive as it was found: what each file has, by name.
type contents struct {
	names     []string // in the order they were found
	found     map[string]seen
	documents map[string][]byte // those that Verify reads

	// part is called with each archive of a run in the archive of a batch; nil: no parts
	part func(name string, r io.ReaderAt, size int64) error
}

// seen is a file that was read.
type seen struct {
	size   int64
	sha256 string
}

func newTree() contents { return contents{found: map[string]seen{}, documents: map[string][]byte{}} }

// read reads every file of an archive, or of the folder it was unpacked into, once. A faulty file is reported, and
// the others are read.
func (t *contents) read(ctx context.Context, path string, bad func(file, msg string)) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.NotFound, "no_such_file", "there is no file or folder "+path, err)
	}
	if err != nil {
		return fault.Wrap(fault.Validation, "unreadable", "the archive cannot be read", err)
	}
	switch {
	case info.IsDir():
		err = t.folder(ctx, path, bad)
	case info.Mode().IsRegular():
		err = t.zip(ctx, path, bad)
	default:
		return fault.New(fault.Validation, "unreadable", path+" is neither a file nor a folder")
	}
	return err
}

func (t *contents) zip(ctx context.Context, path string, bad func(file, msg string)) error {
	f, err := os.Open(path)
	if err != nil {
		return fault.Wrap(fault.Validation, "unreadable", "the archive cannot be read", err)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fault.Wrap(fault.Validation, "unreadable", "the archive cannot be read", err)
	}
	return t.archive(ctx, f, size, bad)
}

// archive reads a ZIP.
func (t *contents) archive(ctx context.Context, f io.ReaderAt, size int64, bad func(file, msg string)) error {
	list, err := readDirectory(f, size)
	if err != nil {
		return fault.Wrap(fault.Validation, "not_an_archive", "this is not an archive as slurmgate writes it", err)
	}
	for _, e := range list {
		content, sound, err := openEntry(f, e)
		if err != nil {
			bad(e.name, err.Error())
			continue
		}
		if err := t.add(ctx, e.name, content, bad); err != nil {
			return err
		}
		if !sound() {
			bad(e.name, "its bytes do not have the CRC-32 that the archive gives")
		}
		if err := t.inside(e.name, io.NewSectionReader(f, e.offset+int64(len(e.local())), e.size), e.size); err != nil {
			return err
		}
	}
	return nil
}

// folder reads an unpacked archive. Links and everything else that is no plain file are reported and not followed.
func (t *contents) folder(ctx context.Context, path string, bad func(file, msg string)) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return fault.Wrap(fault.Validation, "unreadable", "the folder cannot be read", err)
	}
	defer root.Close()
	n := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch n++; {
		case err != nil:
			bad(name, "it cannot be read: "+err.Error())
			return nil
		case n > maxEntries:
			return fault.New(fault.Validation, "too_many_files", fmt.Sprintf("the folder has more than %d files", maxEntries))
		case d.IsDir():
			return nil
		case !d.Type().IsRegular():
			bad(name, "it is not a plain file but "+kindOf(d.Type()))
			return nil
		}
		f, err := root.Open(name)
		if err != nil {
			bad(name, "it cannot be read: "+err.Error())
			return nil
		}
		defer f.Close()
		if err := t.add(ctx, name, f, bad); err != nil {
			return err
		}
		return t.inside(name, f, t.found[name].size)
	})
	return err
}

// inside has a file examined that is the archive of a run in the archive of a batch.
func (t *contents) inside(name string, r io.ReaderAt, size int64) error {
	if _, ok := archivedRun(name); t.part == nil || t.documents[batchFile] == nil || !ok || checkName(name) != "" {
		return nil
	}
	return t.part(name, r, size)
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "something else"
}

// add reads one file. Its name may be anything.
func (t *contents) add(ctx context.Context, name string, content io.Reader, bad func(file, msg string)) error {
	if msg := checkName(name); msg != "" {
		bad(name, msg)
		return nil
	}
	if _, twice := t.found[name]; twice {
		bad(name, "the archive has two files of this name")
		return nil
	}
	sum := sha256.New()
	w, b := io.Writer(sum), &bytes.Buffer{}
	if slices.Contains(examined, name) {
		w = io.MultiWriter(sum, &head{b, maxDocument})
	}
	n, err := copyUntil(ctx, w, content)
	if err != nil {
		if ctx.Err() != nil {
			return fault.Wrap(fault.Canceled, "canceled", "the check was interrupted", ctx.Err())
		}
		bad(name, "it cannot be read: "+err.Error())
		return nil
	}
	if slices.Contains(examined, name) && n <= maxDocument {
		t.documents[name] = b.Bytes()
	} else if slices.Contains(examined, name) {
		bad(name, fmt.Sprintf("it has %d bytes; a document has at most %d", n, maxDocument))
	}
	t.names = append(t.names, name)
	t.found[name] = seen{n, hex.EncodeToString(sum.Sum(nil))}
	return nil
}

// head keeps the first bytes of what is written to it.
type head struct {
	b    *bytes.Buffer
	most int
}

// Write implements io.Writer.
func (h *head) Write(p []byte) (int, error) {
	h.b.Write(p[:min(len(p), max(0, h.most-h.b.Len()))])
	return len(p), nil
}

// copyUntil copies until the end, or until ctx ends.
func copyUntil(ctx context.Context, w io.Writer, r io.Reader) (n int64, err error) {
	for {
		k, err := io.CopyN(w, r, 1<<20)
		if n += k; err == io.EOF {
			return n, nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return n, err
		}
	}
}
