package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sylabs/sif/v2/pkg/sif"

	"slurmgate/fault"
)

// A liar answers a request itself, or returns false.
type liar func(w http.ResponseWriter, req *http.Request) (answered bool)

// server is a registry behind a proxy that runs a liar if one is set.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	lie   liar
	asked []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	real := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		s.mu.Lock()
		lie := s.lie
		s.asked = append(s.asked, req.Method+" "+req.URL.Path+" "+req.Header.Get("Range"))
		s.mu.Unlock()
		if lie == nil || !lie(w, req) {
			real.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) host() string { return strings.TrimPrefix(s.URL, "http://") }

func (s *server) lies(l liar) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lie, s.asked = l, nil
}

// asks counts the requests since the last call of lies whose line contains text.
func (s *server) asks(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asked {
		if strings.Contains(a, text) {
			n++
		}
	}
	return n
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// puller returns a puller for the server, with short times.
func (s *server) puller(t *testing.T) *Puller {
	t.Helper()
	return &Puller{Dir: filepath.Join(t.TempDir(), "cache"), Insecure: []string{s.host()}, Stall: 2 * time.Minute, Pause: time.Millisecond}
}

// entryOf returns a file of a layer. Its bytes are in Linkname, which files do not use.
func entryOf(name, body string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body)), Linkname: body}
}

func dirOf(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
func linkOf(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}
}
func hardOf(name, to string) tar.Header {
	return tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}
}

// pack builds the archive of a layer.
func pack(t *testing.T, list ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range list {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body, h.Linkname = h.Linkname, ""
		}
		must(t, w.WriteHeader(&h))
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// layer is a layer with given compressed bytes.
type layer struct {
	v1.Layer
	diff v1.Hash
}

func (l layer) DiffID() (v1.Hash, error) { return l.diff, nil }

func layerOf(t *testing.T, archive, compressed []byte, mediaType types.MediaType) v1.Layer {
	t.Helper()
	diff, _, err := v1.SHA256(bytes.NewReader(archive))
	must(t, err)
	return layer{static.NewLayer(compressed, mediaType), diff}
}

// image builds an image of layers, lowest first.
func image(t *testing.T, config v1.Config, layers ...v1.Layer) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	must(t, err)
	c, err := img.ConfigFile()
	must(t, err)
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Config = "linux", "amd64", config
	img, err = mutate.ConfigFile(img, c)
	must(t, err)
	return img
}

// plainImage builds an image of layers compressed with gzip.
func plainImage(t *testing.T, layers ...[]tar.Header) v1.Image {
	t.Helper()
	var list []v1.Layer
	for _, l := range layers {
		data := pack(t, l...)
		list = append(list, layerOf(t, data, zip(t, data), types.OCILayer))
	}
	return image(t, v1.Config{}, list...)
}

// push puts an image into the registry and returns its digest.
func (s *server) push(t *testing.T, ref string, img v1.Image) string {
	t.Helper()
	at, err := name.ParseReference(s.host()+"/"+ref, name.Insecure)
	if err == nil {
		err = remote.Write(at, img)
	}
	must(t, err)
	d, err := img.Digest()
	must(t, err)
	return d.String()
}

// pull pulls a source, and returns the SIF file's bytes.
func pull(ctx context.Context, p *Puller, text, digest string) (*Resolved, []byte, error) {
	s, err := ParseSource(text, digest, p.Insecure)
	if err != nil {
		return nil, nil, err
	}
	r, err := p.Resolve(ctx, s, "amd64")
	if err != nil {
		return nil, nil, err
	}
	f, err := p.Fetch(ctx, r)
	if err != nil {
		return r, nil, err
	}
	defer f.Close()
	data, err := os.ReadFile(f.Path)
	return r, data, err
}

func mustPull(t *testing.T, p *Puller, text string) (*Resolved, []byte) {
	t.Helper()
	r, data, err := pull(t.Context(), p, text, "")
	must(t, err)
	return r, data
}

// refused checks the code of a fault.
func refused(t *testing.T, what string, err error, code string) {
	t.Helper()
	if err == nil || fault.First(err) != code && fault.CodeOf(err) != code {
		t.Errorf("%s: want %s, got %v", what, code, err)
	}
}

// look returns a listing of a SIF file's root: a line for each name with mode, type and size or target, and a file's
// bytes.
func look(t *testing.T, image []byte) map[string]string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "x.sif")
	must(t, os.WriteFile(path, image, 0o600))
	f, err := sif.LoadContainerFromPath(path, sif.OptLoadWithFlag(os.O_RDONLY))
	must(t, err)
	defer f.UnloadContainer()
	part, err := f.GetDescriptor(sif.WithPartitionType(sif.PartPrimSys))
	must(t, err)
	data, err := part.GetData()
	must(t, err)
	squashfs := filepath.Join(dir, "root.squashfs")
	must(t, os.WriteFile(squashfs, data, 0o600))
	root := filepath.Join(dir, "root")
	if out, err := exec.Command("unsquashfs", "-no-progress", "-d", root, squashfs).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[string]string{}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		st, err := d.Info()
		if err != nil {
			return err
		}
		line := st.Mode().String()
		switch {
		case st.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line = "-> " + to
		case st.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(data)
		}
		if st.ModTime().Unix() != 0 && st.Mode()&os.ModeSymlink == 0 {
			line += fmt.Sprint(" time ", st.ModTime())
		}
		found[rel] = line
		return nil
	})
	must(t, err)
	return found
}
