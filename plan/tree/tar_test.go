package tree_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan/tree"
)

// A directory gives the same tar file each time, and can be restored from it.
func TestTar(t *testing.T) {
	files, objects := map[string]string{"a": "one", "b/c": "", "b/d e": "three"}, map[string]string{}
	var list bytes.Buffer
	w := tree.NewWriter(&list)
	for _, path := range []string{"a", "b/c", "b/d e"} {
		sum := sha256.Sum256([]byte(files[path]))
		objects[hex.EncodeToString(sum[:])] = files[path]
		if err := w.Add(tree.File{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(files[path])), Path: path}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var one, two bytes.Buffer
	for _, b := range []*bytes.Buffer{&one, &two} {
		err := tree.WriteTar(b, bytes.NewReader(list.Bytes()), func(sum string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(objects[sum])), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two tar files of one directory differ")
	}
	got := map[string]string{}
	err := tree.ReadTar(&one, func(path string, size int64, r io.Reader) error {
		data, err := io.ReadAll(r)
		if got[path] = string(data); int64(len(data)) != size {
			t.Errorf("%s: %d bytes of %d", path, len(data), size)
		}
		return err
	})
	if err != nil || len(got) != 3 || got["b/d e"] != "three" {
		t.Error(got, err)
	}
	none := func(string, int64, io.Reader) error { return nil }
	for _, cut := range []int{0, 100, 700, 1024, two.Len() - 1024, two.Len() - 1} {
		if err := tree.ReadTar(bytes.NewReader(two.Bytes()[:cut]), none); fault.CodeOf(err) != "directory_tar" {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	for _, h := range []tar.Header{{Name: "../x", Typeflag: tar.TypeReg}, {Name: "/x", Typeflag: tar.TypeReg},
		{Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "x", Typeflag: tar.TypeLink, Linkname: "y"}, {Name: "x", Typeflag: tar.TypeFifo},
		{Name: "x", Typeflag: tar.TypeChar}, {Name: "a\nb", Typeflag: tar.TypeReg}, {Name: `a\b`, Typeflag: tar.TypeReg}} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if err := tree.ReadTar(&b, none); fault.CodeOf(err) != "IMPORT-ENTRY" {
			t.Errorf("%q %c: %v", h.Name, h.Typeflag, err)
		}
	}
}

// The files read from any tar file have paths that a directory artifact can have, and their stated number of bytes.
func FuzzReadTar(f *testing.F) {
	for _, h := range []tar.Header{
		{Name: "a/b", Typeflag: tar.TypeReg, Size: 3}, {Name: "../x", Typeflag: tar.TypeReg}, {Name: "./a", Typeflag: tar.TypeReg},
		{Name: "d/", Typeflag: tar.TypeDir}, {Name: "x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "a\nb", Typeflag: tar.TypeReg},
		{Name: strings.Repeat("long/", 60) + "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"comment": "c"}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&h); err != nil {
			f.Fatal(err)
		}
		_, _ = w.Write([]byte("abc"[:h.Size]))
		w.Close()
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()-700])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := tree.ReadTar(bytes.NewReader(data), func(path string, size int64, r io.Reader) error {
			if msg := tree.CheckPath(path); msg != "" {
				t.Errorf("%q: %s", path, msg)
			}
			if n, err := io.Copy(io.Discard, r); err == nil && n != size {
				t.Errorf("%q: %d bytes of %d", path, n, size)
			} else {
				return err
			}
			return nil
		})
		if err != nil && fault.CodeOf(err) != "directory_tar" && fault.CodeOf(err) != "IMPORT-ENTRY" && fault.CodeOf(err) != "IMPORT-FILES" {
			t.Error(err)
		}
	})
}
