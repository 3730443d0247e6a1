package app

import (
	"os"
	"path/filepath"
	"testing"

	"slurmgate/convert"
	"slurmgate/fault"
)

// Files with other content stay as they are, and then nothing at all is written; the same files again are no conflict.
func TestWriteConverted(t *testing.T) {
	to := filepath.Join(t.TempDir(), "new", "domain")
	files := []convert.File{{Path: "manifest.yaml", Data: []byte("a")}, {Path: "toolpacks/x.tool.yaml", Data: []byte("b")}}
	for range 2 {
		if err := writeConverted(to, files, false); err != nil {
			t.Fatal(err)
		}
	}
	files[1].Data = []byte("other")
	files = append(files, convert.File{Path: "images.lock.yaml", Data: []byte("c")})
	err := writeConverted(to, files, false)
	found := fault.ProblemsOf(err)
	if !fault.Is(err, fault.Conflict) || len(found) != 1 || found[0].File != filepath.Join(to, "toolpacks/x.tool.yaml") {
		t.Error(err, found)
	}
	if _, err := os.Stat(filepath.Join(to, "images.lock.yaml")); !os.IsNotExist(err) {
		t.Error("something was written", err)
	}
	if err := writeConverted(to, files, true); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(filepath.Join(to, "toolpacks/x.tool.yaml")); string(now) != "other" {
		t.Error(string(now), err)
	}
	if err := writeConverted(to, []convert.File{{Path: "../outside", Data: []byte("x")}}, true); err == nil {
		t.Error("a file was written outside the folder")
	}
}

// Of a folder the files that tools are made of are read, none of a hidden folder, none behind a link.
func TestGivenFiles(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"a/x.tool.yaml": "x", "a/s.json": "{}", "a/code.py": "p", ".git/y.yaml": "y", "big.json": ""} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	in, err := given([]string{filepath.Join(dir, "a"), filepath.Join(dir, "a/x.tool.yaml")})
	if err != nil || len(in) != 3 || in[0].Path != "s.json" || in[1].Path != "x.tool.yaml" || string(in[2].Data) != "x" {
		t.Error(in, err)
	}
	if in, err := given([]string{dir}); err != nil || len(in) != 3 {
		t.Error(in, err)
	}
	if err := os.Truncate(filepath.Join(dir, "big.json"), maxConvertedBytes+1); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "gone.yaml")} {
		if in, err := given([]string{bad}); err == nil {
			t.Error(bad, in)
		}
	}
}
