package artifact

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// rootsOf returns roots of the project that [inP] imports into.
func rootsOf(folders ...string) (roots []Root) {
	for _, f := range folders {
		roots = append(roots, Root{f, []string{inP.Project}})
	}
	return roots
}

var inP = Scope{Project: "proj_P"}

func newImporter(t *testing.T, maxBytes int64) (im *Importer, root, storeDir string) {
	t.Helper()
	s, dir := newStore(t)
	root = t.TempDir()
	im, err := NewImporter(s, ImportPolicy{Roots: rootsOf(root), MaxBytes: maxBytes})
	must(t, err)
	return im, root, dir
}

func put(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestImportFile(t *testing.T) {
	im, root, _ := newImporter(t, 100)
	put(t, root+"/deep/er/greeting.txt", "hello\n")
	must(t, os.Link(root+"/deep/er/greeting.txt", root+"/other name.txt"))
	const sum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
	for path, label := range map[string]string{"/deep/er/greeting.txt": "greeting.txt", "/other name.txt": "other name.txt"} {
		got, err := im.ImportFile(t.Context(), root+path, inP)
		if want := (Imported{sum, 6, "TEXT", label, nil}); err != nil || got != want {
			t.Errorf("ImportFile(%s) = %+v, %v; want %+v", path, got, err, want)
		}
	}
	must(t, im.store.Verify(t.Context(), sum))
	put(t, root+"/exact", strings.Repeat("x", 100))
	_, err := im.ImportFile(t.Context(), root+"/exact", inP)
	must(t, err)
}

// Every path that is not a plain file below a root is refused with its reason, before anything is stored.
//
// proves ARC-02
func TestImportFileRefuses(t *testing.T) {
	im, root, storeDir := newImporter(t, 10)
	outside := t.TempDir()
	put(t, outside+"/secret", "secret")
	put(t, root+"/big", "more than ten")
	put(t, root+"/d/x", "x")
	must(t, os.Symlink(outside+"/secret", root+"/link"))
	must(t, os.Symlink("d/x", root+"/inner"))
	must(t, os.Symlink(outside, root+"/linkdir"))
	must(t, os.Symlink("d", root+"/innerdir"))
	must(t, unix.Mkfifo(root+"/pipe", 0o600))
	short := t.TempDir()
	l := value(net.Listen("unix", short+"/s"))(t)
	defer l.Close()
	must(t, os.Rename(short+"/s", root+"/socket"))
	put(t, root+"x/f", "beside the root, with its name as prefix")
	t.Cleanup(func() { os.RemoveAll(root + "x") })
	for path, want := range map[string]struct {
		kind fault.Kind
		code string
	}{
		outside + "/secret":        {fault.Policy, ImportRoot},
		outside + "/none":          {fault.Policy, ImportRoot},
		"/etc/passwd":              {fault.Policy, ImportRoot},
		root + "x/f":               {fault.Policy, ImportRoot},
		root + "/link":             {fault.Policy, ImportSymlink},
		root + "/inner":            {fault.Policy, ImportSymlink},
		root + "/linkdir/secret":   {fault.Policy, ImportSymlink},
		root + "/innerdir/x":       {fault.Policy, ImportSymlink},
		root + "/pipe":             {fault.Policy, ImportKind},
		root + "/socket":           {fault.Policy, ImportKind},
		root + "/d":                {fault.Policy, ImportKind},
		root:                       {fault.Policy, ImportKind},
		root + "/big":              {fault.Policy, ImportSize},
		root + "/none":             {fault.NotFound, "import_missing"},
		root + "/d/x/y":            {fault.NotFound, "import_missing"},
		"d/x":                      {fault.Validation, ImportPath},
		"":                         {fault.Validation, ImportPath},
		root + "/../" + "etc":      {fault.Validation, ImportPath},
		root + "/d/../big":         {fault.Validation, ImportPath},
		root + "//d/x":             {fault.Validation, ImportPath},
		root + "/d/x/":             {fault.Validation, ImportPath},
		root + "/d/x\x00/../../..": {fault.Validation, ImportPath},
		root + "/d/x\n":            {fault.Validation, ImportName},
		root + "/d\x1b/x":          {fault.Validation, ImportName},
		root + "/d/\xff":           {fault.Validation, ImportName},
	} {
		soon(t, func() {
			_, err := im.ImportFile(t.Context(), path, inP)
			if err == nil || fault.KindOf(err) != want.kind || fault.CodeOf(err) != want.code {
				t.Errorf("%q: %v (%s), want %s", path, err, fault.CodeOf(err), want.code)
			}
			if want.code == ImportRoot && !strings.Contains(err.Error(), root) {
				t.Errorf("%q: the answer does not name the allowed root: %v", path, err)
			}
		})
	}
	if got := listed(t, storeDir); got != nil {
		t.Error("stored:", got)
	}
}

func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it blocks")
	}
}

