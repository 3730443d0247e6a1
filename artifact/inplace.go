package artifact

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// Registered is a file that stays where it is: what an import would have stored, and the file's state while it was hashed.
type Registered struct {
	Imported
	State string
}

// StateOf returns the values that show a change of a file: inode, size in bytes, and the times of the last change of
// content and of anything, in seconds. They are what `stat -c '%i %s %.Y %.Z'` prints. The number of the device is
// not in it: each host numbers a network filesystem itself.
func StateOf(st unix.Stat_t) string {
	return fmt.Sprintf("%d %d %d.%09d %d.%09d", st.Ino, st.Size, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
}

// Register hashes a file that the gateway opens. It stores nothing but its progress, for a call that continues where
// this one is cut. The rules are those of [Importer.ImportFile].
func (im *Importer) Register(ctx context.Context, path string, scope Scope) (r Registered, err error) {
	f, _, err := im.openPlain(path, scope)
	if err != nil {
		return r, err
	}
	defer f.Close()
	return im.register(ctx, f, path)
}

// RegisterHanded is [Importer.Register] of a file that its caller opened and handed over, with the rules of
// [Importer.ImportHanded]. The file must be the one of that path, which is below a root that scope reads.
func (im *Importer) RegisterHanded(ctx context.Context, f *os.File, path string, scope Scope) (r Registered, err error) {
	root, rel, err := im.locate(path, scope)
	if err != nil {
		return r, err
	}
	name := filepath.Join(root.resolved, rel)
	if im.isOwn(name) || im.isBelowOwn(name) {
		return r, ownFault(path)
	}
	if _, err := im.handed(f, name); err != nil {
		return r, err
	}
	return im.register(ctx, f, path)
}

// register hashes an open file.
func (im *Importer) register(ctx context.Context, f *os.File, path string) (r Registered, err error) {
	before, err := settle(f)
	if err != nil {
		return r, fsFault(path+" cannot be synced", err)
	}
	dry := im.Rehearsal()
	dry.resumes = true
	r.Imported, err = dry.copy(ctx, f, path, before)
	r.State = StateOf(before)
	return r, err
}

// settle has all that was written to an open file written to the disk, and examines it then. Until then a program
// that has the file in its memory (mmap) can change it, and the file keeps its times.
func settle(f *os.File) (st unix.Stat_t, err error) {
	err = unix.Fsync(int(f.Fd()))
	if err == nil || err == unix.EINVAL || err == unix.EROFS { // the last two: the filesystem cannot be written to
		err = unix.Fstat(int(f.Fd()), &st)
	}
	return st, err
}

// Look returns the state of a file or folder that could be registered, and its number of bytes.
func (im *Importer) Look(ctx context.Context, path string, scope Scope) (state string, bytes int64, err error) {
	if im.IsFolder(path, scope) {
		return im.treeStateOf(ctx, path, scope)
	}
	f, st, err := im.openPlain(path, scope)
	if err != nil {
		return "", 0, err
	}
	return StateOf(st), st.Size, f.Close()
}

// OpenRegistered opens a file that has the state in which it was registered. Any other is a Validation fault with code input_mismatch.
func (im *Importer) OpenRegistered(path, state string) (*os.File, error) {
	f, st, err := im.openPlain(path, Scope{Every: true})
	if err != nil {
		return nil, err
	}
	if now := StateOf(st); now != state {
		f.Close()
		return nil, Changed(path, state, now)
	}
	return f, nil
}

// Changed returns the fault of a file that differs from what was registered.
func Changed(path, registered, now string) error {
	return fault.New(fault.Validation, "input_mismatch", fmt.Sprintf("%s was changed: registered with inode, size, mtime and ctime %s; now %s",
		path, registered, now)).WithNext("register it again: the same content keeps its artifact, other content becomes a new one").
		WithSteps(fault.Do("artifact.import", "path", path, "in_place", true))
}

// Reads reports whether a project may use the files below a path: its folder belongs to the project, or to none.
func (im *Importer) Reads(path, project string) bool {
	open := *im
	open.roots = nil
	for _, r := range im.roots {
		if len(r.Projects) == 0 { // only a caller who may import into every project registered its files, for this one
			r.Projects = []string{Every}
		}
		open.roots = append(open.roots, r)
	}
	_, _, err := open.locate(path, Scope{Project: project})
	return err == nil
}

// openPlain opens a regular file below a root that scope reads.
func (im *Importer) openPlain(path string, scope Scope) (f *os.File, st unix.Stat_t, err error) {
	root, rel, err := im.locate(path, scope)
	if err != nil {
		return nil, st, err
	}
	if im.isOwn(filepath.Join(root.resolved, rel)) {
		return nil, st, ownFault(path)
	}
	if f, err = open(root, rel); err != nil {
		return nil, st, im.openFault(path, err)
	}
	if st, err = im.regular(f, path); err != nil {
		f.Close()
		return nil, st, err
	}
	return f, st, nil
}
