package export

import (
	"archive/zip"
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
)

// zipped returns a ZIP of entries as [Archive.WriteTo] writes them, whatever their names.
func zipped(entries ...[2]string) []byte {
	var b bytes.Buffer
	var directory []byte
	for _, x := range entries {
		e := entry{name: x[0], size: int64(len(x[1])), offset: int64(b.Len()), crc: crc32.ChecksumIEEE([]byte(x[1]))}
		b.Write(e.local())
		b.WriteString(x[1])
		b.Write(e.trailer())
		directory = append(directory, e.central()...)
	}
	at := int64(b.Len())
	b.Write(directory)
	b.Write(ending(int64(len(entries)), int64(len(directory)), at))
	return b.Bytes()
}

// Archives made to harm are refused, or their files are named; nothing is written and nothing large is read.
//
// proves EXP-01
func TestHostileArchives(t *testing.T) {
	packed := func(f func(*zip.Writer)) []byte {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		f(z)
		must(t, z.Close())
		return b.Bytes()
	}
	create := func(z *zip.Writer, h zip.FileHeader, text string) {
		w, err := z.CreateHeader(&h)
		must(t, err)
		_, err = w.Write([]byte(text))
		must(t, err)
	}
	good := func() []byte { r, store := made(t); return archive(t, r, store, Options{}) }()
	forgedSize := bytes.Clone(good)
	list := value(readDirectory(bytes.NewReader(good), int64(len(good))))(t)
	first := bytes.Index(forgedSize, list[0].central())
	le.PutUint32(forgedSize[first+20:], big-1)
	le.PutUint32(forgedSize[first+24:], big-1)
	many := ending(maxEntries+1, 10, 0)
	huge := ending(1<<40, 1<<50, 0)
	link := zip.FileHeader{Name: "run.json"}
	link.SetMode(os.ModeSymlink | 0o777)
	for name, x := range map[string]struct {
		data []byte
		says string
	}{
		"empty":            {nil, "not a ZIP archive"},
		"no ZIP":           {[]byte(strings.Repeat("x", 1000)), "not a ZIP archive"},
		"cut off":          {good[:len(good)-1], "cut off"},
		"more behind it":   {append(bytes.Clone(good), 'x'), "something follows its end"},
		"more before it":   {append([]byte("#!/bin/sh\n"), good...), "bytes were added"},
		"too many entries": {many, "at most 250000 entries"},
		"a huge directory": {huge, "at most 250000 entries"},
		"a forged size":    {forgedSize, "reach into the directory"},
		"a bomb": {packed(func(z *zip.Writer) {
			create(z, zip.FileHeader{Name: "a", Method: zip.Deflate}, strings.Repeat("0", 1<<20))
		}), "archive again"},
		"a link":                {packed(func(z *zip.Writer) { create(z, link, "/etc/passwd") }), "symbolic link"},
		"a folder":              {packed(func(z *zip.Writer) { _, err := z.Create("out/"); must(t, err) }), "is a folder"},
		"another program's":     {packed(func(z *zip.Writer) { create(z, zip.FileHeader{Name: "run.json"}, "{}") }), "archive again"},
		"nothing of a run":      {zipped([2]string{"x", "y"}), "not an archive of a run"},
		"a path out":            {zipped([2]string{"run.json", "{}"}, [2]string{"../x", "y"}), `contains ".."`},
		"a path out below":      {zipped([2]string{"run.json", "{}"}, [2]string{"in/../../x", "y"}), `contains ".."`},
		"an absolute path":      {zipped([2]string{"run.json", "{}"}, [2]string{"/etc/x", "y"}), "absolute path"},
		"a drive":               {zipped([2]string{"run.json", "{}"}, [2]string{"C:x", "y"}), "drive letter"},
		"a backslash":           {zipped([2]string{"run.json", "{}"}, [2]string{`..\x`, "y"}), "backslash"},
		"a control character":   {zipped([2]string{"run.json", "{}"}, [2]string{"a\x1b[2J", "y"}), "control character"},
		"a name of two":         {zipped([2]string{"run.json", "{}"}, [2]string{"a", "1"}, [2]string{"a", "2"}), "two files of this name"},
		"twins but for case":    {zipped([2]string{"run.json", "{}"}, [2]string{"a", "1"}, [2]string{"A", "2"}), "in case only"},
		"a file and a folder":   {zipped([2]string{"run.json", "{}"}, [2]string{"a", "1"}, [2]string{"a/b", "2"}), "which is a file"},
		"a long name":           {zipped([2]string{"run.json", "{}"}, [2]string{strings.Repeat("a", 2000), "y"}), "longer than"},
		"a name that is none":   {zipped([2]string{"run.json", "{}"}, [2]string{"\xff", "y"}), "not UTF-8"},
		"no run and a manifest": {zipped([2]string{"MANIFEST", strings.Repeat("\n", 100)}), "is not a checksum and a file"},
	} {
		t.Run(name, func(t *testing.T) {
			rep, err := verifyBytes(t, x.data)
			text := problems(rep)
			if err != nil {
				text = err.Error() + fault.Prose(err)
			}
			if err == nil && rep.OK || !strings.Contains(text, x.says) {
				t.Errorf("%q", text)
			}
		})
	}
}

// A folder with links and pipes is read without following them.
func TestHostileFolder(t *testing.T) {
	r, store := made(t)
	dir := unpack(t, saved(t, archive(t, r, store, Options{})))
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("4\n"), 0o600))
	must(t, os.Remove(filepath.Join(dir, "out/n.txt")))
	must(t, os.Symlink(secret, filepath.Join(dir, "out/n.txt")))
	run(t, dir, "mkfifo", "pipe")
	rep := verify(t, dir)
	if text := problems(rep); !strings.Contains(text, "out/n.txt: it is not a plain file but a symbolic link") ||
		!strings.Contains(text, "pipe: it is not a plain file but a pipe") {
		t.Error(text)
	}
	if _, err := Verify(t.Context(), filepath.Join(dir, "none"), nil); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
}

// FuzzArchive checks bytes that are no archive, or almost one.
func FuzzArchive(f *testing.F) {
	r, store := made(f)
	good := archive(f, r, store, Options{})
	f.Add(good)
	f.Add(zipped([2]string{"run.json", "{}"}, [2]string{"MANIFEST", "x"}))
	f.Add(ending(1, 1, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		rep, err := verifyBytes(t, data)
		if err == nil && rep.OK && !bytes.Equal(data, good) && len(rep.Problems) > 0 {
			t.Error("it is intact and has problems")
		}
	})
}

// A report of an archive with many problems has their number, and lists the first.
func TestManyProblems(t *testing.T) {
	r, store := made(t)
	files := members(t, archive(t, r, store, Options{}))
	for i := range 3 * maxListed {
		files[fmt.Sprintf("x%04d", i)] = []byte("y")
	}
	rep, err := Verify(t.Context(), saved(t, packed(files)), nil)
	if err != nil || rep.OK || len(rep.Problems) != maxListed || rep.ProblemCount < 3*maxListed {
		t.Errorf("an archive with %d unknown files has a report that lists %d problems and counts %d (ok %v, %v), want %d and at least %d",
			3*maxListed, len(rep.Problems), rep.ProblemCount, rep.OK, err, maxListed, 3*maxListed)
	}
}
