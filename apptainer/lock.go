package apptainer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// LockFile is the name of the file in a domain's folder that gives names to image digests:
//
//	version: 1
//	images:                          # by name
//	  - name: samtools
//	    digest: sha256:0f3a…         # SHA-256 of the SIF file
//	    arch: amd64
//	    size_bytes: 12345678
//	    source: samtools.sif         # where it came from, for people
//	    added_at: 2026-11-21T07:00:00Z
const LockFile = "images.lock.yaml"

const (
	lockVersion = 1
	lockHeader  = "# Written by `slurmgate image add NAME FILE.sif`. Toolpacks name images; this file says which bytes a name means.\n"
	maxLockFile = 4 << 20
)

// Lock is the content of the lock file.
type Lock struct {
	Version int     `yaml:"version"`
	Images  []Named `yaml:"images"` // sorted by name
}

// Named is an image with its name.
type Named struct {
	Name      string    `yaml:"name"`       // lower-case letters, digits and . _ -
	Digest    string    `yaml:"digest"`     // sha256:<64 hex>
	Arch      string    `yaml:"arch"`       // in Go's spelling, e.g. amd64
	SizeBytes int64     `yaml:"size_bytes"` // of the SIF file
	Source    string    `yaml:"source"`     // where it came from, for people
	AddedAt   time.Time `yaml:"added_at"`   // UTC, to the second
}

// ReadLock reads a lock file. A file that is not there is an empty lock; one that breaks a rule is a
// Validation fault.
func ReadLock(path string) (Lock, error) {
	const op = "apptainer.ReadLock"
	f, size, err := openRegular(path)
	if fault.Is(err, fault.NotFound) {
		return Lock{Version: lockVersion}, nil
	}
	if err != nil {
		return Lock{}, fault.Wrap("", op, "IMAGE-LOCK", "cannot read "+path, err)
	}
	defer f.Close()
	if size > maxLockFile {
		return Lock{}, fault.New(fault.Validation, op, "IMAGE-LOCK", path+" is too large for an image lock")
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return Lock{}, fault.Wrap(fault.Transport, op, "IMAGE-LOCK", "cannot read "+path, err)
	}
	l, err := parseLock(data)
	if err != nil {
		return Lock{}, fault.Wrap(fault.Validation, op, "IMAGE-LOCK", path+" is not a valid image lock", err).
			WithNext("correct it, or remove it and add the images again").WithSteps(fault.Do("image add"))
	}
	return l, nil
}

func parseLock(data []byte) (Lock, error) {
	var l Lock
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&l); err != nil {
		return Lock{}, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Lock{}, errors.New("the file contains more than one document")
	}
	if l.Version != lockVersion {
		return Lock{}, fmt.Errorf("version %d is not supported, only %d", l.Version, lockVersion)
	}
	seen := map[string]bool{}
	for _, n := range l.Images {
		if err := n.check(); err != nil {
			return Lock{}, err
		}
		if seen[n.Name] {
			return Lock{}, fmt.Errorf("the name %s appears twice", n.Name)
		}
		seen[n.Name] = true
	}
	return l, nil
}

func (n Named) check() error {
	switch {
	case !imageName.MatchString(n.Name):
		return fmt.Errorf("%q is not a name for an image (lower-case letters, digits and . _ -, at most 128)", n.Name)
	case !lockRef.MatchString(n.Digest):
		return fmt.Errorf("image %s: %q is not sha256: and 64 hex digits", n.Name, n.Digest)
	case n.Arch == "":
		return fmt.Errorf("image %s: arch is missing", n.Name)
	case n.SizeBytes < 1:
		return fmt.Errorf("image %s: size_bytes is missing", n.Name)
	}
	return nil
}

// Find returns the image of a name.
func (l Lock) Find(name string) (Named, bool) {
	i := slices.IndexFunc(l.Images, func(n Named) bool { return n.Name == name })
	if i < 0 {
		return Named{}, false
	}
	return l.Images[i], true
}

// CodeNotStored is the code of an image that has an entry in the lock and is not in the store.
const CodeNotStored = "IMAGE-NOT-STORED"

