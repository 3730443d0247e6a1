package toolpack

import (
	"path/filepath"
	"strings"
	"testing"
)

// A check says where a caller's text could become an option, a file of arguments or a plug-in, and where it reaches a program that runs
// code.
func TestOptionNotes(t *testing.T) {
	const mode = `"--mode={{ params.mode }}"`
	for _, c := range []struct{ cmd, schema, want string }{
		{`"--mode={{ params.text }}"`, "", ""},
		{`"{{ params.text }}"`, "", `"text", which may begin with - or @ or +`},
		{`"{{ params.text }}.txt"`, "", `"text", which may begin with - or @ or +`},
		{`"{% if params.n > 1 %}{{ params.text }}{% endif %}"`, "", `"text", which may begin`},
		{`--, "{{ params.text }}"`, "", ""},
		{`"x{{ params.text }}"`, "", ""},
		{`"{{ params.n }}{{ params.text }}"`, "", ""},
		{`"{{ params.text }}"`, `, pattern: "^[a-z]"`, ""},
		{`"{{ params.text }}"`, `, pattern: "[a-z]+"`, "- or @ or +"},
		{`"{{ params.text }}"`, `, pattern: "^[^-]"`, "begin with @ or +:"},
		{`"{{ params.text }}"`, `, pattern: "^(x|-b)"`, "begin with -:"},
		{`"{{ params.text }}"`, `, pattern: "^[^-@+]|^$"`, ""},
		{`"{{ params.text }}"`, `, pattern: "^[a-z]*"`, "- or @ or +"},
		{`"{{ params.text }}"`, `, pattern: "^x?\\w"`, ""},
		{`"{{ params.text }}"`, `, enum: ["-a", "@b", x]`, ""},
	} {
		text := with(t, mode, c.cmd, "text: {type: string, default: x", "text: {type: string, default: x"+c.schema)
		set, found := loadText(map[string]string{"a.tool.yaml": text})
		if found != nil {
			t.Fatalf("%s %s: %v", c.cmd, c.schema, found)
		}
		notes := strings.Join(set.List()[0].Notes(), "\n")
		if (c.want == "") != (notes == "") || !strings.Contains(notes, c.want) {
			t.Errorf("%s %s: %q, want %q", c.cmd, c.schema, notes, c.want)
		}
	}
	text := strings.Replace(with(t, mode, `"--mode={{ params.text }}"`), "cmd: [count", "cmd: [java, -jar, /opt/x.jar", 1)
	set, found := loadText(map[string]string{"a.tool.yaml": text})
	if found != nil {
		t.Fatal(found)
	}
	if notes := set.List()[0].Notes(); len(notes) != 1 || !strings.Contains(notes[0], `"text" to java, which runs code`) {
		t.Error(notes)
	}
}

// A pack that has an interpreter run an input is named.
func TestScriptNotes(t *testing.T) {
	for cmd, named := range map[string]bool{
		"[python3.12, -I, /work/in/data]": true, `[java, -jar, "{{ inputs.data }}"]`: true, "[Rscript, /work/in/data, x]": true,
		"[python3, /opt/x.py, /work/in/data]": false, "[samtools, /work/in/data]": false, "[tar, -tf, /work/in/data]": false,
	} {
		text := with(t, `[count, "--mode={{ params.mode }}", -n, "{{params.n}}", /work/in/data]`, cmd)
		set, found := loadText(map[string]string{"a.tool.yaml": text})
		if found != nil {
			t.Fatal(cmd, found)
		}
		notes := strings.Join(set.List()[0].Notes(), "\n")
		if strings.Contains(notes, "a file of the caller's to run") != named {
			t.Errorf("%s: %q", cmd, notes)
		}
	}
}

// What is shipped, and what an author starts from, gives no caller's text to a program as an option.
func TestShippedPacksTakeNoOptions(t *testing.T) {
	dirs, err := filepath.Glob("../domains/*")
	if err != nil || len(dirs) < 2 {
		t.Fatal(dirs, err)
	}
	for _, dir := range dirs {
		d, err := openDir(dir, AllowMissingImages)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Packs().List() {
			if notes := p.Notes(); len(notes) > 0 {
				t.Error(notes)
			}
		}
	}
	for _, kind := range StarterKinds() {
		text, err := Starter("lab.count.lines", kind)
		if err != nil {
			t.Fatal(err)
		}
		set, _ := loadText(map[string]string{"x.tool.yaml": text})
		if notes := set.List()[0].Notes(); len(notes) > 0 {
			t.Error(notes)
		}
	}
}
