package artifact

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/plan/tree"
)

// dirty writes a file whose first page is changed in memory and not on the disk. Writing to the memory changes the file.
func dirty(t *testing.T, name string, content []byte) (memory []byte) {
	t.Helper()
	f := value(os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644))(t)
	defer f.Close()
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	memory = value(unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	t.Cleanup(func() { unix.Munmap(memory) })
	memory[0] = content[0]
	return memory
}

// The state that is registered of a file or folder shows every later change, also one through a page of memory that
// was written to before, which changes no time as long as the page is not on the disk.
//
// proves DATA-05
func TestRegisteredStateShowsEveryChange(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "slurmgate-") // a file in memory (tmpfs) has no such times
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	store, _ := newStore(t)
	im := value(NewImporter(store, ImportPolicy{Roots: []Root{{Folder: dir, Projects: []string{Every}}},
		MaxBytes: 1 << 20, Types: []string{"UNKNOWN", "DIRECTORY"}}))(t)
	must(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	all := Scope{Every: true}
	for _, c := range []struct {
		name     string
		file     string
		register func() (Registered, error)
	}{
		{"file", "file", func() (Registered, error) { return im.Register(t.Context(), dir+"/file", all) }},
		{"folder", "folder/in it", func() (Registered, error) { return im.RegisterFolder(t.Context(), dir+"/folder", all) }},
	} {
		memory := dirty(t, filepath.Join(dir, c.file), bytes.Repeat([]byte("good"), 2048))
		r := value(c.register())(t)
		if err := im.StillRegistered(t.Context(), filepath.Join(dir, c.name), r.State); err != nil {
			t.Errorf("an unchanged %s is taken for changed: %v", c.name, err)
		}
		copy(memory, "evil")
		if err := im.StillRegistered(t.Context(), filepath.Join(dir, c.name), r.State); fault.CodeOf(err) != "input_mismatch" {
			t.Errorf("a write through memory to the %s that was registered gives %v, want input_mismatch", c.name, err)
		}
	}
}

// A folder in which another user can exchange what a job mounts is found, wherever it is on the way.
//
// proves DATA-05
func TestExposed(t *testing.T) {
	const me, other = 1000, 1001
	base, err := os.MkdirTemp("/var/tmp", "slurmgate-") // what is above it belongs to root
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	file := base + "/a/b/file"
	must(t, os.MkdirAll(base+"/a/b", 0o755))
	must(t, os.WriteFile(file, nil, 0o666))
	for _, c := range []struct {
		about        string
		owner, above int // of a/b, and of a
		of           int // of the file
		mode         os.FileMode
		want         string
	}{
		{"all folders are the user's", me, me, other, 0o755, ""},
		{"all folders are root's", 0, 0, other, 0o755, ""},
		{"the folder is another's", other, 0, me, 0o755, base + "/a/b"},
		{"a folder above is another's", me, other, me, 0o755, base + "/a"},
		{"the group may write", me, me, me, 0o775, base + "/a/b"},
		{"all may write", me, me, me, 0o777, base + "/a/b"},
		{"all may write to a sticky folder, the file is the user's", 0, 0, me, 0o777 | os.ModeSticky, ""},
		{"all may write to a sticky folder, the file is another's", 0, 0, other, 0o777 | os.ModeSticky, base + "/a/b"},
	} {
		for path, owner := range map[string]int{base: me, base + "/a": c.above, base + "/a/b": c.owner, file: c.of} {
			must(t, os.Chown(path, owner, 0))
		}
		must(t, os.Chmod(base, 0o755))
		must(t, os.Chmod(base+"/a/b", c.mode))
		if got, err := Exposed(file, me); err != nil || got != c.want {
			t.Errorf("%s: Exposed = %q, %v; want %q", c.about, got, err, c.want)
		}
	}
}

// The state of a folder is the digest of what the job and a host with a shell list with find and stat. It changes with every file that is
// changed, added, removed or renamed, and another folder has another.
//
// proves DATA-05 DATA-07
func TestFolderInPlace(t *testing.T) {
	dir := t.TempDir()
	top := dir + "/it's here"
	write := func(name, text string) {
		t.Helper()
		must(t, os.MkdirAll(filepath.Dir(top+"/"+name), 0o755))
		must(t, os.WriteFile(top+"/"+name, []byte(text), 0o644))
	}
	for _, name := range []string{"a", "a.b", "a-b/c", "a.b c/d", "-n", "sub/deep/x"} {
		write(name, name)
	}
	store, _ := newStore(t)
	im := value(NewImporter(store, ImportPolicy{Roots: []Root{{Folder: dir, Projects: []string{Every}}},
		MaxBytes: 1 << 20, Types: []string{"UNKNOWN", "DIRECTORY"}}))(t)
	all := Scope{Every: true}
	listed := func() string {
		t.Helper()
		out, err := exec.Command("bash", "-c", `cd "$1" && find . -print0 | LC_ALL=C sort -z | xargs -0 -r stat -c '%f %i %s %.Y %.Z %n' |
			sha256sum`, "x", top).Output()
		must(t, err)
		return "tree " + string(out[:64])
	}
	r, err := im.RegisterFolder(t.Context(), top, all)
	if err != nil || r.State != listed() || len(r.List.Files) != 6 || r.SizeBytes != 28 {
		t.Fatalf("RegisterFolder = state %s, list %v, %d bytes, %v; want %s, 6 files and 28", r.State, r.List, r.SizeBytes,
			err, listed())
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
		must(t, change())
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

// Policy's limits of a directory hold for a copy, for one in place and for a list that another host made; what is
// beyond them is refused before the file is read. In place, a watcher sees how many bytes of how many are hashed.
//
// proves DATA-02 DATA-05
func TestDirectoryBounds(t *testing.T) {
	dir := t.TempDir()
	var list []tree.File
	for i := range 3 {
		name := fmt.Sprintf("sub/deep/%d", i)
		must(t, os.MkdirAll(filepath.Dir(dir+"/top/"+name), 0o755))
		must(t, os.WriteFile(dir+"/top/"+name, []byte("four"), 0o644))
		list = append(list, tree.File{SHA256: strings.Repeat("a", 64), Size: 4, Path: name})
	}
	store, _ := newStore(t)
	im := value(NewImporter(store, ImportPolicy{Roots: []Root{{Folder: dir}}, MaxBytes: 1 << 20}))(t)
	all := Scope{Every: true}
	for want, b := range map[string]Bounds{"": {Files: 3, Depth: 2, Bytes: 12}, "max_files: at most 2": {Files: 2},
		"max_depth: at most 1": {Depth: 1}, "max_bytes: at most 11": {Bytes: 11}} {
		_, copied := im.Bounded(b).ImportFolder(t.Context(), dir+"/top", all)
		_, placed := im.Bounded(b).RegisterFolder(t.Context(), dir+"/top", all)
		for how, err := range map[string]error{"copied": copied, "in place": placed, "far": b.Allow(list)} {
			p := fault.ProblemsOf(err)
			if want == "" && err != nil || want != "" && (len(p) != 1 || p[0].Code != "POLICY-DIRECTORY" || !strings.Contains(p[0].Rule, want)) {
				t.Errorf("%s with %+v: %v, %d problems; want a rule with %q", how, b, err, len(p), want)
			}
		}
	}
	p := &Progress{}
	if _, err := im.RegisterFolder(Watched(t.Context(), p), dir+"/top", all); err != nil {
		t.Fatal(err)
	}
	if done, of := p.Bytes(); done != 12 || of != 12 {
		t.Errorf("%d of %d bytes", done, of)
	}
}
