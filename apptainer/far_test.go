package apptainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"slurmgate/fault"
	"slurmgate/run/runtest"
)

// elsewhere is a [Place] in a folder of this host. That of package staging/sftp passes the same suite on a real sshd
// (e2e.TestFarImages).
type elsewhere struct {
	dir    string
	hashed int
}

func (p *elsewhere) Check(_ context.Context, name, known string) (sum, state string, err error) {
	f, err := os.Open(filepath.Join(p.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fault.New(fault.NotFound, "file_missing", "none")
	}
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	s, err := stampOf(f)
	if state = fmt.Sprint(s); err != nil || state == known {
		return "", state, err
	}
	p.hashed++
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), state, err
}

func (p *elsewhere) Put(_ context.Context, name string, src io.ReaderAt, size int64, _ string) error {
	data := make([]byte, size)
	if _, err := src.ReadAt(data, 0); err != nil {
		return err
	}
	temp := filepath.Join(p.dir, name+".temp")
	return errors.Join(os.WriteFile(temp, data, 0o600), os.Rename(temp, filepath.Join(p.dir, name)))
}

func (p *elsewhere) Names(context.Context) (map[string]int64, error) {
	entries, err := os.ReadDir(p.dir)
	names := map[string]int64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		names[e.Name()] = info.Size()
	}
	return names, err
}

func (p *elsewhere) Head(_ context.Context, name string, limit int) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	return data[:min(limit, len(data))], err
}

// A remote store passes the conformance suite of all image stores.
func TestFarImagesConformance(t *testing.T) {
	runtest.Images(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Store {
		p := &elsewhere{dir: t.TempDir()}
		s := NewFarStore(p, "/images/there")
		rt := NewRuntime(Config{Binds: []Bind{{Name: "refs", Source: "/shared/refs", Target: "/refs"}}})
		return &runtest.Store{Images: FarImages{s, rt},
			Put: adding(s.Add),
			Damage: func(t *testing.T, digest string) {
				name := filepath.Join(p.dir, digest+".sif")
				data, err := os.ReadFile(name)
				must(t, err)
				data[len(data)-1] ^= 1
				must(t, os.WriteFile(name, data, 0o600))
			}}
	})
}

// An image is hashed in place once, and again when its state has changed. An existing image is not sent again; a
// damaged one is replaced.
func TestFarStoreAddsOnce(t *testing.T) {
	p := &elsewhere{dir: t.TempDir()}
	s := NewFarStore(p, "/images/there")
	var last int64
	s.Progress = func(sent, of int64) { last = of - sent }
	path, digest := goodSIF(t, "image")
	last = -1
	img, err := s.Add(t.Context(), path)
	if err != nil || img.Digest != digest || last != 0 {
		t.Fatalf("Add = digest %s with %d bytes left to send, %v, want digest %s and 0", img.Digest, last, err, digest)
	}
	for range 3 {
		if file, err := s.Verify(t.Context(), digest); err != nil || file != "/images/there/"+digest+".sif" {
			t.Fatalf("Verify = %s, %v, want the path below /images/there", file, err)
		}
	}
	if p.hashed != 1 {
		t.Errorf("three calls of Verify hashed the image %d times, want once", p.hashed)
	}
	last = -1
	if _, err := s.Add(t.Context(), path); err != nil || last != -1 {
		t.Errorf("Add of a stored image = %v with %d bytes left to send, want nothing sent", err, last)
	}
	must(t, os.WriteFile(filepath.Join(p.dir, digest+".sif"), []byte("damaged"), 0o600))
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0].Bad != "IMAGE-FORMAT" {
		t.Errorf("List with a damaged image = %v, %v, want it with IMAGE-FORMAT", list, err)
	}
	if _, err := s.Add(t.Context(), path); err != nil || last != 0 {
		t.Errorf("Add over a damaged image = %v with %d bytes left to send, want it replaced", err, last)
	}
	if list, err := s.List(t.Context()); err != nil || len(list) != 1 || list[0] != img {
		t.Errorf("List = %v, %v, want the image of %s", list, err, digest)
	}
}
