package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/files"
)

// large writes a file of a type that nothing checks, just large enough for its import to be cut, and returns its checksum.
func large(t *testing.T, name string, more int) (sum string) {
	t.Helper()
	data := make([]byte, leastPart+more)
	r := rand.NewChaCha8([32]byte{byte(more)})
	if _, err := r.Read(data); err != nil {
		t.Fatal(err)
	}
	must(t, os.WriteFile(name, data, 0o600))
	h := sha256.Sum256(data)
	return hex.EncodeToString(h[:])
}

// cutAfter is a context that ends when so many bytes of an import were copied.
type cutAfter struct {
	context.Context
	p    *files.Progress
	when int64
}

func (c cutAfter) Err() error {
	if done, _ := c.p.Bytes(); done >= c.when {
		return context.Canceled
	}
	return c.Context.Err()
}

func openStore(t *testing.T, dir string) *Store {
	t.Helper()
	s := value(Open(dir))(t)
	return s
}

func importerOf(t *testing.T, s *Store, root string) *Importer {
	t.Helper()
	im := value(NewImporter(s, ImportPolicy{Roots: rootsOf(root), MaxBytes: 1 << 40}))(t)
	return im
}

func parts(t *testing.T, dir string) (names []string) {
	t.Helper()
	all := value(filepath.Glob(dir + "/tmp/part-*"))(t)
	for _, n := range all {
		names = append(names, filepath.Base(n))
	}
	return names
}

// An import that was cut continues where it was, also in another process, and reads nothing twice that it has hashed.
// A file that changed begins again, and so does one whose state cannot be read.
//
// proves DATA-05
func TestImportGoesOn(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	name := filepath.Join(root, "reads.bin")
	sum := large(t, name, 12345)
	store := openStore(t, dir)
	again := func(when int64) (Imported, int64, error) {
		im := importerOf(t, store, root)
		p := &files.Progress{}
		ctx := files.Watched(t.Context(), p)
		if when > 0 {
			ctx = cutAfter{ctx, p, when}
		}
		got, err := im.ImportFile(ctx, name, Scope{Every: true})
		done, _ := p.Bytes()
		return got, done, err
	}
	if _, _, err := again(20 << 20); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
	if n := parts(t, dir); len(n) != 2 {
		t.Fatal(n)
	}
	must(t, store.Close())
	store = openStore(t, dir) // another process: what is left is not dropped
	before := value(os.Stat(dir + "/tmp/" + parts(t, dir)[0]))(t)
	if before.Size() < 20<<20 {
		t.Fatal("nothing was kept", before.Size())
	}
	if _, _, err := again(40 << 20); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
	got, done, err := again(0)
	if err != nil || got.SHA256 != sum || done != leastPart+12345 || got.Type != "UNKNOWN" || got.Label != "reads.bin" {
		t.Fatal(got, done, err)
	}
	must(t, store.Verify(t.Context(), sum))
	if n := parts(t, dir); n != nil {
		t.Error("left over", n)
	}

	sum = large(t, name, 1) // other bytes
	if _, _, err := again(20 << 20); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
	first := parts(t, dir)
	now := time.Now()
	must(t, os.Chtimes(name, now, now))
	if got, _, err = again(0); err != nil || got.SHA256 != sum {
		t.Fatal(got, err)
	}
	if n := parts(t, dir); len(n) != 2 || n[0] != first[0] {
		t.Error("the copy of the state before", n)
	}
	n, bytes, err := store.DropPartials(time.Now())
	if n != 1 || bytes < 20<<20 || err != nil || parts(t, dir) != nil {
		t.Error(n, bytes, err, parts(t, dir))
	}

	sum = large(t, name, 2)
	for _, spoil := range []func(state string){
		func(state string) { must(t, os.WriteFile(state, []byte("{"), 0o600)) },
		func(state string) { must(t, os.Remove(state)) },
		func(state string) { must(t, os.Truncate(strings.TrimSuffix(state, stateSuffix), 5)) },
		func(state string) { must(t, os.Chmod(strings.TrimSuffix(state, stateSuffix), 0o400)) },
	} {
		if _, _, err := again(20 << 20); !fault.Is(err, fault.Canceled) {
			t.Fatal(err)
		}
		spoil(dir + "/tmp/" + parts(t, dir)[1])
		if got, _, err = again(0); err != nil || got.SHA256 != sum {
			t.Fatal(got, err)
		}
		must(t, store.Verify(t.Context(), sum))
		must(t, os.Remove(dir+"/objects/"+sum[:2]+"/"+sum))
	}
}

