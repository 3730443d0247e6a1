// Package oci builds SIF files from images of registries: it asks a registry, downloads by digest, flattens the layers,
// packs them into a squashfs and wraps that. It also downloads SIF files from registries (as artifacts) and from web
// servers.
//
// A registry is trusted only for bytes that match a digest. This package runs nothing of an image.
package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"slurmgate/apptainer"
	"slurmgate/fault"
)

// Limits bound an image.
type Limits struct {
	Bytes         int64 // downloaded
	UnpackedBytes int64 // of the layers' archives, uncompressed, and of the files in them
	Files         int   // entries of the layers' archives
}

// Puller pulls images. Its zero value has no credentials and the default limits.
type Puller struct {
	Dir         string   // folder of downloads until the image is built: private to this user, on a disk with room for them
	Credentials string   // a file in the form of docker's config.json; none when empty
	Insecure    []string // host:port of registries that are reached without TLS
	Private     []string // host:port with private addresses that a registry may send to
	Limits      Limits   // zero: the defaults
	Stall       time.Duration
	Pause       time.Duration // after a failed attempt, doubled each time
	Builder     string        // sqfstar or mksquashfs; empty: the first one found

	// Progress, if set, is called with the progress of a stage; of is 0 if the total is unknown.
	Progress func(stage string, done, of int64)
}

// The defaults of limits.
const (
	DefaultMB      = 16 << 10 // of an image, downloaded
	unpackedFactor = 6        // of that when it is unpacked
	maxFiles       = 1_000_000
	lockName       = "lock"
)

func (p *Puller) limits() Limits {
	l := p.Limits
	l.Bytes = cmp.Or(l.Bytes, DefaultMB<<20)
	l.UnpackedBytes = cmp.Or(l.UnpackedBytes, l.Bytes*unpackedFactor)
	l.Files = cmp.Or(l.Files, maxFiles)
	return l
}

func (p *Puller) stall() time.Duration { return cmp.Or(p.Stall, time.Minute) }
func (p *Puller) pause() time.Duration { return cmp.Or(p.Pause, time.Second) }

func (p *Puller) report(stage string, done, of int64) {
	if p.Progress != nil {
		p.Progress(stage, done, of)
	}
}

// File is a built or downloaded SIF file. It is in the puller's folder until Close.
type File struct {
	Path     string
	Made     string   // the program that built it; empty for a downloaded SIF file
	Warnings []string // what the file lacks of the image

	close func()
}

// Close removes the file, and releases the folder to other pulls.
func (f *File) Close() { f.close() }

// Fetch downloads a resolved image, and builds the SIF file if it has layers. The same image and the same builder give
// the same bytes.
func (p *Puller) Fetch(ctx context.Context, r *Resolved) (_ *File, err error) {
	var b builder
	if r.Layered() { // before bytes are read
		if b, err = findBuilder(ctx, p.Builder); err != nil {
			return nil, err
		}
	}
	limits := p.limits()
	if r.Bytes > limits.Bytes {
		return nil, tooLarge(fmt.Sprintf("the image has %d MiB, and this site pulls images of up to %d MiB", r.Bytes>>20, limits.Bytes>>20))
	}
	cache, release, err := p.cache(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	if err := room(cache, r.Bytes); err != nil {
		return nil, err
	}
	paths, err := p.download(ctx, r, cache)
	if err != nil {
		return nil, err
	}
	done := func() {
		for _, path := range paths {
			os.Remove(path)
		}
		os.RemoveAll(filepath.Join(cache, "work"))
		release()
	}
	if !r.Layered() {
		return &File{Path: paths[0], close: done}, nil
	}
	out := &File{Path: filepath.Join(cache, "work", "image.sif"), Made: b.text(), close: done}
	if out.Warnings, err = p.build(ctx, b, r, paths, out.Path); err != nil {
		os.RemoveAll(filepath.Join(cache, "work"))
		return nil, err
	}
	return out, nil
}

// download downloads every blob of an image to the cache and returns their paths.
func (p *Puller) download(ctx context.Context, r *Resolved, cache string) (paths []string, err error) {
	var got int64
	step := func(n int64) {
		got += n
		p.report("downloading", got, max(r.Bytes, 0))
	}
	if r.source.kind == file {
		b := blob{digest: strings.TrimPrefix(r.Digest, "sha256:"), size: -1, most: p.limits().Bytes, url: r.source.url}
		path, err := p.fetch(ctx, r, cache, b, step)
		return []string{path}, err
	}
	for _, l := range r.layers {
		if l.Size == 0 {
			return nil, odd("a layer has no bytes", "")
		}
		path, err := p.fetch(ctx, r, cache, blobOf(l), step)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

func blobOf(d v1.Descriptor) blob { return blob{digest: d.Digest.Hex, size: d.Size} }

// build builds the SIF file from the layers.
func (p *Puller) build(ctx context.Context, b builder, r *Resolved, layers []string, out string) (warnings []string, err error) {
	t, err := p.flatten(ctx, r, layers)
	if err != nil {
		return nil, err
	}
	if t.skipped > 0 {
		warnings = append(warnings, fmt.Sprintf("%d devices, pipes and sockets of the image were left out", t.skipped))
	}
	if left := t.furnish(r.config.Config.Env); len(left) > 0 {
		warnings = append(warnings, "variables of the image that are not set for programs: "+fault.Clip(strings.Join(left, ", ")))
	}
	work := filepath.Dir(out)
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		return nil, cacheFault(err)
	}
	squashfs, err := p.squash(ctx, b, t, layers, work)
	if err != nil {
		return nil, err
	}
	if err := apptainer.Wrap(out, squashfs, r.Arch); err != nil {
		return nil, cacheFault(err)
	}
	return warnings, nil
}

// cache opens and locks the folder of downloads: a second pull waits. Paths below it go through an open descriptor, so
// that the owner of a folder above cannot replace it.
func (p *Puller) cache(ctx context.Context) (at string, release func(), err error) {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return "", nil, cacheFault(err)
	}
	fd, err := unix.Open(p.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, cacheFault(err)
	}
	dir := os.NewFile(uintptr(fd), p.Dir)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		dir.Close()
		return "", nil, fault.New(fault.Validation, "IMAGE-CACHE", "the folder "+p.Dir+" belongs to another user, or others can use it").
			WithNext("remove it, and pull again")
	}
	at = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)
	lock, err := open(filepath.Join(at, lockName), unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		dir.Close()
		return "", nil, cacheFault(err)
	}
	release = func() { lock.Close(); dir.Close() }
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			release()
			return "", nil, cacheFault(err)
		}
		p.report("waiting for another pull", 0, 0)
		select {
		case <-ctx.Done():
			release()
			return "", nil, failure("another pull is under way", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
	clean(at, time.Now())
	os.RemoveAll(filepath.Join(at, "work")) // of a pull that was killed
	return at, release, nil
}

// room returns a fault if the disk has no room for a download.
func room(dir string, bytes int64) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return cacheFault(err)
	}
	if free := int64(fs.Bavail) * fs.Bsize; 2*bytes > free { // the layers, and the image made of them
		return cacheFault(fmt.Errorf("%w: %d MiB are free", errNoSpace, free>>20))
	}
	return nil
}

var errNoSpace error = unix.ENOSPC

func mustURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		return &url.URL{}
	}
	return u
}
