package staging

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"slurmgate/files"
	"slurmgate/plan"
	"slurmgate/run"
)

const stageDir = ".stage"

// StageInputs creates <run_id>/in and fills it with private, verified copies; afterwards in/ holds the inputs and
// nothing else. Each copy is a reflink where the filesystem supports it (its bytes are then read back and hashed);
// otherwise the bytes are hashed while they are written. A new run folder is filled in place. In an existing one a file
// gets its name only when it has the input's checksum and is durable; an existing file is hashed again, and replaced if
// it is wrong. Files written in place become durable with [Shared.OpenAttempt], which syncs them with the control files
// before anything is sent. After a crash before that they are hashed again.
//
// A full disk is a Transport fault with code disk_full; an object whose bytes do not match the checksum is a
// Validation fault with code input_checksum; neither leaves a part of the file behind.
func (s *Shared) StageInputs(ctx context.Context, runID string, inputs []plan.Input, open run.Opener) error {
	tree, err := NewTree(inputs)
	if err != nil {
		return err
	}
	unlock, err := s.locks.Lock(ctx, runID)
	if err != nil {
		return err
	}
	defer unlock()
	root, err := s.root(ctx, runID, 1)
	if err != nil {
		return err
	}
	defer root.close()
	runDir, fresh, err := root.mkdirNew(runID)
	if err != nil {
		return fsFault("the run's folder cannot be made", err)
	}
	defer runDir.close()
	if fresh {
		s.fresh.Store(runID, true)
		err = tree.fillNew(ctx, runDir, inputs, open)
	} else {
		err = tree.fill(ctx, runDir, inputs, open)
	}
	return fsFault("the inputs of "+runID+" cannot be staged", err)
}