// Identical concurrent imports read and hash the file once; if the caller of one cancels, another continues it.
//
// proves DATA-05
func TestImportsOfOneFileAreOne(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	name := filepath.Join(root, "reads.bin")
	sum := large(t, name, 99)
	store := openStore(t, dir)
	im := importerOf(t, store, root)
	for round := range 3 {
		var wg sync.WaitGroup
		var progress [8]files.Progress
		for i := range progress {
			wg.Go(func() {
				ctx := files.Watched(t.Context(), &progress[i])
				if i == round {
					ctx = cutAfter{ctx, &progress[i], 10 << 20}
				}
				got, err := im.ImportFile(ctx, name, Scope{Every: true})
				if i == round && fault.Is(err, fault.Canceled) {
					return
				}
				if err != nil || got.SHA256 != sum {
					t.Error(got, err)
				}
			})
		}
		wg.Wait()
		if n := parts(t, dir); n != nil {
			t.Error("left over", n)
		}
		must(t, os.Remove(dir+"/objects/"+sum[:2]+"/"+sum))
	}
}

// Interrupted hashing in place continues where it was, in another process, too: within a large file, and with the
// next file of a folder. What changed meanwhile is hashed from its beginning, and nothing is left in the end.
//
// proves DATA-05
func TestHashingGoesOn(t *testing.T) {
	dir, root := t.TempDir(), t.TempDir()
	store := openStore(t, dir)
	name := filepath.Join(root, "big.bin")
	sum := large(t, name, 777)
	folder := filepath.Join(root, "folder")
	must(t, os.Mkdir(folder, 0o755))
	inFolder := large(t, filepath.Join(folder, "big"), 999)
	for i := range 300 {
		must(t, os.WriteFile(fmt.Sprintf("%s/small %03d", folder, i), make([]byte, 300<<10), 0o600))
	}
	all := int64(leastPart + 999 + 300*(300<<10))
	hash := func(path string, when int64) (r Registered, done, skipped int64, err error) {
		im := importerOf(t, store, root)
		p := &files.Progress{}
		ctx := files.Watched(t.Context(), p)
		if when > 0 {
			ctx = cutAfter{ctx, p, when}
		}
		if path == name {
			r, err = im.Register(ctx, path, Scope{Every: true})
		} else {
			r, err = im.RegisterFolder(ctx, path, Scope{Every: true})
		}
		done, _ = p.Bytes()
		return r, done, p.Skipped(), err
	}
	for _, c := range []struct {
		path string
		cut  int64
		size int64
	}{{name, 20 << 20, leastPart + 777}, {folder, 70 << 20, all}} {
		if _, _, _, err := hash(c.path, c.cut); !fault.Is(err, fault.Canceled) {
			t.Fatal(err)
		}
		left := parts(t, dir)
		must(t, store.Close())
		store = openStore(t, dir)
		r, done, skipped, err := hash(c.path, 0)
		if err != nil || done != c.size || skipped < c.cut/2 || skipped == c.size {
			t.Errorf("%s: %d of %d bytes, %d of them before, %v; %v was left", c.path, done, c.size, skipped, err, left)
		}
		if c.path == name && r.SHA256 != sum {
			t.Errorf("%s instead of %s", r.SHA256, sum)
		}
		again, _, skipped, err := hash(c.path, 0)
		if err != nil || again.SHA256 != r.SHA256 || skipped != 0 || len(parts(t, dir)) != 0 {
			t.Errorf("again: %s, %d bytes before, %v, left %q; want %s and nothing else", again.SHA256, skipped, err,
				parts(t, dir), r.SHA256)
		}
		if c.path == folder && again.List.Files[0].SHA256 != inFolder {
			t.Errorf("the large file in the folder is %s, want %s", again.List.Files[0].SHA256, inFolder)
		}
	}
	// a file that changed: another state of the folder
	if _, _, _, err := hash(folder, 100<<20); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
	must(t, os.WriteFile(folder+"/small 000", []byte("changed"), 0o600))
	r, _, skipped, err := hash(folder, 0)
	if err != nil || skipped > leastPart+999 {
		t.Errorf("%d bytes before, %v", skipped, err)
	}
	changed := sha256.Sum256([]byte("changed"))
	if got := r.List.Files[1]; got.SHA256 != hex.EncodeToString(changed[:]) {
		t.Errorf("the changed file is %s, want %s", got.SHA256, hex.EncodeToString(changed[:]))
	}
	// what is written down and torn is not believed
	if _, _, _, err := hash(folder, 100<<20); !fault.Is(err, fault.Canceled) {
		t.Fatal(err)
	}
	for _, p := range parts(t, dir) {
		f, err := os.OpenFile(dir+"/tmp/"+p, os.O_RDWR, 0)
		must(t, err)
		info := value(f.Stat())(t)
		_, err = f.WriteAt(make([]byte, 50), max(0, info.Size()-50))
		must(t, err)
		f.Close()
	}
	if again, _, _, err := hash(folder, 0); err != nil || again.SHA256 != r.SHA256 {
		t.Error(again, err)
	}
}
