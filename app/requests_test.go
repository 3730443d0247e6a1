package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/convert"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// Every tool of a pack accepts the resources of its job besides its own arguments, and the pack does not see them;
// absent ones change nothing.
func TestCallAsks(t *testing.T) {
	g := tableGateway(t)
	p, err := g.Domain.Packs().Get("samtools.flagstat")
	must(t, err)
	if _, offered := g.inputOf(p); !slices.Equal(offered, []string{"resources"}) { // one cluster: there is no choice of sites
		t.Error(offered)
	}
	for given, want := range map[string]plan.MoreResources{
		`{"bam":"x"}`:                {},
		`{"bam":"x","resources":{}}`: {},
		`{"bam":"x","resources":{"cpus":4,"mem_mb":8192,"time_limit_seconds":14400}}`: {CPUs: new(4), MemMB: new(8192), TimeLimitSeconds: new(14400)},
	} {
		rest, asks, err := g.takeAsks(p, json.RawMessage(given))
		if err != nil || string(rest) != `{"bam":"x"}` {
			t.Errorf("%s: %s %v", given, rest, err)
		}
		if got, wanted := asks.Resources.On(plan.Resources{}), want.On(plan.Resources{}); got != wanted || asks.Resources.None() != want.None() {
			t.Errorf("the resources of %s are %+v, want %+v", given, got, wanted)
		}
	}
	if rest, _, err := g.takeAsks(p, json.RawMessage(`[]`)); string(rest) != `[]` || err != nil {
		t.Error(string(rest), err)
	}
}

// The name before a digest is the lock's name of exactly that digest.
func TestRawPlanNamesItsImage(t *testing.T) {
	g := tableGateway(t)
	b := g.fill(t, "own")
	doc := schemaDoc{}.value("job_spec", b).(map[string]any)
	doc["execution"].(map[string]any)["container"].(map[string]any)["image"] = "samtools@sha256:" + strings.Repeat("0", 64)
	req := request(t, g.toolOf(t, "slurm.submit"), map[string]any{"job_spec": doc}, false)
	res := g.Gate.Call(t.Context(), gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "me",
		Rights: gate.RightsOf([]string{gate.All}, []string{gate.All})}}, req)
	if res.OK || !strings.Contains(fmt.Sprint(res.Error), `images.lock.yaml has no image "samtools"`) {
		t.Errorf("slurm.submit with another image's name ended with %+v", res.Error)
	}
	spec := []byte(strings.Replace(string(req.Args[len(`{"job_spec":`):len(req.Args)-1]), `"outputs":[]`,
		`"outputs":[{"role":"r","src_relpath":"out/x","type":"TEXT","label":"x"}]`, 1))
	for msg, want := range map[string]string{"": "", `"samtools" is another image`: "PLAN-IMAGE"} {
		_, err := plan.DecodeSpec(spec, plan.Rules{Image: func(string, string) string { return msg }})
		if err == nil && want != "" || err != nil && (want == "" || fault.CodeOf(err) != want) {
			t.Errorf("%q: %v", msg, err)
		}
	}
}

// What a dry run supposes is visible to its principal only, for a limited time, and bounded.
func TestSupposed(t *testing.T) {
	var s supposed
	now := time.Now()
	s.add("a", run.Artifact{ID: "art_1", ProjectID: "p"}, now)
	if x, ok := s.find("a", "art_1", now.Add(supposeTime)); !ok || x.ProjectID != "p" {
		t.Error(x, ok)
	}
	if _, ok := s.find("b", "art_1", now); ok {
		t.Error("another principal sees it")
	}
	if _, ok := s.find("a", "art_1", now.Add(supposeTime+1)); ok {
		t.Error("it is kept for ever")
	}
	for i := range supposeMost + 10 {
		s.add("b", run.Artifact{ID: fmt.Sprint(i)}, now.Add(time.Duration(i)))
	}
	if _, ok := s.find("b", fmt.Sprint(supposeMost+9), now); !ok || len(s.known) > supposeMost {
		t.Error(len(s.known), ok)
	}
	s.add("c", run.Artifact{ID: "x"}, now.Add(2*supposeTime))
	if len(s.known) != 1 {
		t.Error(len(s.known))
	}
}

