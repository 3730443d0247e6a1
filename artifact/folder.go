package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

const (
	smallFile   = 256 << 10 // bytes; files up to this size are stored several at a time
	storedAtOne = 16        // of them
)

// gathered is a directory that is being imported: its files are stored as they come, and their list at the end.
type gathered struct {
	im    *Importer
	ctx   context.Context
	small *errgroup.Group // stores small files

	bytes int64 // so far
	count int

	mu    sync.Mutex
	files []tree.File
}

// gather imports a directory; each passes its files to add in any order.
func (im *Importer) gather(ctx context.Context, name string, each func(add func(path string, size int64, r io.Reader,
	check func(size int64) error) error) error) (got Imported, err error) {
	g := &gathered{im: im}
	g.small, g.ctx = errgroup.WithContext(ctx)
	g.small.SetLimit(storedAtOne)
	err = each(g.add)
	if failed := g.small.Wait(); failed != nil && ctx.Err() == nil {
		err = failed // of the first file that could not be stored
	}
	if err != nil {
		return got, err
	}
	slices.SortFunc(g.files, func(a, b tree.File) int { return tree.Compare(a.Path, b.Path) })
	var list bytes.Buffer
	w := tree.NewWriter(&list)
	for _, f := range g.files {
		if err := w.Add(f); err != nil {
			return got, err
		}
	}
	if _, err := w.Close(); err != nil {
		return got, fault.Invalid("", fault.Problem{Code: ImportKind, Field: "path", Rule: "a directory with at least one file",
			Msg: "the directory has no file", Hint: "name another directory"})
	}
	got = Imported{Type: plan.Directory, SizeBytes: g.bytes, Label: labelOf(name), List: &List{int64(list.Len()), g.files}}
	if im.accept != nil {
		if err := im.accept(got); err != nil {
			return Imported{}, err
		}
	}
	got.SHA256, _, err = im.put(files.Watched(ctx, nil), &list, got.List.Bytes, nil) // its bytes are none of the directory's
	if err != nil {
		return Imported{}, err
	}
	if im.dry && !im.listed {
		got.List = nil
	}
	return got, nil
}

// outOfBounds returns the fault of a directory beyond a limit of policy.
func outOfBounds(field string, most int64, msg string) error {
	return denied("POLICY-DIRECTORY", fmt.Sprintf("policy import.directory.%s: at most %d", field, most), msg,
		"import a part of it, or pack it into one file")
}

// Allow refuses a list of files that is beyond the limits.
func (b Bounds) Allow(list []tree.File) error {
	g := gathered{im: &Importer{bounds: b}}
	for _, f := range list {
		if err := g.within(f.Path, f.Size); err != nil {
			return err
		}
		g.count++
		g.bytes += f.Size
	}
	return nil
}

// within refuses a file that is beyond policy's limits.
func (g *gathered) within(path string, size int64) error {
	switch b := g.im.bounds; {
	case b.Files > 0 && int64(g.count) >= b.Files:
		return outOfBounds("max_files", b.Files, "the directory has more files")
	case b.Depth > 0 && int64(strings.Count(path, "/")) > b.Depth:
		return outOfBounds("max_depth", b.Depth, path+" is deeper")
	case b.Bytes > 0 && size > b.Bytes-g.bytes:
		return outOfBounds("max_bytes", b.Bytes, path+" and the files before it have more bytes")
	}
	return nil
}

// add stores a file. A small one is read here and stored meanwhile.
func (g *gathered) add(path string, size int64, r io.Reader, check func(size int64) error) error {
	switch {
	case g.ctx.Err() != nil:
		return context.Cause(g.ctx)
	case g.count == tree.MaxFiles:
		return tree.TooMany()
	case size < 0 || size > g.im.maxBytes-g.bytes:
		return denied(ImportSize, "a directory of at most as many bytes as a file may have", path+" and the files before it have more", "")
	}
	if err := g.within(path, size); err != nil {
		return err
	}
	g.count++
	g.bytes += size
	if sum, ok := g.im.hashed.find(path, size); ok {
		files.Watcher(g.ctx).Skip(size)
		g.keep(tree.File{SHA256: sum, Size: size, Path: path})
		return nil
	}
	if size > smallFile {
		return g.store(path, size, r, check)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return fsFault(path+" cannot be read", err)
	}
	if err := check(size); err != nil {
		return err
	}
	g.small.Go(func() error { return g.store(path, size, bytes.NewReader(data), func(int64) error { return nil }) })
	return nil
}

