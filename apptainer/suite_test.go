package apptainer

import (
	"fmt"
	"os"
	"testing"

	"slurmgate/run/runtest"
)

// The image store and the exec line, held to the suite of all image stores.
func TestImagesConformance(t *testing.T) {
	runtest.Images(t, func(t *testing.T, f func(*testing.T)) { f(t) }, func(t *testing.T) *runtest.Store {
		rt := NewRuntime(Config{Binds: []Bind{{Name: "refs", Source: "/shared/refs", Target: "/refs"}}})
		s, n := openStore(t), 0
		return &runtest.Store{Images: Images{s, rt},
			Put: func(t *testing.T) string {
				n++
				path, digest := goodSIF(t, fmt.Sprint("image ", n))
				if img, err := s.Add(t.Context(), path); err != nil || img.Digest != digest {
					t.Fatalf("%+v %v", img, err)
				}
				return digest
			},
			Damage: func(t *testing.T, digest string) {
				data, err := os.ReadFile(s.path(digest))
				if err != nil {
					t.Fatal(err)
				}
				data[len(data)-1] ^= 1 // the program's bytes; the header stays as it is
				if err := os.Chmod(s.path(digest), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(s.path(digest), data, 0o444); err != nil {
					t.Fatal(err)
				}
			}}
	})
}
