package run

import (
	"fmt"
	"strings"
	"testing"

	"slurmgate/plan/tree"
)

// The job's description of a folder is not trusted: impossible counts, sizes and names are refused before a file is
// opened. Names that differ in case alone are two files.
//
// proves DATA-02
func TestHostileFolders(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	manifest := func(head string, lines ...string) string {
		text := "slurmgate-manifest 1 job=7 task=- restart=0\n" + head + "\n"
		for _, line := range lines {
			text += "file " + sum + " " + line + "\n"
		}
		return text + "end\n"
	}
	for name, text := range map[string]string{
		"fewer files":    manifest("directory 2 1 out/d", "1 out/d/a"),
		"no files":       manifest("directory 200000 1 out/d"),
		"too many":       manifest("directory 200001 1 out/d", "1 out/d/a"),
		"1e18 files":     manifest("directory 1000000000000000000 1 out/d", "1 out/d/a"),
		"negative count": manifest("directory -1 1 out/d", "1 out/d/a"),
		"size too small": manifest("directory 1 1 out/d", "2 out/d/a"),
		"size too large": manifest("directory 1 3 out/d", "2 out/d/a"),
		"negative size":  manifest("directory 2 1 out/d", "2 out/d/a", "-1 out/d/b"),
		"overflow":       manifest("directory 2 1 out/d", "9223372036854775807 out/d/a", "9223372036854775807 out/d/b"),
		"another folder": manifest("directory 1 1 out/d", "1 out/e/a"),
		"beside it":      manifest("directory 1 1 out/d", "1 out/da"),
		"itself":         manifest("directory 1 1 out/d", "1 out/d"),
		"not below out":  manifest("directory 1 1 ctl", "1 ctl/claim"),
		"up":             manifest("directory 1 1 out/../ctl", "1 out/../ctl/claim"),
		"twice":          manifest("directory 1 1 out/d", "1 out/d/a") + "directory 1 1 out/d\n",
	} {
		if m, err := ParseManifest([]byte(text)); err == nil {
			t.Errorf("ParseManifest of %q gives %+v, want an error", name, m)
		}
	}
	deep := strings.Repeat("d/", tree.MaxDepth) + "x"
	for name, c := range map[string]struct {
		files []string
		code  string
	}{
		"up":         {[]string{"../../ctl/claim"}, OutputName},
		"up inside":  {[]string{"a/../../b"}, OutputName},
		"absolute":   {[]string{"/etc/passwd"}, OutputName},
		"control":    {[]string{"a\x1b[31m"}, OutputName},
		"backslash":  {[]string{`a\b`}, OutputName},
		"not UTF-8":  {[]string{"a\xff"}, OutputName},
		"no name":    {[]string{""}, OutputName},
		"long":       {[]string{strings.Repeat("x", 256)}, OutputName},
		"deep":       {[]string{deep}, OutputName},
		"twice":      {[]string{"b", "a", "b"}, "OUTPUT-MANIFEST"},
		"below file": {[]string{"a", "a/b"}, "OUTPUT-MANIFEST"},
		"empty":      {nil, OutputEmpty},
		"case twins": {[]string{"b", "A", "a"}, ""},
	} {
		var lines []string
		for _, f := range c.files {
			lines = append(lines, "1 out/d/"+f)
		}
		m, err := ParseManifest([]byte(manifest(fmt.Sprintf("directory %d %d out/d", len(lines), len(lines)), lines...)))
		if err != nil {
			t.Errorf("ParseManifest of %q gives %v, want no error", name, err)
			continue
		}
		if list, refusal, detail := listOf(m.Entries[0]); refusal != c.code || (list == nil) == (c.code == "") {
			t.Errorf("the files of %q are refused with the code %q: %s, want %q", name, refusal, detail, c.code)
		}
	}
}