// A parameter has the type of the tool's schema, and no number changes on its way.
func TestTypedParams(t *testing.T) {
	schema := []byte(`{"type":"object","properties":{
		"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},"s":{"type":"string"},"a":{"type":"array"},"o":{"type":"object"},"z":{"type":"null"},
		"ns":{"type":["number","string"]},"zs":{"type":["string","null"]},"e":{"enum":["x","5"]},"f":{"enum":[1,2,null]},"any":{},"r":{"$ref":"#/$defs/list"},
		"u":{"anyOf":[{"type":"integer"},{"type":"boolean"}]},"self":{"$ref":"#/properties/self"}},
		"$defs":{"list":{"type":"array","items":{"type":"integer"}}}}`)
	for _, c := range []struct{ name, value, want string }{
		{"i", "5", `5`}, {"i", "-7", `-7`}, {"i", "9007199254740991", `9007199254740991`}, {"i", "1e3", `1000`}, {"n", "0.5", `0.5`},
		{"n", "1e-300", `1e-300`}, {"n", "0e-400", `0`},
		{"b", "true", `true`}, {"s", "5", `"5"`}, {"s", "null", `"null"`}, {"s", `"q"`, `"\"q\""`}, {"s", "", `""`},
		{"a", `[1,"x",null]`, `[1,"x",null]`}, {"o", `{"k":[1]}`, `{"k":[1]}`},
		{"z", "null", `null`}, {"ns", "5", `5`}, {"ns", "five", `"five"`}, {"ns", `"5"`, `"5"`}, {"ns", "NaN", `"NaN"`},
		{"ns", "true", `"true"`}, {"zs", "null", `null`}, {"zs", `"null"`, `"null"`},
		{"zs", "5 apples", `"5 apples"`}, {"e", "5", `"5"`}, {"f", "2", `2`}, {"f", "null", `null`}, {"any", "[1]", `[1]`},
		{"any", "word", `"word"`}, {"r", "[1]", `[1]`}, {"u", "false", `false`},
		{"self", "1", `1`}, {"unknown", "1", `"1"`},
	} {
		v, err := typed(schema, c.name, c.value)
		got, _ := json.Marshal(v)
		if err != nil || string(got) != c.want {
			t.Errorf("%s=%s: %s, want %s; %v", c.name, c.value, got, c.want, err)
		}
	}
	for _, c := range []struct{ name, value, want string }{
		{"i", "NaN", "an integer"}, {"i", "1.5", "an integer"}, {"i", "", "an integer"}, {"i", "true", "an integer"}, {"i", "9007199254740992",
			"9007199254740992 is too large"},
		{"i", "9007199254740993", "too large"}, {"n", "NaN", "a number"}, {"n", "Inf", "a number"}, {"n", "-Infinity", "a number"},
		{"n", "0x1p-2", "a number"}, {"n", "1_000", "a number"},
		{"n", "1e400", "too large"}, {"n", "1e-400", "would become 0"}, {"n", "-1e-400", "would become 0"}, {"b", "yes", "true or false"},
		{"a", "1,2", "a JSON array"}, {"a", "[1e400]", "too large"},
		{"a", "{}", "a JSON array"}, {"o", `{"a":1,"A":2}`, "differ only in case"}, {"o", "[]", "a JSON object"}, {"z", "", "null"},
		{"ns", "1e400", "too large"}, {"f", "x", "null"}, {"a", "[\"\xff\"]", ""},
	} {
		v, err := typed(schema, c.name, c.value)
		if !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--param "+c.name) {
			t.Errorf("%s=%s: %v %v", c.name, c.value, v, err)
		}
	}
}

func FuzzTyped(f *testing.F) {
	f.Add(`{"properties":{"x":{"type":"number"}}}`, "1e-400")
	f.Add(`{"properties":{"x":{"anyOf":[{"$ref":"#/properties/x"},{"enum":[null]}]}}}`, "null")
	f.Fuzz(func(t *testing.T, schema, value string) {
		if v, err := typed([]byte(schema), "x", value); err == nil {
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("%q %q: %v", schema, value, err)
			}
		}
	})
}

// If files with other content exist nothing is written; writing the same files again is no conflict.
func TestWriteConverted(t *testing.T) {
	to := filepath.Join(t.TempDir(), "new", "domain")
	files := []convert.File{{Path: "manifest.yaml", Data: []byte("a")}, {Path: "toolpacks/x.tool.yaml", Data: []byte("b")}}
	for range 2 {
		must(t, writeConverted(to, files, false))
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
	must(t, writeConverted(to, files, true))
	if now, err := os.ReadFile(filepath.Join(to, "toolpacks/x.tool.yaml")); string(now) != "other" {
		t.Error(string(now), err)
	}
	if err := writeConverted(to, []convert.File{{Path: "../outside", Data: []byte("x")}}, true); err == nil {
		t.Error("a file was written outside the folder")
	}
}

// Of a folder the files that define tools are read, none in a hidden folder, none behind a link.
func TestGivenFiles(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"a/x.tool.yaml": "x", "a/s.json": "{}", "a/code.py": "p", ".git/y.yaml": "y", "big.json": ""} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
	}
	must(t, os.Symlink("/etc/hostname", filepath.Join(dir, "link.yaml")))
	in, err := given([]string{filepath.Join(dir, "a"), filepath.Join(dir, "a/x.tool.yaml")})
	if err != nil || len(in) != 3 || in[0].Path != "s.json" || in[1].Path != "x.tool.yaml" || string(in[2].Data) != "x" {
		t.Error(in, err)
	}
	if in, err := given([]string{dir}); err != nil || len(in) != 3 {
		t.Error(in, err)
	}
	must(t, os.Truncate(filepath.Join(dir, "big.json"), maxConvertedBytes+1))
	for _, bad := range []string{dir, filepath.Join(dir, "gone.yaml")} {
		if in, err := given([]string{bad}); err == nil {
			t.Error(bad, in)
		}
	}
}

// typed reads a parameter as the tool's schema declares it: a string literally, anything else as JSON. Where the
// schema allows strings among other types, JSON of another allowed type, or a quoted string, is read as JSON; any
// other text is the string.
func typed(schema []byte, name, value string) (any, error) {
	var types []string
	s, found := SchemaOfArgs(schema).Property(name)
	if found {
		types = s.Types()
	}
	return TypedAs(types, "--param "+name, value)
}
