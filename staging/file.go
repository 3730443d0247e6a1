package staging

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/files"
)

// file is an open file of ours: a bare descriptor, like dir.
type file struct {
	fd   int
	name string
}

// create creates a file for reading and writing. A umask can only remove permissions, and a file its owner cannot read fails when it is
// read back.
func (d dir) create(name string, mode uint32) (file, error) {
	fd, err := files.OpenBeneath(d.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, mode)
	return file{fd, name}, err
}

func (f file) Write(p []byte) (n int, err error) {
	for n < len(p) {
		m, err := unix.Write(f.fd, p[n:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return n, &os.PathError{Op: "write", Path: f.name, Err: err}
		case m == 0:
			return n, io.ErrShortWrite
		default:
			n += m
		}
	}
	return n, nil
}

func (f file) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(f.fd, p)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, &os.PathError{Op: "read", Path: f.name, Err: err}
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// hurry asks the kernel to start writing the file out. When several files are to be synced, all that start before the first sync reach the
// disk with it, names included, and the other syncs find nothing left to do.
func (f file) hurry() { _ = unix.SyncFileRange(f.fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) } // a hint: the sync counts

// sync makes the content durable.
func (f file) sync() error {
	if err := fsync(f.fd); err != nil {
		return &os.PathError{Op: "fsync", Path: f.name, Err: err}
	}
	return nil
}

// close closes the file; network filesystems report a lost write here.
func (f file) close() error {
	if err := unix.Close(f.fd); err != nil && err != unix.EINTR {
		return &os.PathError{Op: "close", Path: f.name, Err: err}
	}
	return nil
}

func fsync(fd int) error {
	for {
		if err := unix.Fsync(fd); err != unix.EINTR {
			return err
		}
	}
}

// written is a set of new files that are not durable yet.
type written []file

// add creates a file with this content.
func (w *written) add(d dir, name string, data []byte) error {
	f, err := d.create(name, 0o600)
	if err != nil {
		return err
	}
	*w = append(*w, f)
	_, err = f.Write(data)
	return err
}

// sync makes all of them durable, together with the names in their folders, and closes them. The syncs run concurrently: most filesystems
// combine them into one journal commit.
func (w *written) sync(folders ...dir) error {
	if len(*w) > 1 {
		for _, f := range *w {
			f.hurry()
		}
	}
	var syncs []func() error
	for _, f := range *w {
		syncs = append(syncs, f.sync)
	}
	for _, d := range folders {
		syncs = append(syncs, d.sync)
	}
	return errors.Join(together(syncs...), w.close())
}

// close closes the files without syncing them.
func (w *written) close() (first error) {
	for _, f := range *w {
		if err := f.close(); first == nil {
			first = err
		}
	}
	*w = nil
	return first
}

// together calls all functions concurrently and returns the first error in the order of the list.
func together(f ...func() error) error {
	errs := make([]error, len(f))
	var wg sync.WaitGroup
	for i := 1; i < len(f); i++ {
		wg.Go(func() { errs[i] = f[i]() })
	}
	if len(f) > 0 {
		errs[0] = f[0]()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// write makes a new durable file with this content.
func (d dir) write(name string, data []byte) error {
	var w written
	err := w.add(d, name, data)
	made := len(w) > 0
	if err == nil {
		err = w.sync()
	} else {
		w.close() // the error that matters is the first
	}
	if err != nil && made {
		d.unlink(name)
	}
	return err
}

// read reads at most limit bytes of a regular file, the last ones when tail is set.
func (d dir) read(name string, limit int64, tail bool) ([]byte, error) {
	fd, err := files.OpenBeneath(d.fd, name, readFlags, 0)
	if err != nil {
		return nil, err
	}
	f := file{fd, name}
	defer f.close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &os.PathError{Op: "read", Path: name, Err: errIrregular}
	}
	if tail && st.Size > limit {
		if _, err := unix.Seek(fd, st.Size-limit, io.SeekStart); err != nil {
			return nil, &os.PathError{Op: "seek", Path: name, Err: err}
		}
	}
	// It may grow meanwhile.
	data := make([]byte, 0, min(limit, max(st.Size, 0))+1)
	for int64(len(data)) < limit {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := f.Read(data[len(data):min(int64(cap(data)), limit)])
		data = data[:len(data)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			return data, err
		}
	}
	return data, nil
}
