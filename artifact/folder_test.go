package artifact

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan/tree"
)

// A folder that the gateway reads and the same folder as a tar file are the same artifact, and a link in either refuses all of it.
//
// proves DATA-02
func TestImportDirectory(t *testing.T) {
	dir := t.TempDir()
	store, err := Open(t.TempDir())
	must(t, err)
	defer store.Close()
	must(t, errors.Join(os.MkdirAll(dir+"/index/sub", 0o700), os.WriteFile(dir+"/index/a", []byte("one"), 0o600),
		os.WriteFile(dir+"/index/sub/-b c", nil, 0o600), os.WriteFile(dir+"/index/large", bytes.Repeat([]byte("x"), 1<<20), 0o600)))
	im, err := NewImporter(store, ImportPolicy{Roots: []Root{{dir, []string{Every}}}, MaxBytes: 2 << 20})
	must(t, err)
	got, err := im.ImportFolder(t.Context(), dir+"/index", Scope{})
	if err != nil || got.Type != "DIRECTORY" || got.SizeBytes != 1<<20+3 || got.Label != "index" || len(got.List.Files) != 3 ||
		!im.IsFolder(dir+"/index", Scope{}) || im.IsFolder(dir+"/index/a", Scope{}) {
		t.Fatalf("%+v %v", got, err)
	}
	var b bytes.Buffer
	w := tree.NewTarWriter(&b)
	must(t, errors.Join(w.Add("sub/-b c", 0, strings.NewReader("")), w.Add("large", 1<<20, bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20))),
		w.Add("a", 3, strings.NewReader("one")), w.Close()))
	sent, err := im.ImportTar(t.Context(), &b)
	if err != nil || sent.SHA256 != got.SHA256 || sent.SizeBytes != got.SizeBytes {
		t.Errorf("%+v %v", sent, err)
	}
	for _, f := range got.List.Files {
		must(t, store.Verify(t.Context(), f.SHA256))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "index/sub/link")))
	if _, err := im.ImportFolder(t.Context(), dir+"/index", Scope{}); fault.CodeOf(err) != ImportSymlink {
		t.Error(err)
	}
}
