package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
)

// The programs that build a squashfs. They give different bytes, because they read files in different order, and so may
// two versions of one program; the lock records which was used.
const (
	streamed = "sqfstar"    // reads an archive; squashfs-tools 4.5 and later
	unpacked = "mksquashfs" // reads a tree on disk; squashfs-tools 4.4 and later
)

// options makes the bytes depend only on names, modes and contents. Every Apptainer can mount gzip.
var options = []string{"-comp", "gzip", "-b", "131072", "-mkfs-time", "0", "-all-time", "0", "-all-root", "-no-xattrs", "-no-progress"}

// builder is the program that builds a squashfs on this host.
type builder struct{ path, name, version string }

// text returns what the lock records about how an image was built.
func (b builder) text() string { return b.name + " " + b.version + ", gzip" }

var versionForm = regexp.MustCompile(`version ((\d+)\.(\d+)[0-9A-Za-z.+-]*)`)

// findBuilder returns the first program found, or the one called name.
func findBuilder(ctx context.Context, name string) (builder, error) {
	for _, b := range []builder{{name: streamed}, {name: unpacked}} {
		if name != "" && name != b.name {
			continue
		}
		path, err := exec.LookPath(b.name)
		if err != nil {
			continue
		}
		b.path = path
		out, _ := command(ctx, path, "-version").CombinedOutput() // some versions end with 1
		m := versionForm.FindSubmatch(out)
		if m == nil {
			continue
		}
		b.version = string(m[1])
		major, _ := strconv.Atoi(string(m[2]))
		minor, _ := strconv.Atoi(string(m[3]))
		if major > 4 || major == 4 && minor >= 4 {
			return b, nil
		}
	}
	return builder{}, fault.New(fault.Validation, "IMAGE-BUILDER", "making an image needs mksquashfs of squashfs-tools 4.4 or later").
		WithNext("install the package squashfs-tools, or build the image on another machine and add it").WithSteps(fault.Do("image add"))
}

// command returns a command that runs without a shell, in a minimal environment.
func command(ctx context.Context, path string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, path, args...)
	c.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	c.WaitDelay = 10 * time.Second
	return c
}

// squash builds a squashfs of a tree in the folder work. layers are the files with the contents.
func (p *Puller) squash(ctx context.Context, b builder, t *tree, layers []string, work string) (out string, err error) {
	out = filepath.Join(work, "root.squashfs")
	list := t.list()
	s := &source{Puller: p, layers: layers, files: map[[2]int]*content{}}
	for _, e := range list {
		if e.file != nil && e.path == e.file.names[0] {
			s.files[[2]int{e.file.layer, e.file.index}] = e.file
			s.of += e.file.size
		}
	}
	if b.name == unpacked {
		dir := filepath.Join(work, "root")
		if err := s.unpack(ctx, list, dir); err != nil {
			return "", err
		}
		p.report("packing", 0, s.of)
		err := run(command(ctx, b.path, append([]string{dir, out, "-noappend"}, options...)...), nil)
		return out, err
	}
	c := command(ctx, b.path, append(slices.Clone(options), "-root-mode", "755", out)...)
	return out, run(c, func(w io.Writer) error { return s.stream(ctx, list, w) })
}

// run runs the program. An error has the end of its output.
func run(c *exec.Cmd, feed func(io.Writer) error) error {
	said := &tail{}
	c.Stdout, c.Stderr = said, said
	var fed error
	if feed != nil {
		r, w := io.Pipe()
		c.Stdin = r
		done := make(chan struct{})
		go func() {
			defer close(done)
			fed = feed(w)
			w.CloseWithError(fed)
		}()
		err := c.Run()
		r.CloseWithError(io.ErrClosedPipe) // a program that ended early reads no more
		<-done
		if fed != nil && !errors.Is(fed, io.ErrClosedPipe) {
			return fed
		}
		return built(err, said)
	}
	return built(c.Run(), said)
}

func built(err error, said *tail) error {
	if err == nil {
		return nil
	}
	if strings.Contains(said.String(), "No space left") {
		return cacheFault(fmt.Errorf("%w: %w", errNoSpace, err))
	}
	return fault.New(fault.Transport, "IMAGE-BUILDER",
		"the program that makes the squashfs failed ("+err.Error()+"): "+fault.ClipEnd(said.String(), 2000))
}

