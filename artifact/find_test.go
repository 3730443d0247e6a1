package artifact

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A look finds the files that an import would take, and no others: below the roots of the scope, whatever root lies within another, not
// behind a symlink, and not in a folder of the gateway.
func TestFind(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/S1.text", "a/deep/er/s1.dat", "a/S2.text", "a/private/S1.txt", "a/open/S1.list", "a/own/S1.db",
		"b/S1.tab",
		"elsewhere/S1.other"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, name), "x")
	}
	for link, to := range map[string]string{"a/S1.link": "a/S2.text", "a/S1folder": "elsewhere"} {
		if err := os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	store, err := Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	in := func(name string) string { return filepath.Join(dir, name) }
	im, err := NewImporter(store, ImportPolicy{MaxBytes: 100, Own: []string{in("a/own")}, Roots: []Root{{in("a"), []string{"p"}},
		{in("a/private"), []string{"q"}}, {in("a/open"), []string{Every}}, {in("b"), nil}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		scope Scope
		want  []string
	}{
		{Scope{Project: "p"}, []string{"a/open/S1.list", "a/S1.text", "a/deep/er/s1.dat"}},
		{Scope{Project: "q"}, []string{"a/open/S1.list", "a/private/S1.txt"}},
		{Scope{Project: "r"}, []string{"a/open/S1.list"}},
		{Scope{Project: "r", Every: true}, []string{"a/open/S1.list", "b/S1.tab", "a/S1.text", "a/private/S1.txt", "a/deep/er/s1.dat"}},
	} {
		found, whole := im.Find(t.Context(), c.scope, Named("s1"))
		var got []string
		for _, f := range found {
			rel, err := filepath.Rel(dir, f.Path)
			if err != nil || f.SizeBytes != 1 {
				t.Error(f, err)
			}
			got = append(got, rel)
			if _, err := im.ImportFile(t.Context(), f.Path, c.scope); err != nil {
				t.Errorf("%s is found, and: %v", f.Path, err)
			}
		}
		if !whole || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.scope, got, c.want)
		}
	}
}