func (g *gathered) store(path string, size int64, r io.Reader, check func(size int64) error) error {
	m, err := g.im.meter(g.ctx, r, size)
	if err != nil {
		return err
	}
	defer m.hold.end()
	sum, ok := "", false
	if f, is := r.(*member); is && g.im.resumes && size >= leastPart {
		sum, _, ok, err = g.im.store.putPartial(g.ctx, onlyHashed+sourceKey(f.st), size, func(p *partial) (io.Reader, error) {
			_, err := f.Seek(p.done, io.SeekStart)
			return m, err
		}, check)
	}
	if !ok && err == nil {
		sum, _, err = g.im.put(g.ctx, m, size, check)
	}
	if err != nil {
		return err
	}
	f := tree.File{SHA256: sum, Size: size, Path: path}
	g.im.hashed.Add(f)
	g.keep(f)
	return nil
}

func (g *gathered) keep(f tree.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.files = append(g.files, f)
}

// member is a file of a folder on this host, in the state in which it is read.
type member struct {
	*io.SectionReader
	st unix.Stat_t
}

// ImportTar stores the directory that an upload has as a tar file, with the bounds of a directory and the size limit of a file.
func (im *Importer) ImportTar(ctx context.Context, r io.Reader) (Imported, error) {
	return im.gather(ctx, "directory", func(add func(string, int64, io.Reader, func(int64) error) error) error {
		err := tree.ReadTar(r, func(path string, size int64, r io.Reader) error {
			return add(path, size, r, func(int64) error { return nil })
		})
		if err == nil {
			_, err = io.Copy(io.Discard, r) // what follows the end of a tar file
		}
		if err != nil {
			err = fsFault("the upload cannot be read", err)
		}
		return err
	})
}

// IsFolder reports whether a path is a folder below a root that scope may read. It is false for what cannot be
// examined.
func (im *Importer) IsFolder(path string, scope Scope) bool {
	root, rel, err := im.locate(path, scope)
	if err != nil {
		return false
	}
	fd, err := openBeneath(root, rel, unix.O_PATH)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// ImportFolder stores the files of a folder that the gateway reads, with the boundary of [Importer.ImportFile] for each. A link or a
// special file in it refuses the whole folder, and so does a folder of the gateway's own.
func (im *Importer) ImportFolder(ctx context.Context, path string, scope Scope) (Imported, error) {
	top, err := im.openFolder(path, scope)
	if err != nil {
		return Imported{}, err
	}
	return im.gather(ctx, filepath.Base(path), func(add func(string, int64, io.Reader, func(int64) error) error) error {
		w := folderWalk{im: im, ctx: ctx, top: path, add: add}
		return w.folder(top, "", 0)
	})
}

// holdsOwn reports whether a folder has one of the gateway's own folders in it.
func (im *Importer) holdsOwn(path string) bool {
	return slices.ContainsFunc(im.own, func(own string) bool { return strings.HasPrefix(own, path+"/") })
}

// folderWalk walks one folder.
type folderWalk struct {
	im      *Importer
	ctx     context.Context
	top     string
	add     func(path string, size int64, r io.Reader, check func(size int64) error) error
	entries int
}

// folder adds what is in an open folder, which it closes. rel is its path below the top, with a slash at the end.
func (w *folderWalk) folder(dir *os.File, rel string, depth int) error {
	defer dir.Close()
	var before, after unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &before); err != nil {
		return fsFault("the folder cannot be examined", err)
	}
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if err := w.entry(dir, name, rel+name, depth); err != nil {
				return err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fsFault(w.top+"/"+rel+" cannot be read", err)
		}
	}
	if err := unix.Fstat(int(dir.Fd()), &after); err != nil {
		return fsFault("the folder cannot be examined", err)
	}
	if before.Mtim != after.Mtim || before.Ctim != after.Ctim {
		return changed(w.top + "/" + rel)
	}
	return nil
}

func (w *folderWalk) entry(dir *os.File, name, rel string, depth int) error {
	if w.entries++; w.entries > 2*tree.MaxFiles {
		return tree.TooMany()
	}
	if err := w.ctx.Err(); err != nil {
		return fsFault("the folder was not read to its end", err)
	}
	full := w.top + "/" + rel
	if msg := tree.CheckPath(rel); msg != "" {
		return tree.Entry(full, "cannot be in a directory artifact: "+msg)
	}
	fd, err := files.OpenBeneath(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return w.im.openFault(full, err)
	}
	f := os.NewFile(uintptr(fd), full)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return fsFault("the file cannot be examined", err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return w.folder(f, rel+"/", depth+1)
	}
	defer f.Close()
	if _, err := w.im.regular(f, full); err != nil {
		return err
	}
	err = w.add(rel, st.Size, &member{io.NewSectionReader(f, 0, math.MaxInt64), st}, func(size int64) error {
		return unchanged(f, st, size, full)
	})
	if errors.Is(err, io.ErrUnexpectedEOF) || fault.CodeOf(err) == "artifact_too_large" {
		err = changed(full)
	}
	return err
}
