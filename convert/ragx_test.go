package convert

import (
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func testFiles(t testing.TB, dir string) (in []File) {
	t.Helper()
	fsys := os.DirFS(dir)
	err := fs.WalkDir(fsys, ".", func(rel string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, rel)
		in = append(in, File{rel, data})
		return err
	})
	if err != nil || len(in) == 0 {
		t.Fatal(in, err)
	}
	return in
}

// A folder as ragx has it becomes a domain that loads, with every change named. proves SRC-02
func TestFromRagx(t *testing.T) {
	in := testFiles(t, "testdata/ragx")
	r, err := Convert("ragx", in)
	if err != nil || len(r.Refused) > 0 {
		t.Fatal(r.Refused, err)
	}
	files := map[string]string{}
	for _, f := range r.Files {
		files[f.Path] = string(f.Data)
	}
	if len(files) != len(in)+3 {
		t.Error(len(files), "files")
	}
	for file, parts := range map[string][]string{
		"manifest.yaml": {"{tool_id: lab.tool.docs.fetch, kind: job_worker}", "images: {node: node, php: php, python: python}",
			`{tool_id: site.search, kind: service_worker, transport: {type: http, base_url: "http://127.0.0.1:9100"}}`},
		"toolpacks/core/docs.fetch.tool.yaml":  {"id: lab.tool.docs.fetch\n", "# After ragx's", "$ref: ../../schemas/tools/docs_fetch.input"},
		"toolpacks/core/values.sum.tool.yaml":  {"timeoutMs: 2000", "maxInputBytes: 2048", "inputSchema:\n", `version: "1.0.0rc1"`},
		"toolpacks/core/page.render.tool.yaml": {"script: render.js", "page.schema.json#/definitions/input", "args: [--strict]"},
		"toolpacks/core/lines.count.tool.yaml": {"type: object", "phpBinary: php8.4"},
		"toolpacks/core/site.search.tool.yaml": {"method: POST"},
		"schemas/tools/sum.output.schema.yaml": {"count: {type: number}"},
		"schemas/tools/document.schema.json":   {"sha256"},
		"images.lock.yaml":                     {"images: []"},
	} {
		for _, part := range parts {
			if !strings.Contains(files[file], part) {
				t.Errorf("%s has no %q:\n%s", file, part, files[file])
			}
		}
	}
	for file, gone := range map[string]string{"toolpacks/core/values.sum.tool.yaml": "owner",
		"toolpacks/core/lines.count.tool.yaml": "other.php",
		"schemas/tools/sum.output.schema.yaml": "*number"} {
		if strings.Contains(files[file], gone) {
			t.Errorf("%s still has %q", file, gone)
		}
	}
	for _, field := range []string{"id", "timeout_ms", "limits.max_input_bytes", "owner", "execution.timeoutMs", "execution.script",
		"inputSchema", "execution.method"} {
		if !slices.ContainsFunc(r.Changed, func(n Note) bool { return n.Field == field && n.File != "" && n.Text != "" }) {
			t.Error("no note about", field)
		}
	}
	if again, err := Convert("ragx", in); err != nil || !reflect.DeepEqual(r, again) {
		t.Error("the same files give another result", err)
	}
}

// What a program cannot decide is refused, all of it at once, each with what to do; then there are no files.
func TestRagxRefused(t *testing.T) {
	const pack = "id: a.b\nversion: 1.0.0\ndeterministic: true\ntimeoutMs: 1\nlimits: {maxInputBytes: 1, maxOutputBytes: 1}\n" +
		"inputSchema: {type: object}\noutputSchema: {}\nexecution: {kind: python, module: \"a:b\"}\n"
	if r, err := Convert("ragx", []File{{"x/a.tool.yaml", []byte(pack)}}); err != nil || len(r.Refused) > 0 || len(r.Files) != 4 ||
		r.Files[3].Path != "toolpacks/x/a.tool.yaml" {
		t.Fatal(r, err)
	}
	for edit, code := range map[[2]string]string{
		{"version: 1.0.0", "version: 1!1.0.0"}:                                        "PACK-VERSION",
		{"id: a.b", "id: InvalidTool"}:                                                "PACK-ID",
		{"{type: object}", "{$ref: ../out.json}"}:                                     "CONVERT-REF",
		{"{type: object}", "{$ref: s.json}"}:                                          "CONVERT-REF",
		{`module: "a:b"`, `module: "a"`}:                                              "PACK-EXECUTION",
		{`{kind: python, module: "a:b"}`, "{kind: perl}"}:                             "PACK-EXECUTION-KIND",
		{`{kind: python, module: "a:b"}`, "{kind: cli, cmd: [sh, -c, x]}"}:            "PACK-PROGRAM",
		{"outputSchema: {}", "outputSchema: {}\ncaps: {network: [https]}"}:            "PACK-CAPS",
		{"outputSchema: {}", "outputSchema: {}\ncaps: {filesystem: {read: [/data]}}"}: "PACK-CAPS",
		{"outputSchema: {}", "outputSchema: {type: unsupported}"}:                     "PACK-SCHEMA",
		{"deterministic: true", "deterministic: yes please"}:                          "PACK-TYPE",
		{"id: a.b", "- x"}:     "CONVERT-YAML",
		{"id: a.b", "id: [\n"}: "CONVERT-YAML",
		{"timeoutMs: 1\n", ""}: "PACK-REQUIRED",
	} {
		text := strings.Replace(pack, edit[0], edit[1], 1)
		r, err := Convert("ragx", []File{{"a.tool.yaml", []byte(text)}})
		if err != nil || len(r.Files) > 0 || len(r.Refused) == 0 {
			t.Errorf("%q: %v %v", edit[1], r, err)
			continue
		}
		if p := r.Refused[0]; p.Code != code || p.File != "a.tool.yaml" || p.Msg == "" || p.Rule == "" {
			t.Errorf("%q: refused with %s of %s, message %q, rule %q; want %s of a.tool.yaml", edit[1], p.Code, p.File,
				p.Msg, p.Rule, code)
		}
	}
	r, err := Convert("ragx", []File{{"a.tool.yaml", []byte(pack)}, {"b.tool.yaml", []byte(pack)}})
	if err != nil || len(r.Refused) != 1 || r.Refused[0].Code != "CONVERT-TWICE" {
		t.Error(r, err)
	}
}

// The result of any toolpack and schema loads, or there is no result.
func FuzzFromRagx(f *testing.F) {
	for _, in := range testFiles(f, "testdata/ragx") {
		f.Add(in.Data, []byte(`{"$ref":"#x"}`))
	}
	f.Add([]byte("a: &a [*a]"), []byte("{}"))
	f.Add([]byte("a: &a {b: 1}\nc: {<<: [*a, *a]}\n? [x]\n: y\n: z"), []byte("%"))
	f.Fuzz(func(t *testing.T, pack, schema []byte) {
		r, err := Convert("ragx", []File{{"toolpacks/a.tool.yaml", pack}, {"toolpacks/s.json", schema}, {"toolpacks/s.yaml", schema}})
		if err != nil || (len(r.Files) == 0) != (len(r.Refused) > 0) {
			t.Fatal("neither converted nor refused", r, err)
		}
	})
}
