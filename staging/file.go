package staging

import (
	"cmp"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"slurmgate/files"
	"slurmgate/run"
)

// create creates a file for reading and writing. A umask can only remove permissions, and a file that its owner cannot
// read fails at the read back.
func (d dir) create(name string, mode uint32) (*os.File, error) {
	fd, err := files.OpenBeneath(d.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func fsync(fd int) error {
	for {
		if err := unix.Fsync(fd); err != unix.EINTR {
			return err
		}
	}
}

// written is a set of new files that are not durable yet.
type written []*os.File

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
	var syncs []func() error
	for _, f := range *w {
		if len(*w) > 1 { // a hint: what is being written at the first sync reaches the disk with it, names included
			_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
		}
		syncs = append(syncs, f.Sync)
	}
	for _, d := range folders {
		syncs = append(syncs, d.sync)
	}
	return errors.Join(together(syncs...), w.close())
}

// close closes the files without syncing them. Network filesystems report a lost write here.
func (w *written) close() (first error) {
	for _, f := range *w {
		if err := f.Close(); first == nil {
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
	return cmp.Or(errs...)
}

// write creates a new durable file with this content.
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
	from := int64(0)
	if tail {
		from = -limit
	}
	p, err := d.readFrom(name, from, limit)
	return p.Data, err
}

// readFrom reads at most limit bytes, starting at byte from; a negative from counts from the end.
func (d dir) readFrom(name string, from, limit int64) (p run.Part, err error) {
	f, err := d.open(name)
	if err != nil {
		return p, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return p, err
	}
	if !st.Mode().IsRegular() {
		return p, &os.PathError{Op: "read", Path: name, Err: errIrregular}
	}
	p.From = Within(from, st.Size())
	p.Data, err = io.ReadAll(io.NewSectionReader(f, p.From, limit))
	return p, err
}

// Within returns an offset in a file of size bytes: a negative from counts from the end, and the result is clamped to
// the file.
func Within(from, size int64) int64 {
	if from < 0 {
		from += size
	}
	return min(max(0, from), size)
}
