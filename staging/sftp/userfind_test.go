package sftp

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FindFiles finds regular files by a part of their name, also with characters that are special to a shell or to find,
// and follows no symlink.
//
// proves SITE-08
func TestFindFiles(t *testing.T) {
	w := newFar(t, nil).open(t, nil)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(at("a/b c"), 0o700))
	must(t, os.MkdirAll(at("other"), 0o700))
	for _, name := range []string{"a/S1.fq", "a/b c/s1 $(x)'.bam", "a/S2[1].fq", "a/new\nline-S1", "other/S1"} {
		must(t, os.WriteFile(at(name), []byte("x"), 0o600))
	}
	must(t, os.Symlink(at("other"), at("a/S1-link")))
	for part, want := range map[string][]string{"s1": {"a/S1.fq", "a/b c/s1 $(x)'.bam", "a/new\nline-S1"}, "[1]": {"a/S2[1].fq"}, "*": nil,
		"$(x)'": {"a/b c/s1 $(x)'.bam"}} {
		found, whole, err := w.FindFiles(t.Context(), []string{at("a"), at("none")}, part)
		var got []string
		for _, f := range found {
			rel, rerr := filepath.Rel(dir, f.Path)
			must(t, rerr)
			got = append(got, rel)
			if f.SizeBytes != 1 || f.ModifiedAt.IsZero() {
				t.Errorf("the found file is %+v, want one byte and a time", f)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if err != nil || !whole || !slices.Equal(got, want) {
			t.Errorf("%s: %q %t %v, want %q", part, got, whole, err, want)
		}
	}
}

func FuzzFound(f *testing.F) {
	f.Add("3 1700000000.5 /a/b\x00end\x00")
	f.Add("x\x00-1 1 /a\x001 1 a\x00")
	f.Fuzz(func(t *testing.T, text string) {
		found, _ := readFound(text)
		for _, x := range found {
			if !filepath.IsAbs(x.Path) || x.SizeBytes < 0 {
				t.Errorf("from a stray answer the file is %+v, want an absolute path and a size", x)
			}
		}
	})
}
