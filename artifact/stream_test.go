package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// What a stream brings is stored once, with the type its content and name give. One that is cut, too large or given up leaves nothing.
func TestImportStream(t *testing.T) {
	im, _, dir := newImporter(t, 100)
	for name, c := range map[string]struct{ content, name, want string }{
		"text": {"hello\n", "", "TEXT"}, "again": {"hello\n", "x.md", "MD"}, "packed": {string(gz(record)), "", "FASTQ_GZ"},
		"named": {"a,b\n1,2\n", "t.csv", "CSV"},
	} {
		got, err := im.ImportStream(t.Context(), strings.NewReader(c.content), -1, c.name, nil)
		if err != nil || got != (Imported{sumOf([]byte(c.content)), int64(len(c.content)), c.want, "upload", nil}) {
			t.Errorf("%s: ImportStream = %+v, %v; want type %s", name, got, err, c.want)
		}
	}
	before := listed(t, dir)
	if len(before) != 3 {
		t.Errorf("%d objects of three contents", len(before))
	}
	cut := func(n int, err error) io.Reader {
		return io.MultiReader(strings.NewReader(strings.Repeat("x", n)), iotest.ErrReader(err))
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		kind fault.Kind
		code string
	}{
		"cut":       {t.Context(), cut(50, io.ErrUnexpectedEOF), fault.Transport, "filesystem"},
		"cut early": {t.Context(), cut(0, errors.New("gone")), fault.Transport, "filesystem"},
		"endless":   {t.Context(), cut(101, io.ErrUnexpectedEOF), fault.Policy, "artifact_too_large"},
		"nothing":   {t.Context(), cut(0, io.EOF), fault.Validation, ImportSize},
		"given up":  {gone, cut(50, io.EOF), fault.Canceled, "canceled"},
	} {
		_, err := im.ImportStream(c.ctx, c.r, -1, "", nil)
		if fault.KindOf(err) != c.kind || fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
		for _, f := range listed(t, dir) {
			if strings.Contains(f, "tmp/") {
				t.Errorf("%s left %s", name, f)
			}
		}
	}
}

func TestImportText(t *testing.T) {
	im, _, _ := newImporter(t, 10<<20)
	got, err := im.ImportText(t.Context(), "hello\n")
	if err != nil || got.Type != "TEXT" || got.SizeBytes != 6 || got.Label != "text" {
		t.Error(got, err)
	}
	f := value(im.store.Open(got.SHA256))(t)
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
	s := value(Open(dir + "/store"))(f)
	root := dir + "/root"
	for _, err := range []error{os.Mkdir(root, 0o700), os.WriteFile(root+"/f", []byte("fine"), 0o600), os.WriteFile(dir+"/secret",
		[]byte("secret"), 0o600), os.Symlink(dir, root+"/l")} {
		must(f, err)
	}
	im := value(NewImporter(s, ImportPolicy{Roots: rootsOf(root), MaxBytes: 100}))(f)
	for _, s := range []string{"f", "../secret", "l/secret", "./f", "f/", "\x00", "l/root/f", "x\nf", strings.Repeat("a/", 3000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, rel string) {
		got, err := im.ImportFile(t.Context(), root+"/"+rel, inP)
		if err == nil && got.SHA256 != sumOf([]byte("fine")) {
			t.Errorf("ImportFile(%q) = %s, want an error or the file within the root", rel, got.SHA256)
		}
		if k := fault.KindOf(err); err != nil && k != fault.Policy && k != fault.Validation && k != fault.NotFound && len(rel) < 255 {
			t.Errorf("%q: %v", rel, err)
		}
		if msg := plan.CheckWord(labelOf(rel)); msg != "" {
			t.Errorf("label %q of %q: %s", labelOf(rel), rel, msg)
		}
	})
}

// age makes an object appear stored so long ago.
func age(t *testing.T, dir, sum string, d time.Duration) {
	t.Helper()
	at := time.Now().Add(-d)
	must(t, os.Chtimes(dir+"/objects/"+sum[:2]+"/"+sum, at, at))
}

func TestRemove(t *testing.T) {
	s, dir := newStore(t)
	sum, _, err := s.Put(t.Context(), bytes.NewReader([]byte("x")), 10)
	must(t, err)
	cutoff := time.Now().Add(-time.Hour)
	just := func(remove func() error) error { return remove() }
	remove := func(alone func(func() error) error) bool {
		t.Helper()
		gone := value(s.Remove(t.Context(), sum, cutoff, alone))(t)
		return gone
	}
	if remove(just) {
		t.Error("a young object was removed")
	}
	age(t, dir, sum, 2*time.Hour)
	if remove(func(func() error) error { return nil }) || !s.Has(sum) {
		t.Error("a kept object was removed")
	}
	if gone, err := s.Remove(t.Context(), sum, cutoff, func(func() error) error { return os.ErrClosed }); gone || err == nil || !s.Has(sum) {
		t.Error("Remove removed an object while it was unknown whether to keep it")
	}
	_, _, err = s.Put(t.Context(), bytes.NewReader([]byte("x")), 10) // stored again: young again
	must(t, err)
	if remove(just) {
		t.Error("an object that was just stored again was removed")
	}
	var seen []string
	must(t, s.Objects(t.Context(), func(sum string, size int64, _ time.Time) error {
		seen = append(seen, fmt.Sprint(sum, size))
		return nil
	}))
	if len(seen) != 1 || seen[0] != sum+"1" {
		t.Error(seen)
	}
	age(t, dir, sum, 2*time.Hour)
	if !remove(just) || s.Has(sum) || !remove(just) {
		t.Error("it is still there")
	}
	if gone, err := s.Remove(t.Context(), sumOf([]byte("never")), cutoff, just); !gone || err != nil {
		t.Error(gone, err)
	}
	_, err = s.Remove(t.Context(), "../x", cutoff, just)
	wantFault(t, err, fault.Validation, "checksum")
}

// A stored object exists afterwards, though another process removes old objects at the same moment.
func TestRemoveWhileStoring(t *testing.T) {
	s, dir := newStore(t)
	other, err := Open(dir) // as another process has it
	must(t, err)
	defer other.Close()
	removed := 0
	for i := range 300 {
		b := fmt.Appendf(nil, "%d", i%5)
		sum, _, err := s.Put(t.Context(), bytes.NewReader(b), 10)
		must(t, err)
		age(t, dir, sum, 2*time.Hour)
		var both sync.WaitGroup
		both.Go(func() {
			if _, _, err := s.Put(t.Context(), bytes.NewReader(b), 10); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			gone, err := other.Remove(t.Context(), sum, time.Now().Add(-time.Hour), func(remove func() error) error { return remove() })
			if err != nil {
				t.Error(err)
			}
			if gone {
				removed++
			}
		})
		both.Wait()
		if err := s.Verify(t.Context(), sum); err != nil {
			t.Fatalf("round %d: it was stored and is not there: %v", i, err)
		}
	}
	t.Logf("removed first in %d of 300 rounds", removed)
}
