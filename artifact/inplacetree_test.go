package artifact_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/artifact"
	"slurmgate/fault"
)

// The state of a folder is the digest of what the job and a host with a shell list with find and stat. It changes with every file that is
// changed, added, removed or renamed, and another folder has another.
//
// proves DATA-05 DATA-07
func TestFolderInPlace(t *testing.T) {
	dir := t.TempDir()
	top := dir + "/it's here"
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(top+"/"+name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(top+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "a.b", "a-b/c", "a.b c/d", "-n", "sub/deep/x"} {
		write(name, name)
	}
	store, err := artifact.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	im, err := artifact.NewImporter(store, artifact.ImportPolicy{Roots: []artifact.Root{{Folder: dir, Projects: []string{artifact.Every}}},
		MaxBytes: 1 << 20, Types: []string{"UNKNOWN", "DIRECTORY"}})
	if err != nil {
		t.Fatal(err)
	}
	all := artifact.Scope{Every: true}
	listed := func() string {
		t.Helper()
		out, err := exec.Command("bash", "-c", `cd "$1" && find . -print0 | LC_ALL=C sort -z | xargs -0 -r stat -c '%f %i %s %.Y %.Z %n' |
			sha256sum`, "x", top).Output()
		if err != nil {
			t.Fatal(err)
		}
		return "tree " + string(out[:64])
	}
	r, err := im.RegisterFolder(t.Context(), top, all)
	if err != nil || r.State != listed() || len(r.List.Files) != 6 || r.SizeBytes != 28 {
		t.Fatalf("%+v %v; find says %s", r, err, listed())
	}
	stored, err := im.ImportFolder(t.Context(), top, all)
	if err != nil || stored.SHA256 != r.SHA256 {
		t.Errorf("a copy is %s, in place it is %s: %v", stored.SHA256, r.SHA256, err)
	}
	if err := im.StillRegistered(t.Context(), top, r.State); err != nil {
		t.Error(err)
	}
	steps := []func() error{
		func() error { return os.WriteFile(top+"/a", []byte("A"), 0o644) },
		func() error { return os.WriteFile(top+"/sub/new", nil, 0o644) },
		func() error { return os.Rename(top+"/sub/new", top+"/sub/newer") },
		func() error { return os.Remove(top + "/sub/newer") },
		func() error { return os.Symlink("a", top+"/sub/link") },
	}
	state := r.State
	for i, change := range steps {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if err := im.StillRegistered(t.Context(), top, state); fault.CodeOf(err) != "input_mismatch" || !strings.Contains(err.Error(), top) {
			t.Errorf("step %d: %v", i, err)
		}
		state = listed()
		if err := im.StillRegistered(t.Context(), top, state); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if _, err := im.RegisterFolder(t.Context(), top, all); err == nil {
		t.Error("a folder with a link is registered")
	}
}
