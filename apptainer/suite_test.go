package apptainer

import (
	"context"
	"fmt"
	"os"
	"testing"

	"slurmgate/run/runtest"
)

// adding returns a function that adds a new image to a store with each call.
func adding(add func(ctx context.Context, path string) (Image, error)) func(t *testing.T) string {
	n := 0
	return func(t *testing.T) string {
		n++
		path, digest := goodSIF(t, fmt.Sprint("image ", n))
		if img, err := add(t.Context(), path); err != nil || img.Digest != digest {
			t.Fatalf("Add gives the image %+v %v, want %s", img, err, digest)
		}
		return digest
	}
}

// The image store and the exec line pass the conformance suite of all image stores.
func TestImagesConformance(t *testing.T) {
	runtest.Images(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Store {
		rt := NewRuntime(Config{Binds: []Bind{{Name: "refs", Source: "/shared/refs", Target: "/refs"}}})
		s := openStore(t)
		return &runtest.Store{Images: Images{s, rt},
			Put: adding(s.Add),
			Damage: func(t *testing.T, digest string) {
				data, err := os.ReadFile(s.path(digest))
				must(t, err)
				data[len(data)-1] ^= 1 // the program's bytes; the header stays as it is
				must(t, os.Chmod(s.path(digest), 0o600))
				must(t, os.WriteFile(s.path(digest), data, 0o444))
			}}
	})
}
