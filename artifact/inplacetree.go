package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/files"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

// RegisterFolder hashes the files of a folder. It stores nothing but its progress, for a call that continues where
// this one is cut. The rules are those of [Importer.ImportFolder].
func (im *Importer) RegisterFolder(ctx context.Context, path string, scope Scope) (r Registered, err error) {
	if err := im.settleFolder(path, scope); err != nil {
		return r, err
	}
	var bytes int64
	if r.State, bytes, err = im.treeStateOf(ctx, path, scope); err != nil {
		return r, err
	}
	files.Watcher(ctx).Expect(bytes)
	dry := im.Rehearsal()
	dry.listed, dry.resumes, dry.hashed = true, true, im.store.Hashed("here "+path, r.State)
	defer func() { dry.hashed.Close(err == nil) }()
	if r.Imported, err = dry.ImportFolder(ctx, path, scope); err != nil {
		return r, err
	}
	after, _, err := im.treeStateOf(ctx, path, scope)
	if err == nil && after != r.State {
		err = changed(path)
	}
	return r, err
}

// ListOf returns what an import of a directory with these files would have stored.
func ListOf(name string, list []tree.File) (in Imported, err error) {
	slices.SortFunc(list, func(a, b tree.File) int { return tree.Compare(a.Path, b.Path) })
	var text bytes.Buffer
	w := tree.NewWriter(&text)
	for _, f := range list {
		if err := w.Add(f); err != nil {
			return in, err
		}
		in.SizeBytes += f.Size
	}
	if _, err := w.Close(); err != nil {
		return in, err
	}
	sum := sha256.Sum256(text.Bytes())
	in.SHA256, in.Type, in.Label = hex.EncodeToString(sum[:]), plan.Directory, labelOf(name)
	in.List = &List{int64(text.Len()), list}
	return in, nil
}

// StillRegistered returns a Validation fault with code input_mismatch if a file or directory has another state than
// it was registered with.
func (im *Importer) StillRegistered(ctx context.Context, path, state string) error {
	if !strings.HasPrefix(state, tree.StatePrefix) {
		f, err := im.OpenRegistered(path, state)
		if err == nil {
			f.Close()
		}
		return err
	}
	now, _, err := im.treeStateOf(ctx, path, Scope{Every: true})
	if err == nil && now != state {
		err = Changed(path, state, now)
	}
	return err
}

// openFolder opens a folder below a root that scope reads.
func (im *Importer) openFolder(path string, scope Scope) (*os.File, error) {
	root, rel, err := im.locate(path, scope)
	if err != nil {
		return nil, err
	}
	if im.isOwn(filepath.Join(root.resolved, rel)) || im.holdsOwn(filepath.Join(root.resolved, rel)) {
		return nil, ownFault(path)
	}
	fd, err := openBeneath(root, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, im.openFault(path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// settleFolder is [settle] of the whole filesystem that a folder is on.
func (im *Importer) settleFolder(path string, scope Scope) error {
	top, err := im.openFolder(path, scope)
	if err != nil {
		return err
	}
	defer top.Close()
	if err := unix.Syncfs(int(top.Fd())); err != nil {
		return fsFault("the filesystem of "+path+" cannot be synced", err)
	}
	return nil
}

// treeStateOf returns the state of a folder, and the number of bytes of its files. After its prefix the state has the
// SHA-256 of the folder's listing: a line for the folder itself and for each entry in it, sorted by path, as printed
// by `find . -print0 | sort -z | xargs -0 stat -c '%f %i %s %.Y %.Z %n'`.
func (im *Importer) treeStateOf(ctx context.Context, path string, scope Scope) (state string, bytes int64, err error) {
	top, err := im.openFolder(path, scope)
	if err != nil {
		return "", 0, err
	}
	defer top.Close()
	l := listing{ctx: ctx}
	var st unix.Stat_t
	if err := unix.Fstat(int(top.Fd()), &st); err != nil {
		return "", 0, fsFault("the folder cannot be examined", err)
	}
	l.add(".", st)
	if err := l.folder(top, "."); err != nil {
		return "", 0, fsFault(path+" cannot be listed", err)
	}
	slices.SortFunc(l.lines, func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
	h := sha256.New()
	for _, line := range l.lines {
		io.WriteString(h, line[1])
	}
	return tree.StatePrefix + hex.EncodeToString(h.Sum(nil)), l.bytes, nil
}

// listing gathers the lines of a listing, by path.
type listing struct {
	ctx   context.Context
	lines [][2]string
	bytes int64 // of the files
}

func (l *listing) add(path string, st unix.Stat_t) {
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		l.bytes += st.Size
	}
	l.lines = append(l.lines, [2]string{path, fmt.Sprintf("%x %s %s\n", st.Mode, StateOf(st), path)})
}

func (l *listing) folder(dir *os.File, rel string) error {
	for {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			if err := l.entry(dir, name, rel+"/"+name); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *listing) entry(dir *os.File, name, rel string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, unix.ENOENT) {
		return nil // its folder shows it
	} else if err != nil {
		return err
	}
	if l.add(rel, st); len(l.lines) > 2*tree.MaxFiles {
		return tree.TooMany()
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return l.ctx.Err()
	}
	if strings.Count(rel, "/") > tree.MaxDepth {
		return fault.New(fault.Validation, "directory_entry", rel+" is too deep for a directory artifact")
	}
	fd, err := files.OpenBeneath(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	sub := os.NewFile(uintptr(fd), rel)
	defer sub.Close()
	return l.folder(sub, rel)
}
