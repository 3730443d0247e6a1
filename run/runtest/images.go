package runtest

import (
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Store is what the suite needs of a store of images. The site has a folder for the bind named "refs".
type Store struct {
	run.Images
	// Put stores a new image and returns its digest, 64 hex digits.
	Put func(t *testing.T) string
	// Damage changes the bytes that are stored under a digest.
	Damage func(t *testing.T, digest string)
}

// Images runs the suite of [run.Images]. test runs one test, for which open makes a store.
func Images(t *testing.T, test func(t *testing.T, f func(*testing.T)), open func(t *testing.T) *Store) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, *Store)
	}{{"verify", verified}, {"no such image", imageMissing}, {"another image's bytes", imageDamaged}, {"exec line", execLine}} {
		t.Run(c.name, func(t *testing.T) {
			test(t, func(t *testing.T) { c.f(t, open(t)) })
		})
	}
}

// A stored image has one path, which contains its digest.
func verified(t *testing.T, x *Store) {
	a, b := x.Put(t), x.Put(t)
	paths := map[string]bool{}
	for _, digest := range []string{a, b, a} {
		path, err := x.Verify(t.Context(), digest)
		if err != nil || !strings.HasPrefix(path, "/") || !strings.Contains(path, digest) {
			t.Errorf("%q, %v", path, err)
		}
		paths[path] = true
	}
	if len(paths) != 2 {
		t.Error(paths)
	}
	together(10, func(int) {
		if _, err := x.Verify(t.Context(), a); err != nil {
			t.Error(err)
		}
	})
}

func imageMissing(t *testing.T, x *Store) {
	path, err := x.Verify(t.Context(), strings.Repeat("0", 64))
	wantFault(t, err, fault.NotFound, "IMAGE-NOT-FOUND")
	if path != "" {
		t.Error(path)
	}
	for _, digest := range []string{"", "x", "sha256:" + strings.Repeat("0", 64), "../../" + strings.Repeat("0", 58)} {
		_, err := x.Verify(t.Context(), digest)
		wantFault(t, err, fault.Validation, "IMAGE-REF")
	}
}

// A stored file with other bytes is not an image of that digest, also if it was one before.
func imageDamaged(t *testing.T, x *Store) {
	digest := x.Put(t)
	if _, err := x.Verify(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	x.Damage(t, digest)
	for range 2 {
		path, err := x.Verify(t.Context(), digest)
		wantFault(t, err, fault.Tool, "IMAGE-DIGEST")
		if path != "" {
			t.Error(path)
		}
	}
}

// The program follows the image, unchanged, without a network; in/ cannot be written, and the program sees only those
// of the site's folders that it asked for.
func execLine(t *testing.T, x *Store) {
	spec := plan.Spec{Execution: plan.Execution{Command: plan.Command{Workdir: "/work", Argv: []string{"samtools", "view", "a b", "--bind",
		""}}}}
	line := func(binds ...plan.Bind) []string {
		return x.ExecArgs(spec, binds, nil, "/images/x.sif", "/runs/r", "/runs/r/a1")
	}
	args := line()
	i := slices.Index(args, "/images/x.sif")
	if i < 0 || !slices.Equal(args[i+1:], spec.Execution.Command.Argv) || !slices.Contains(args[:i], "exec") {
		t.Fatalf("%q", args)
	}
	if !slices.Equal(args, line()) {
		t.Error("another line for the same plan")
	}
	for _, want := range []string{"--containall", "--network none", "--bind /runs/r/in:/work/in:ro", "--bind /runs/r/a1/out:/work/out",
		"--bind /runs/r/a1/meta:/work/meta:ro"} {
		if !strings.Contains(strings.Join(args[:i], " ")+" ", want+" ") {
			t.Errorf("%q has no %s", args[:i], want)
		}
	}
	if more := line(plan.Bind{Name: "refs"}, plan.Bind{Name: "unknown"}); len(more) != len(args)+2 {
		t.Errorf("%q, want one bind more than %q", more, args)
	}
}
