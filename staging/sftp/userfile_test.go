package sftp

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// A file imported as its user must be a regular one under its real name, and unchanged after its last byte.
//
// proves SITE-08
func TestOpenFile(t *testing.T) {
	f := newFar(t, nil)
	w := f.open(t, nil)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	data := bytes.Repeat([]byte("ACGT\n"), 300_000)
	must(t, os.WriteFile(at("reads one.fq"), data, 0o600))
	must(t, os.WriteFile(at("empty"), nil, 0o600))
	must(t, os.Symlink("reads one.fq", at("link")))
	must(t, os.Symlink(".", at("folder")))
	must(t, unix.Mkfifo(at("pipe"), 0o600))
	for _, name := range []string{"reads one.fq", "empty"} {
		file, err := w.OpenFile(t.Context(), at(name), 1<<30)
		must(t, err)
		got, err := io.ReadAll(file)
		must(t, err)
		if int64(len(got)) != file.Size || name != "empty" && !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d", name, len(got), file.Size)
		}
		must(t, file.Unchanged(t.Context()))
		must(t, file.Close())
	}
	for name, want := range map[string]string{at("link"): "IMPORT-SYMLINK", at("folder/reads one.fq"): "IMPORT-SYMLINK",
		at("pipe"): "IMPORT-KIND", dir: "IMPORT-KIND", "/dev/zero": "IMPORT-KIND", "/proc/version": "IMPORT-KIND", at("none"): "import_missing",
		at("empty/x"): "import_missing", "reads": "IMPORT-PATH", dir + "/../x": "IMPORT-PATH", at("\n"): "import_missing"} {
		if _, err := w.OpenFile(t.Context(), name, 1<<30); fault.CodeOf(err) != want {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	_, err := w.OpenFile(t.Context(), at("reads one.fq"), int64(len(data)-1))
	wantFault(t, err, fault.Policy, "IMPORT-SIZE")
}

// proves SITE-08
func TestOpenFileThatChanges(t *testing.T) {
	f := newFar(t, nil)
	w := f.open(t, nil)
	name := filepath.Join(t.TempDir(), "file")
	text := strings.Repeat("x", 1<<20)
	for what, change := range map[string]func() error{
		"replaced": func() error {
			must(t, os.WriteFile(name+".new", []byte(text), 0o600))
			return os.Rename(name+".new", name)
		},
		"written": func() error { return os.WriteFile(name, []byte(strings.Repeat("y", 1<<20)), 0o600) },
		"cut":     func() error { return os.Truncate(name, 5) },
		"grown":   func() error { return os.Truncate(name, 2<<20) },
		"a pipe":  func() error { must(t, os.Remove(name)); return unix.Mkfifo(name, 0o600) },
	} {
		must(t, os.RemoveAll(name))
		must(t, os.WriteFile(name, []byte(text), 0o600))
		file, err := w.OpenFile(t.Context(), name, 1<<30)
		must(t, err)
		must(t, change())
		n, err := io.Copy(io.Discard, file)
		if err == nil {
			err = file.Unchanged(t.Context())
		}
		if n > 1<<20 || fault.CodeOf(err) != "import_changed" {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
		must(t, file.Close())
	}
}
