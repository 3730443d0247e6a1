package toolpack

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
	"slurmgate/policy/yamldoc"
)

// A starter loads as it is, alone and in a domain that lists it.
func TestStarter(t *testing.T) {
	for _, kind := range StarterKinds() {
		text, err := Starter("lab.count.lines", kind)
		must(t, err)
		if _, found := loadText(map[string]string{"x.tool.yaml": text}); found != nil {
			t.Errorf("%s: %v", kind, found)
		}
		if err := formatCheck(t, text); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		dir := domainDir(t, map[string]string{PacksDir + "/b.tool.yaml": text,
			ManifestFile: manifestText + "  - {tool_id: lab.count.lines, kind: job_worker}\n"})
		if _, err := openDir(dir, AllowMissingImages); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for id, kind := range map[string]string{"Lab.count": "cli", "lab": "cli", "../x.y": "cli", "lab.count": "http", "lab.count2": ""} {
		if text, err := Starter(id, kind); text != "" || !fault.Is(err, fault.Validation) {
			t.Errorf("%s %s: %v", id, kind, err)
		}
	}
}

func TestRunner(t *testing.T) {
	for _, kind := range []string{"python", "node"} {
		text, path, err := Runner(kind)
		if err != nil || len(text) < 100 || !strings.HasPrefix(path, "/opt/slurmgate/run.") {
			t.Error(kind, path, err)
		}
	}
	if _, _, err := Runner("php"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// formatCheck validates a pack's text against the shipped schema, as an editor does.
func formatCheck(t testing.TB, text string) error {
	t.Helper()
	return formatSchemaOf(t)(text)
}

// formatSchemaOf compiles it once.
func formatSchemaOf(t testing.TB) func(text string) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(FormatSchema()))
	must(t, err)
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	must(t, c.AddResource("pack:///format", doc))
	schema, err := c.Compile("pack:///format")
	must(t, err)
	return func(text string) error {
		r := &yamldoc.Reader{File: "x", Prefix: "X"}
		raw, err := yamldoc.Canonical(r.Parse([]byte(text)).JSON())
		must(t, err)
		tree, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		must(t, err)
		return schema.Validate(tree)
	}
}

// beyondSchema lists the rules an editor cannot check: they need the YAML's own text, another file, the domain, or a
// comparison of two fields. A code alone means every case of that code.
var beyondSchema = []string{"PACK-DUPLICATE-KEY", "PACK-ANCHOR", "PACK-MERGE-KEY", "PACK-DOCUMENTS", "PACK-DEPTH", "PACK-TIMEOUT",
	"PACK-TOOL-NAME", "PACK-DEST-DUPLICATE",
	"PACK-ROLE-DUPLICATE", "PACK-INPUT-PARAM", "PACK-INPUT-DEST", "PACK-STDOUT", "PACK-PROGRAM", "PACK-TEMPLATE", "PACK-CAPS", "PACK-SCHEMA",
	"PACK-SCHEMA-DRAFT", "PACK-SCHEMA-ID", "PACK-REF",
	"PACK-TYPE implicit bool", "PACK-TYPE output type", "PACK-TYPE input type", "PACK-TYPE template context",
	"PACK-TYPE template context date",
	"PACK-ENV env of the loader", "PACK-ENV variable set and passed through", "PACK-SCHEMA-KEYWORD",
	"PACK-ROLE role of a docker output as a path",
	"PACK-CHECK", "PACK-CHECK-EXPR", "PACK-RESOURCES", "PACK-DOWNLOAD-NAME",
	"PACK-STDERR pattern that is none", "PACK-STDERR pattern of every line", "PACK-STDERR stderr pattern with a line break",
	"PACK-LINES", "PACK-REQUIRED lines of no file of a directory", "PACK-TEMPLATE lines of a template", "PACK-TEXT lines without message",
	"PACK-EXECUTION result is no output",
	"PACK-EXECUTION no output for the result", "PACK-REQUIRED no abi"}

// The shipped schema agrees with the loader: it accepts what loads, and refuses what the loader refuses, except for
// the rules only the loader has. proves LOAD-11
func TestFormatSchema(t *testing.T) {
	check := formatSchemaOf(t)
	for name, text := range goodPacks(t) {
		if err := check(text); err != nil {
			t.Errorf("%s loads, and the schema refuses it: %v", name, err)
		}
	}
	files, err := filepath.Glob("../domains/*/toolpacks/*.tool.yaml")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		if err := check(string(text)); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	caught := 0
	for _, c := range ruleCases() {
		text := with(t, c.edit...)
		set, found := loadText(map[string]string{"a.tool.yaml": text})
		if set != nil || len(found) == 0 {
			t.Fatal(c.name)
		}
		if r := (&yamldoc.Reader{}); !r.Parse([]byte(text)).Exists() {
			continue
		}
		switch err := check(text); {
		case err != nil:
			caught++
		case !slices.Contains(beyondSchema, c.code) && !slices.Contains(beyondSchema, c.code+" "+c.name):
			t.Errorf("%s: the loader reports %v, the schema nothing", c.name, found)
		}
	}
	t.Logf("the schema alone catches %d of %d broken packs", caught, len(ruleCases()))
	if caught < 75 {
		t.Errorf("only %d", caught)
	}
}