// Root may read everything, so the test passes the errno itself.
func TestImportUnreadable(t *testing.T) {
	im, _, _ := newImporter(t, 1)
	wantFault(t, im.openFault("/x", &os.PathError{Op: "open", Path: "x", Err: unix.EACCES}), fault.Policy, ImportAccess)
}

// A root may be reached through a symlink, by either name; where that leads is settled once.
func TestImportRoots(t *testing.T) {
	s, _ := newStore(t)
	base, other := t.TempDir(), t.TempDir()
	put(t, base+"/real/f", "right")
	put(t, other+"/f", "wrong")
	must(t, os.Symlink("real", base+"/root"))
	im := value(NewImporter(s, ImportPolicy{Roots: rootsOf(base + "/root"), MaxBytes: 100}))(t)
	for _, path := range []string{base + "/root/f", base + "/real/f"} {
		_, err := im.ImportFile(t.Context(), path, inP)
		must(t, err)
	}
	must(t, os.Remove(base+"/root"))
	must(t, os.Symlink(other, base+"/root"))
	got, err := im.ImportFile(t.Context(), base+"/root/f", inP)
	if err != nil || got.SHA256 != sumOf([]byte("right")) {
		t.Error(got, err)
	}
	must(t, os.Rename(base+"/real", base+"/moved"))
	must(t, os.Symlink(other, base+"/real"))
	_, err = im.ImportFile(t.Context(), base+"/root/f", inP)
	wantFault(t, err, fault.Policy, ImportSymlink)

	for _, roots := range [][]string{{"relative"}, {base + "/none"}, {base + "/moved/f"}, {"/"}, {base + "/"}, {""}} {
		_, err := NewImporter(s, ImportPolicy{Roots: rootsOf(roots...), MaxBytes: 1})
		wantFault(t, err, fault.Validation, ImportRoot)
	}
	_, err = NewImporter(s, ImportPolicy{})
	wantFault(t, err, fault.Validation, ImportSize)
	none := value(NewImporter(s, ImportPolicy{MaxBytes: 1}))(t)
	_, err = none.ImportFile(t.Context(), base+"/moved/f", inP)
	wantFault(t, err, fault.Policy, ImportRoot)
}

// Nothing is imported from the gateway's own folders, which have the data of all projects: not below a root that is
// around them or in them, not by another spelling, and the answer is the same for a file that does not exist.
//
// proves ARC-02
func TestImportOwnFolders(t *testing.T) {
	s, storeDir := newStore(t)
	base := t.TempDir()
	put(t, base+"/runs/run_1/a1/out/report.json", "{}")
	put(t, base+"/runs2/f", "beside it, with its name as prefix")
	must(t, os.Symlink(base+"/runs", base+"/link"))
	im, err := NewImporter(s, ImportPolicy{Roots: rootsOf(base, base+"/runs/run_1", base+"/link", storeDir), MaxBytes: 100,
		Own: []string{storeDir, base + "/link", base + "/later"}})
	must(t, err)
	put(t, base+"/later/ledger.db", "made by the gateway after the importer")
	for _, path := range []string{base + "/runs/run_1/a1/out/report.json", base + "/runs/run_1/a1/out/none", base + "/runs/run_2/none",
		base + "/link/run_1/a1/out/report.json",
		base + "/later/ledger.db", storeDir + "/objects/x"} {
		for _, im := range []*Importer{im, im.Rehearsal()} {
			_, err := im.ImportFile(t.Context(), path, inP)
			wantFault(t, err, fault.Policy, ImportOwn)
		}
	}
	_, err = im.ImportFile(t.Context(), base+"/runs2/f", inP)
	must(t, err)
}