// tail keeps the end of a program's output.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n, _ := t.Buffer.Write(p)
	if over := t.Len() - 16<<10; over > 0 {
		t.Next(over)
	}
	return n, nil
}

// source reads the contents of files from the layers.
type source struct {
	*Puller
	layers   []string
	files    map[[2]int]*content // by layer and index
	done, of int64
}

// contents calls each for every file of the tree, in the order of the layers' archives, which never changes.
func (s *source) contents(ctx context.Context, each func(c *content, body io.Reader) error) error {
	limits := s.limits()
	left := limits.UnpackedBytes
	for i, path := range s.layers {
		_, err := entries(ctx, path, &left, limits.UnpackedBytes, func(h *tar.Header, index int, body io.Reader) error {
			c := s.files[[2]int{i, index}]
			if c == nil {
				return nil
			}
			if h.Size != c.size {
				return lie("a layer in the cache was changed while the image was built")
			}
			if err := each(c, body); err != nil {
				return err
			}
			s.done += c.size
			s.report("packing", s.done, s.of)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// stream writes the tree as an archive: folders, files in the order of the layers, files that no layer has, links.
func (s *source) stream(ctx context.Context, list []entry, w io.Writer) error {
	a := tar.NewWriter(w)
	head := func(h tar.Header) error {
		h.Format = tar.FormatPAX
		return a.WriteHeader(&h)
	}
	for _, e := range list {
		if e.children != nil {
			if err := head(tar.Header{Typeflag: tar.TypeDir, Name: e.path + "/", Mode: e.mode}); err != nil {
				return err
			}
		}
	}
	put := func(c *content, body io.Reader) error {
		if err := head(tar.Header{Typeflag: tar.TypeReg, Name: c.names[0], Mode: c.mode, Size: c.size}); err != nil {
			return err
		}
		_, err := io.Copy(a, body)
		return err
	}
	if err := s.contents(ctx, put); err != nil {
		return err
	}
	for _, e := range list {
		var err error
		switch {
		case e.link != "":
			err = head(tar.Header{Typeflag: tar.TypeSymlink, Name: e.path, Linkname: e.link, Mode: 0o777})
		case e.file != nil && e.file.names[0] != e.path:
			err = head(tar.Header{Typeflag: tar.TypeLink, Name: e.path, Linkname: e.file.names[0], Mode: e.file.mode})
		case e.file != nil && e.file.layer < 0:
			err = put(e.file, bytes.NewReader(e.file.data))
		}
		if err != nil {
			return err
		}
	}
	return a.Close()
}

// unpack creates the tree on disk. Nothing leads out of its folder: names were checked, and [os.Root] follows no link
// outside. Files are created before symbolic links, so that no link is in the path of a file.
func (s *source) unpack(ctx context.Context, list []entry, dir string) error {
	if err := errors.Join(os.Mkdir(dir, folderMode), os.Chmod(dir, folderMode)); err != nil {
		return cacheFault(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return cacheFault(err)
	}
	defer root.Close()
	for _, e := range list {
		if e.children != nil {
			if err := errors.Join(root.Mkdir(e.path, 0o755), root.Chmod(e.path, mode(e.mode))); err != nil {
				return cacheFault(err)
			}
		}
	}
	put := func(c *content, body io.Reader) error {
		f, err := root.OpenFile(c.names[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return cacheFault(err)
		}
		n, err := io.Copy(f, body)
		if err == nil && n != c.size {
			err = io.ErrUnexpectedEOF
		}
		return errors.Join(err, f.Chmod(mode(c.mode)), f.Close())
	}
	if err := s.contents(ctx, put); err != nil {
		return err
	}
	for _, e := range list {
		var err error
		switch {
		case e.file != nil && e.file.names[0] == e.path && e.file.layer < 0:
			err = put(e.file, bytes.NewReader(e.file.data))
		case e.file != nil && e.file.names[0] != e.path:
			err = root.Link(e.file.names[0], e.path)
		case e.link != "":
			err = root.Symlink(e.link, e.path)
		}
		if err != nil {
			return cacheFault(err)
		}
	}
	return nil
}

// mode converts a mode of an archive to Go's.
func mode(m int64) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	if m&0o1000 != 0 {
		out |= fs.ModeSticky
	}
	return out
}
