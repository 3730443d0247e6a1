package artifact

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Bounds of a search for files by name.
const (
	MaxLooked   = 100_000 // files and folders that one search reads
	MaxFound    = 1000    // files that it finds
	maxLookDeep = 16      // folders below a root
	lookTime    = 10 * time.Second
)

// Found is a file below an import root.
type Found struct {
	Path       string // as an import names it
	SizeBytes  int64
	ModifiedAt time.Time
}

// Named returns the condition that a file's name contains a text, in upper or lower case.
func Named(part string) func(path string) bool {
	part = strings.ToLower(part)
	return func(path string) bool { return strings.Contains(strings.ToLower(filepath.Base(path)), part) }
}

// Find searches for regular files below the roots that scope reads, with this process's rights, by their paths.
// Unreadable files, symlinks, and the gateway's own folders are skipped. Files are in the order of their names. whole
// is false if a bound was reached before everything was searched.
func (im *Importer) Find(ctx context.Context, scope Scope, is func(path string) bool) (found []Found, whole bool) {
	ctx, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	l := &lookup{ctx: ctx, is: is, left: MaxLooked, whole: true}
	for _, name := range im.own {
		if info, err := os.Stat(name); err == nil {
			l.closed = append(l.closed, info)
		}
	}
	var walks []importRoot
	for _, r := range im.roots {
		if slices.ContainsFunc(walks, func(w importRoot) bool { return w.resolved == r.resolved }) {
			continue // another spelling of it
		}
		if info, err := os.Stat(r.resolved); err == nil && im.reads(scope, r.resolved) {
			walks = append(walks, r)
			l.roots = append(l.roots, info)
		} else if err == nil {
			l.closed = append(l.closed, info)
		}
	}
	slices.SortFunc(walks, func(a, b importRoot) int { return strings.Compare(a.resolved, b.resolved) })
	for _, r := range walks {
		if !im.isOwn(r.resolved) {
			l.walk(r)
		}
	}
	slices.SortStableFunc(l.found, func(a, b Found) int { return strings.Compare(filepath.Base(a.Path), filepath.Base(b.Path)) })
	return l.found, l.whole
}

// Folders returns the roots that scope reads, for a search with the rights of another user.
func (im *Importer) Folders(scope Scope) (out []string) {
	for _, r := range im.roots {
		if im.reads(scope, r.resolved) && !slices.Contains(out, r.resolved) {
			out = append(out, r.resolved)
		}
	}
	return out
}

// Takes reports whether a path is below a root that scope reads, outside of the gateway's own folders.
func (im *Importer) Takes(path string, scope Scope) bool {
	_, _, err := im.locate(path, scope)
	return err == nil && !im.isOwn(path)
}

// lookup is a search under way.
type lookup struct {
	ctx           context.Context
	is            func(path string) bool
	roots, closed []os.FileInfo // folders that are searched separately, or not at all
	found         []Found
	left          int
	whole         bool
}

// walk searches one root.
func (l *lookup) walk(r importRoot) {
	folder, err := os.OpenRoot(r.resolved)
	if err != nil {
		return
	}
	defer folder.Close()
	_ = fs.WalkDir(folder.FS(), ".", func(name string, e fs.DirEntry, err error) error { // the function returns no error that ends in one
		switch {
		case l.ctx.Err() != nil || l.left <= 0 || len(l.found) == MaxFound:
			l.whole = false
			return fs.SkipAll
		case err != nil && e != nil && e.IsDir():
			return fs.SkipDir
		case err != nil || name == ".":
			return nil
		}
		l.left--
		if e.IsDir() {
			info, err := e.Info()
			same := func(other os.FileInfo) bool { return os.SameFile(info, other) }
			switch {
			case err != nil || slices.ContainsFunc(l.closed, same) || slices.ContainsFunc(l.roots, same):
				return fs.SkipDir
			case strings.Count(name, "/") >= maxLookDeep:
				l.whole = false
				return fs.SkipDir
			}
			return nil
		}
		path := filepath.Join(r.Folder, name)
		if !e.Type().IsRegular() || badName(path) != "" || !l.is(path) {
			return nil
		}
		if info, err := e.Info(); err == nil {
			l.found = append(l.found, Found{path, info.Size(), info.ModTime()})
		}
		return nil
	})
}