// Against gives what the lock says otherwise than the store: images the store does not hold, and sizes or architectures that are not the
// file's. file is the lock file's name in the problems.
func (l Lock) Against(file string, stored []Image) (found []fault.Problem) {
	byRef := map[string]Image{}
	for _, i := range stored {
		byRef[i.Ref()] = i
	}
	for i, n := range l.Images {
		add := func(code, field, rule, msg string) {
			found = append(found, fault.Problem{Code: code, Field: fmt.Sprintf("images[%d].%s", i, field), Rule: rule, Msg: msg, File: file,
				Next: []fault.Step{fault.Do("image add", "name", n.Name)}})
		}
		have, ok := byRef[n.Digest]
		switch {
		case !ok:
			add(CodeNotStored, "digest", "an image of the store", "the image store does not have "+n.Name+" ("+n.Digest+")")
			continue
		case have.Bad != "":
			add("IMAGE-LOCK", "digest", "an image that runs here", n.Name+" cannot be used: "+have.Bad+"")
		case have.Arch != n.Arch:
			add("IMAGE-LOCK", "arch", "the image's own architecture", n.Name+" is "+have.Arch+", but the lock says "+n.Arch)
		}
		if have.SizeBytes != n.SizeBytes {
			add("IMAGE-LOCK", "size_bytes", "the size of the image's file", fmt.Sprintf("%s has %d bytes, but the lock says %d", n.Name,
				have.SizeBytes, n.SizeBytes))
		}
	}
	return found
}

// put adds or replaces an entry and tells whether anything changed.
func (l *Lock) put(n Named, replace bool) (changed bool, err error) {
	i := slices.IndexFunc(l.Images, func(have Named) bool { return have.Name == n.Name })
	switch {
	case i < 0:
		l.Images = append(l.Images, n)
	case l.Images[i].Digest == n.Digest:
		old := l.Images[i]
		if old.Arch == n.Arch && old.SizeBytes == n.SizeBytes {
			return false, nil
		}
		l.Images[i] = n // the entry was wrong about the file
	case !replace:
		return false, fault.New(fault.Conflict, "apptainer.Record", "IMAGE-NAME-TAKEN",
			fmt.Sprintf("the name %s already stands for %s, not for %s", n.Name, l.Images[i].Digest, n.Digest)).
			WithNext("choose another name, or add --replace: tools that use the name will then run the new image, with new run ids")
	default:
		l.Images[i] = n
	}
	return true, nil
}

// Record enters an image into the lock file at path, which is replaced as a whole. The same name and digest
// again change nothing but what was wrong about the file; a name that has another digest is a Conflict fault unless replace is set.
func Record(path string, n Named, replace bool) (changed bool, err error) {
	const op = "apptainer.Record"
	n.AddedAt = n.AddedAt.UTC().Truncate(time.Second)
	if err := n.check(); err != nil {
		return false, fault.Wrap(fault.Validation, op, "IMAGE-NAME", "cannot record the image", err)
	}
	unlock, err := lockDir(filepath.Dir(path))
	if err != nil {
		return false, fault.Wrap(fault.Transport, op, "IMAGE-LOCK", "cannot write "+path, err)
	}
	defer unlock()
	l, err := ReadLock(path)
	if err != nil {
		return false, err
	}
	if changed, err = l.put(n, replace); err != nil || !changed {
		return false, err
	}
	if err := writeLock(path, l); err != nil {
		return false, fault.Wrap(fault.Transport, op, "IMAGE-LOCK", "cannot write "+path, err).
			WithNext("check that this user may write to the domain's folder")
	}
	return true, nil
}

func writeLock(path string, l Lock) error {
	slices.SortFunc(l.Images, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	buf := bytes.NewBufferString(lockHeader)
	e := yaml.NewEncoder(buf)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(l), e.Close()); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // after the rename there is nothing of this name
	defer tmp.Close()
	if _, err := tmp.Write(buf.Bytes()); err != nil {
		return err
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Sync()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// lockDir keeps two `image add` from losing each other's entry. A network filesystem that has no such locks is used
// without: the file stays whole, only the later of two entries made at the same moment wins.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("the folder does not exist: %w", err)
		}
		return nil, err
	}
	for {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return func() { d.Close() }, nil
}
