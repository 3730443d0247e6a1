package artifact

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan/tree"
)

// A search finds only the files that an import would take: below the roots of the scope, whatever root is within
// another, not behind a symlink, and not in a folder of the gateway.
func TestFind(t *testing.T) {
	dir := value(filepath.EvalSymlinks(t.TempDir()))(t)
	for _, name := range []string{"a/S1.text", "a/deep/er/s1.dat", "a/S2.text", "a/private/S1.txt", "a/open/S1.list", "a/own/S1.db",
		"b/S1.tab",
		"elsewhere/S1.other"} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		put(t, filepath.Join(dir, name), "x")
	}
	for link, to := range map[string]string{"a/S1.link": "a/S2.text", "a/S1folder": "elsewhere"} {
		must(t, os.Symlink(filepath.Join(dir, to), filepath.Join(dir, link)))
	}
	store, _ := newStore(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	im, err := NewImporter(store, ImportPolicy{MaxBytes: 100, Own: []string{in("a/own")}, Roots: []Root{{in("a"), []string{"p"}},
		{in("a/private"), []string{"q"}}, {in("a/open"), []string{Every}}, {in("b"), nil}}})
	must(t, err)
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
			t.Errorf("Find for %+v = %q, whole %t; want %q, true", c.scope, got, whole, c.want)
		}
	}
}

// A folder that the gateway reads and the same folder as a tar file are the same artifact, and a link in either refuses all of it.
//
// proves DATA-02
func TestImportDirectory(t *testing.T) {
	dir := t.TempDir()
	store, _ := newStore(t)
	must(t, errors.Join(os.MkdirAll(dir+"/index/sub", 0o700), os.WriteFile(dir+"/index/a", []byte("one"), 0o600),
		os.WriteFile(dir+"/index/sub/-b c", nil, 0o600), os.WriteFile(dir+"/index/large", bytes.Repeat([]byte("x"), 1<<20), 0o600)))
	im := value(NewImporter(store, ImportPolicy{Roots: []Root{{dir, []string{Every}}}, MaxBytes: 2 << 20}))(t)
	got, err := im.ImportFolder(t.Context(), dir+"/index", Scope{})
	if err != nil || got.Type != "DIRECTORY" || got.SizeBytes != 1<<20+3 || got.Label != "index" || len(got.List.Files) != 3 ||
		!im.IsFolder(dir+"/index", Scope{}) || im.IsFolder(dir+"/index/a", Scope{}) {
		t.Fatalf("ImportFolder = %s %q of %d bytes with the list %v, %v; want DIRECTORY index, %d bytes, 3 files", got.Type,
			got.Label, got.SizeBytes, got.List, err, 1<<20+3)
	}
	var b bytes.Buffer
	w := tree.NewTarWriter(&b)
	must(t, errors.Join(w.Add("sub/-b c", 0, strings.NewReader("")), w.Add("large", 1<<20, bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20))),
		w.Add("a", 3, strings.NewReader("one")), w.Close()))
	sent, err := im.ImportTar(t.Context(), &b)
	if err != nil || sent.SHA256 != got.SHA256 || sent.SizeBytes != got.SizeBytes {
		t.Errorf("ImportTar = %s of %d bytes, %v; want %s of %d", sent.SHA256, sent.SizeBytes, err, got.SHA256, got.SizeBytes)
	}
	for _, f := range got.List.Files {
		must(t, store.Verify(t.Context(), f.SHA256))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "index/sub/link")))
	if _, err := im.ImportFolder(t.Context(), dir+"/index", Scope{}); fault.CodeOf(err) != ImportSymlink {
		t.Error(err)
	}
}

// A path is read for the projects of the innermost root around it, by any name of that root. For all others it is
// below no root, whether there is such a file or not.
func TestRootsOfProjects(t *testing.T) {
	s, _ := newStore(t)
	base := t.TempDir()
	for _, dir := range []string{"p", "p/inner", "plain", "all"} {
		put(t, base+"/"+dir+"/f", "data of "+dir)
	}
	must(t, os.Symlink(base+"/p", base+"/name"))
	im := value(NewImporter(s, ImportPolicy{MaxBytes: 100, Roots: []Root{{base + "/p", []string{"proj_P"}},
		{base + "/name", []string{"proj_N"}},
		{base + "/p/inner", []string{"proj_Q"}}, {base + "/plain", nil}, {base + "/all", []string{Every}}}}))(t)
	p, q, n, admin := Scope{Project: "proj_P"}, Scope{Project: "proj_Q"}, Scope{Project: "proj_N"}, Scope{Project: "proj_X", Every: true}
	for path, readers := range map[string][]Scope{
		"/p/f": {p, n, admin}, "/name/f": {p, n, admin}, "/p/inner/f": {q, admin}, "/name/inner/f": {q, admin}, "/plain/f": {admin},
		"/all/f": {p, q, n, admin},
	} {
		for _, who := range []Scope{p, q, n, admin, {}} {
			_, err := im.ImportFile(t.Context(), base+path, who)
			may := false
			for _, r := range readers {
				may = may || r == who
			}
			if path == "/all/f" && who == (Scope{}) {
				continue // no caller has an empty project
			}
			if may != (err == nil) || !may && fault.CodeOf(err) != ImportRoot {
				t.Errorf("ImportFile(%s) for %+v: %v, allowed %t", path, who, err, may)
			}
			if may {
				continue
			}
			_, missing := im.ImportFile(t.Context(), base+strings.TrimSuffix(path, "f")+"none", who)
			if strings.ReplaceAll(missing.Error(), "/none", "/f") != err.Error() {
				t.Errorf("the answer reveals whether the file exists:\n%v\n%v", err, missing)
			}
			if strings.Contains(err.Error(), "plain,") || strings.Contains(err.Error(), "inner)") && who == p {
				t.Errorf("the answer names the root of another: %v", err)
			}
		}
	}
}