// fillNew fills a run folder that this call created: nothing has to be searched for or replaced.
func (t Tree) fillNew(ctx context.Context, runDir dir, inputs []plan.Input, open run.Opener) error {
	if err := t.mkdirs(runDir); err != nil {
		return err
	}
	for _, in := range inputs {
		err := withInput(ctx, runDir, in, open, func(parent dir, name string, src io.Reader, size int64) error {
			dst, err := copyInput(ctx, parent, name, src, size, in)
			if err != nil {
				return err
			}
			return dst.Close()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// syncInputs makes in/ durable.
func syncInputs(runDir dir) error {
	in, err := runDir.sub("in")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.close()
	return in.syncAll()
}

// syncedAtOnce bounds how many files are open before they are synced.
const syncedAtOnce = 16

// syncAll makes the folder and all its content durable.
func (d dir) syncAll() error {
	list, err := d.listing()
	if err != nil {
		return err
	}
	defer list.Close()
	for {
		names, err := list.Readdirnames(syncedAtOnce)
		if errors.Is(err, io.EOF) {
			return d.sync()
		}
		if err != nil {
			return err
		}
		if err := d.syncEach(names); err != nil {
			return err
		}
	}
}

func (d dir) syncEach(names []string) error {
	var w written
	defer func() { w.close() }()
	for _, name := range names {
		f, err := d.open(name)
		if err != nil {
			return err
		}
		st, err := f.Stat()
		if err == nil && !st.IsDir() {
			w = append(w, f)
			continue
		}
		if err == nil {
			err = dir{int(f.Fd())}.syncAll()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return w.sync()
}

// fill brings in/ into the state that the tree describes.
func (t Tree) fill(ctx context.Context, runDir dir, inputs []plan.Input, open run.Opener) error {
	if err := runDir.removeAll(stageDir); err != nil { // a crash may have left half-copied files
		return err
	}
	if err := t.prune(runDir, "in"); err != nil {
		return err
	}
	if err := t.mkdirs(runDir); err != nil {
		return err
	}
	stage, err := runDir.mkdir(stageDir)
	if err != nil {
		return err
	}
	defer runDir.removeAll(stageDir)
	defer stage.close()
	for _, in := range inputs {
		err := withInput(ctx, runDir, in, open, func(parent dir, name string, src io.Reader, size int64) error {
			if ok, err := alreadyThere(ctx, parent, name, in.ChecksumSHA256, size); ok || err != nil {
				return err
			}
			temp := randomName()
			dst, err := copyInput(ctx, stage, temp, src, size, in)
			if err != nil {
				return err
			}
			if err := errors.Join(dst.Sync(), dst.Close()); err != nil {
				return err
			}
			return stage.rename(temp, parent, name)
		})
		if err != nil {
			return err
		}
	}
	return t.sync(runDir)
}

// mkdirs makes the folders of the tree.
func (t Tree) mkdirs(runDir dir) error {
	for _, d := range slices.Sorted(maps.Keys(t.Dirs)) { // parents first
		made, err := runDir.mkdirs(d)
		if err != nil {
			return err
		}
		made.close()
	}
	return nil
}

// sync makes the names in the folders of the tree durable.
func (t Tree) sync(runDir dir) error {
	for d := range t.Dirs {
		sub, err := runDir.sub(d)
		if err != nil {
			return err
		}
		err = sub.sync()
		sub.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// withInput opens the bytes of an input and its target folder, and calls put with them.
func withInput(ctx context.Context, runDir dir, in plan.Input, open run.Opener,
	put func(parent dir, name string, src io.Reader, size int64) error) error {
	src, size, err := open(ctx, in.ChecksumSHA256)
	if err != nil {
		return Opened(in, err)
	}
	defer src.Close()
	parent, err := runDir.sub(path.Dir(in.DestRelpath))
	if err != nil {
		return err
	}
	defer parent.close()
	return put(parent, path.Base(in.DestRelpath), src, size)
}

// copyInput creates a copy that has the input's checksum. A copy with another checksum is removed.
func copyInput(ctx context.Context, at dir, name string, src io.Reader, size int64, in plan.Input) (*os.File, error) {
	dst, err := at.create(name, 0o400)
	if err != nil {
		return nil, err
	}
	if err := copyVerified(ctx, dst, src, size, in); err != nil {
		dst.Close() // the error that matters is the first
		at.unlink(name)
		return nil, err
	}
	return dst, nil
}

// alreadyThere reports whether an earlier call staged the file: it belongs to our user, has no other name, and its
// bytes match the checksum.
func alreadyThere(ctx context.Context, parent dir, name, sum string, size int64) (bool, error) {
	f, err := parent.open(name)
	if err != nil {
		return false, nil // absent or cannot be opened: it is replaced
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 || int(st.Uid) != os.Geteuid() || st.Size != size {
		return false, nil
	}
	got, _, err := files.CopyHash(ctx, io.Discard, f, size)
	if err != nil || got != sum {
		return false, err
	}
	if st.Mode&0o777 != 0o400 {
		if err := f.Chmod(0o400); err != nil {
			return false, err
		}
	}
	return true, f.Sync() // the call that wrote it may not have synced it
}

// writeback is a writer that starts the write-out of a file while it is copied, so that the final sync has less to do.
type writeback struct {
	f       *os.File
	started int64 // the write-out of the bytes before this offset was started
	size    int64
}

const writebackBytes = 8 << 20

func (e *writeback) Write(b []byte) (int, error) {
	n, err := e.f.Write(b)
	e.size += int64(n)
	if part := e.size - e.started; err == nil && part >= writebackBytes {
		_ = unix.SyncFileRange(int(e.f.Fd()), e.started, part, unix.SYNC_FILE_RANGE_WRITE) // a hint
		e.started = e.size
	}
	return n, err
}

// copyVerified copies src to dst and checks the input's checksum. A source that is a file of this host is reflinked
// where the filesystem supports it; any other is read.
func copyVerified(ctx context.Context, dst *os.File, src io.Reader, size int64, in plan.Input) (err error) {
	var got string
	if f, here := src.(*os.File); here && unix.IoctlFileClone(int(dst.Fd()), int(f.Fd())) == nil {
		got, _, err = files.CopyHash(ctx, io.Discard, dst, size)
	} else {
		got, _, err = files.CopyHash(ctx, &writeback{f: dst}, src, size)
	}
	if err != nil {
		return err
	}
	if got != in.ChecksumSHA256 {
		return WrongInput(in, got)
	}
	return nil
}
