package tree_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/plan/tree"
)

const head = "slurmgate-directory 1\n"

var sum = strings.Repeat("ab", 32)

func line(size, path string) string { return sum + " " + size + " " + path + "\n" }

func read(text string) (list []tree.File, total tree.Sum, err error) {
	total, err = tree.Each(strings.NewReader(text), func(f tree.File) error { list = append(list, f); return nil })
	return list, total, err
}

func TestManifest(t *testing.T) {
	var b bytes.Buffer
	w := tree.NewWriter(&b)
	want := []tree.File{{sum, 3, "a"}, {sum, 0, "b/c"}, {sum, 5, "b/d e"}, {sum, 7, "b-c"}, {sum, 9, "ü/x"}}
	for _, f := range want {
		if err := w.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	total, err := w.Close()
	if text := head + line("3", "a") + line("0", "b/c") + line("5", "b/d e") + line("7", "b-c") + line("9", "ü/x"); err != nil ||
		total != (tree.Sum{Files: 5, Bytes: 24}) || b.String() != text {
		t.Errorf("%v %v\n%s", total, err, b.String())
	}
	got, total, err := read(b.String())
	if err != nil || total.Files != 5 || !slices.Equal(got, want) {
		t.Error(got, total, err)
	}
	inputs, err := tree.Inputs(plan.Input{Role: "index", ArtifactID: "art_1", DestRelpath: "in/idx", ChecksumSHA256: "x", Directory: true},
		strings.NewReader(b.String()))
	one := plan.Input{Role: "index", ArtifactID: "art_1", ChecksumSHA256: sum, DestRelpath: "in/idx/b/c"}
	if err != nil || len(inputs) != 5 || inputs[1] != one {
		t.Error(inputs, err)
	}
}

// A hostile manifest of any kind is refused.
//
// proves DATA-02
func TestHostileManifests(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, text := range map[string]string{
		"empty": "", "no file": head, "another header": "slurmgate-directory 2\n" + line("1", "a"), "header alone": "slurmgate-directory 1",
		"unsorted": head + line("1", "b") + line("1", "a"), "twice": head + line("1", "a") + line("1", "a"),
		"below a file": head + line("1", "a") + line("1", "a/b"), "file after folder": head + line("1", "a/b") + line("1", "a"),
		"up": head + line("1", "../a"), "up inside": head + line("1", "a/../b"), "here": head + line("1", "./a"),
		"absolute":      head + line("1", "/a"),
		"doubled slash": head + line("1", "a//b"), "folder": head + line("1", "a/"), "no path": head + sum + " 1 \n",
		"two fields": head + sum + " 1\n",
		"one field":  head + sum + "\n", "blank line": head + "\n", "negative": head + line("-1", "a"), "plus": head + line("+1", "a"),
		"leading zero": head + line("01", "a"), "too large": head + line("9223372036854775808", "a"),
		"all too large": head + line("9223372036854775807", "a") + line("1", "b"), "checksum": head + "XY" + line("1", "a")[2:],
		"short checksum": head + line("1", "a")[2:], "control": head + line("1", "a\x01"), "return": head + line("1", "a\r"),
		"not UTF-8": head + line("1", "a\xff"), "backslash": head + line("1", `a\b`), "cut": head + line("1", "a") + sum + " 1 b",
		"NUL": head + line("1", "a\x00b"), "long part": head + line("1", strings.Repeat("x", 256)),
		"deep": head + line("1", strings.Repeat("d/", 32)+"x"),
		"long": head + line("1", strings.Join([]string{long, long, long, long, long, long}, "/")), "endless": head + strings.Repeat("x", 1<<20),
	} {
		if list, _, err := read(text); !fault.Is(err, fault.Validation) || fault.CodeOf(err) != tree.Code {
			t.Errorf("%s: %v %v", name, list, err)
		}
	}
	var b bytes.Buffer
	w := tree.NewWriter(&b)
	for i := range tree.MaxFiles + 1 {
		if err := w.Add(tree.File{SHA256: sum, Size: 1, Path: fmt.Sprintf("%07d", i)}); (err != nil) != (i == tree.MaxFiles) {
			t.Fatal(i, err)
		}
	}
	if _, err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(b.String() + line("1", "9999999")); fault.CodeOf(err) != tree.Code {
		t.Error(err)
	}
	deep := head + line("1", strings.Join([]string{long, long, long, long, long}, "/"))
	if _, err := tree.Inputs(plan.Input{DestRelpath: "in/" + long}, strings.NewReader(deep)); fault.CodeOf(err) != tree.Code {
		t.Error(err)
	}
	if err := tree.NewWriter(io.Discard).Add(tree.File{SHA256: sum, Size: math.MinInt64, Path: "a"}); err == nil {
		t.Error("a negative size")
	}
}

// A manifest that was read is written again unchanged, and its paths are safe to join to a folder.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(head + line("1", "a") + line("2", "b/c")))
	f.Add([]byte(head + line("1", "../a")))
	f.Add([]byte(head + line("1", "a") + line("2", "a.b") + line("2", "a/c")))
	f.Fuzz(func(t *testing.T, data []byte) {
		var b bytes.Buffer
		w := tree.NewWriter(&b)
		paths := map[string]bool{}
		total, err := tree.Each(bytes.NewReader(data), func(f tree.File) error {
			if path.Clean(f.Path) != f.Path || path.IsAbs(f.Path) || strings.HasPrefix(f.Path, "..") {
				t.Errorf("%q", f.Path)
			}
			for at := f.Path; at != "."; at = path.Dir(at) {
				if paths[at] {
					t.Errorf("%q is a file and a folder, or there twice", at)
				}
			}
			paths[f.Path] = true
			return w.Add(f)
		})
		if err != nil {
			return
		}
		if again, err := w.Close(); err != nil || again != total || !bytes.Equal(b.Bytes(), data) {
			t.Errorf("%v\n%q\n%q", err, data, b.Bytes())
		}
	})
}
