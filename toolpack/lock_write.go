package toolpack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan"
)

const lockHeader = "# Written by `slurmgate image add NAME FILE.sif` and `image pull NAME SOURCE`. " +
	"Toolpacks name images; this file says which bytes a name means.\n"

// ReadLock reads an image lock. A file that does not exist is an empty lock.
func ReadLock(path string) (Lock, error) {
	dir, name := filepath.Split(path)
	root, err := openRoot(filepath.Clean(dir))
	if err != nil {
		return Lock{}, err
	}
	defer root.Close()
	if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return Lock{}, nil
	}
	data, msg := readFile(root.FS(), name)
	if msg != "" {
		return Lock{}, fault.New(fault.Validation, "LOCK-FILE", "cannot read "+path+": "+msg)
	}
	return ParseLock(path, data)
}

// Record enters an image into the lock file at path, which is replaced as a whole. The same name and digest again change nothing but what
// was wrong about the file; a name that has another digest is a Conflict fault unless replace is set.
func Record(path string, img LockedImage, replace bool) (changed bool, err error) {
	img.AddedAt = img.AddedAt.UTC().Truncate(time.Second)
	data, err := encodeLock([]LockedImage{img})
	if _, found := parseLock(path, data); err == nil && len(found) > 0 {
		return false, &fault.Error{Kind: fault.Validation, Code: "IMAGE-NAME", Msg: "cannot record the image", Problems: found}
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return false, fault.Wrap(fault.Transport, "LOCK-FILE", "cannot write "+path, err)
	}
	defer unlock()
	l, err := ReadLock(path)
	if err != nil {
		return false, err
	}
	if changed, err = l.put(img, replace); err != nil || !changed {
		return false, err
	}
	if data, err = encodeLock(l.images); err == nil {
		err = replaceFile(path, data)
	}
	if err != nil {
		return false, fault.Wrap(fault.Transport, "LOCK-FILE", "cannot write "+path, err).
			WithNext("check that this user may write to the domain's folder")
	}
	return true, nil
}

// put adds or replaces an entry and reports whether anything changed.
func (l *Lock) put(img LockedImage, replace bool) (changed bool, err error) {
	i, found := l.find(img.Name)
	if !found {
		l.images = slices.Insert(l.images, i, img)
		return true, nil
	}
	switch old := l.images[i]; {
	case old.Digest == img.Digest && old.Arch == img.Arch && old.SizeBytes == img.SizeBytes && !newSource(old.Source, img.Source) &&
		(img.SourceDigest == "" || img.SourceDigest == old.SourceDigest):
		return false, nil
	case old.Digest != img.Digest && !replace:
		return false, fault.New(fault.Conflict, "IMAGE-NAME-TAKEN",
			fmt.Sprintf("the name %s already means %s, not %s", img.Name, old.Digest, img.Digest)).
			WithNext("choose another name, or add --replace: tools that use the name will then run the new image, with new run ids")
	}
	l.images[i] = img
	return true, nil
}

// newSource reports whether an image of a registry becomes known as the source of a file that has an entry.
func newSource(old, given string) bool {
	_, registry := plan.RegistryImage(given)
	return registry && given != old
}

func encodeLock(images []LockedImage) ([]byte, error) {
	b := bytes.NewBufferString(lockHeader)
	e := yaml.NewEncoder(b)
	e.SetIndent(2)
	err := e.Encode(struct {
		Version int           `yaml:"version"`
		Images  []LockedImage `yaml:"images"`
	}{1, images})
	return b.Bytes(), errors.Join(err, e.Close())
}

// replaceFile writes a file under another name, makes it durable and renames it.
func replaceFile(path string, data []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // after the rename there is nothing of this name
	defer tmp.Close()
	if _, err := tmp.Write(data); err != nil {
		return err
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Sync()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// lockDir keeps two `image add` from losing each other's entry. A network filesystem that has no such locks is used without: the file
// stays whole, only the later of two entries made at the same moment remains.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX)
	}
	return func() { d.Close() }, nil
}
