package artifact

import (
	"io"
	"os"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
)

func TestImportText(t *testing.T) {
	im, _, _ := newImporter(t, 10<<20)
	got, err := im.ImportText(t.Context(), "hello\n")
	if err != nil || got.Type != "TEXT" || got.SizeBytes != 6 || got.Label != "text" {
		t.Error(got, err)
	}
	f, err := im.store.Open(got.SHA256)
	must(t, err)
	defer f.Close()
	if b, _ := io.ReadAll(f); string(b) != "hello\n" {
		t.Error(string(b))
	}
	if got, err := im.ImportText(t.Context(), `{"a":1}`); err != nil || got.Type != "JSON" {
		t.Error(got, err)
	}
	_, err = im.ImportText(t.Context(), strings.Repeat("x", MaxText))
	must(t, err)
	_, err = im.ImportText(t.Context(), strings.Repeat("x", MaxText+1))
	wantFault(t, err, fault.Policy, ImportSize)
	_, err = im.ImportText(t.Context(), "a\xff")
	wantFault(t, err, fault.Validation, ImportText)
}

func FuzzImportPath(f *testing.F) {
	dir := f.TempDir()
	s, err := Open(dir + "/store")
	if err != nil {
		f.Fatal(err)
	}
	root := dir + "/root"
	for _, err := range []error{os.Mkdir(root, 0o700), os.WriteFile(root+"/f", []byte("fine"), 0o600), os.WriteFile(dir+"/secret",
		[]byte("secret"), 0o600), os.Symlink(dir, root+"/l")} {
		if err != nil {
			f.Fatal(err)
		}
	}
	im, err := NewImporter(s, ImportPolicy{Roots: rootsOf(root), MaxBytes: 100})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"f", "../secret", "l/secret", "./f", "f/", "\x00", "l/root/f", "x\nf", strings.Repeat("a/", 3000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rel string) {
		got, err := im.ImportFile(t.Context(), root+"/"+rel, inP)
		if err == nil && got.SHA256 != sumOf([]byte("fine")) {
			t.Errorf("%q imported %+v", rel, got)
		}
		if k := fault.KindOf(err); err != nil && k != fault.Policy && k != fault.Validation && k != fault.NotFound && len(rel) < 255 {
			t.Errorf("%q: %v", rel, err)
		}
		if msg := plan.CheckWord(labelOf(rel)); msg != "" {
			t.Errorf("label %q of %q: %s", labelOf(rel), rel, msg)
		}
	})
}
