package artifact

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dropStale removes temporary files without a lock, except partial copies that an import may continue.
func (s *Store) dropStale() error {
	entries, err := fs.ReadDir(s.root.FS(), "tmp")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if s.isPartial(e.Name(), time.Now()) {
			continue
		}
		f, err := s.root.OpenFile("tmp/"+e.Name(), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue // removed meanwhile, or not one of ours
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && e.Type().IsRegular() {
			err = s.root.Remove("tmp/" + e.Name())
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *Store) sync(folder string) error {
	d, err := s.root.Open(folder)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