// A folder exchanged for a link between check and open is not followed.
func TestImportFileSwapped(t *testing.T) {
	im, root, _ := newImporter(t, 100)
	outside := t.TempDir()
	put(t, outside+"/f", "secret")
	put(t, root+"/.d/f", "good")
	secret := sumOf([]byte("secret"))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			os.Rename(root+"/.d", root+"/d")
			os.Rename(root+"/d", root+"/.d")
			os.Symlink(outside, root+"/d")
			os.Remove(root + "/d")
		}
	}()
	defer func() { close(stop); <-stopped }()
	for until := time.Now().Add(300 * time.Millisecond); time.Now().Before(until); {
		got, err := im.ImportFile(t.Context(), root+"/d/f", inP)
		if got.SHA256 == secret {
			t.Fatal("a symlink was followed")
		}
		if k := fault.KindOf(err); err != nil && k != fault.Policy && k != fault.NotFound {
			t.Fatal(err)
		}
	}
	if im.store.Has(secret) {
		t.Error("the secret is in the store")
	}
}

// A file that changes while it is read is refused and not kept.
func TestImportFileChanged(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"grows": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("more")
				f.Close()
			}
			return err
		},
		"grows beyond the limit": func(path string) error { return os.Truncate(path, 9<<20) },
		"shrinks":                func(path string) error { return os.Truncate(path, 5) },
		"same size":              func(path string) error { return os.WriteFile(path, make([]byte, 3<<20), 0o600) },
		"touched":                func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			im, root, storeDir := newImporter(t, 4<<20)
			put(t, root+"/f", strings.Repeat("x", 3<<20))
			past := time.Now().Add(-time.Hour) // so that a change now shows whatever the clock's grain
			must(t, os.Chtimes(root+"/f", past, past))
			ctx := &hook{Context: t.Context(), at: 2, do: func() { must(t, change(root+"/f")) }}
			_, err := im.ImportFile(ctx, root+"/f", inP)
			wantFault(t, err, fault.Validation, "import_changed")
			if got := listed(t, storeDir); got != nil {
				t.Error("kept:", got)
			}
		})
	}
}

// hook calls a function at the at-th check of the context, which is between two chunks.
type hook struct {
	context.Context
	at int
	do func()
}

func (h *hook) Err() error {
	if h.at--; h.at == 0 {
		h.do()
	}
	return nil
}

// A rehearsal finds what an import would store, refuses what it would refuse, and stores nothing.
func TestRehearsal(t *testing.T) {
	im, folder, dir := newImporter(t, 64)
	file := filepath.Join(folder, "table.tsv")
	must(t, os.WriteFile(file, []byte("a\tb\n1\t2\n"), 0o600))
	each := func(im *Importer) (out [4]Imported, errs [4]string) {
		note := func(i int, got Imported, err error) {
			out[i] = got
			if err != nil {
				errs[i] = fault.CodeOf(err)
			}
		}
		got, err := im.ImportFile(t.Context(), file, inP)
		note(0, got, err)
		got, err = im.ImportText(t.Context(), "some words")
		note(1, got, err)
		got, err = im.ImportStream(t.Context(), strings.NewReader("a,b\n"), 4, "x.csv", nil)
		note(2, got, err)
		got, err = im.ImportStream(t.Context(), strings.NewReader(strings.Repeat("x", 65)), -1, "", nil)
		note(3, got, err)
		return out, errs
	}
	dry, refused := each(im.Rehearsal())
	if left := listed(t, dir); left != nil {
		t.Errorf("a rehearsal left %q", left)
	}
	real, errs := each(im)
	if dry != real || refused != errs || errs[3] != "artifact_too_large" || dry[0].Type != "TSV" || dry[0].SizeBytes != 8 {
		t.Errorf("dry run %+v, refused %q\nimport %+v, refused %q; want the same", dry, refused, real, errs)
	}
}
