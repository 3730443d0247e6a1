package toolpack

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
)

// Files refer to files, each relative to its own folder; a client sees one self-contained schema that enforces the
// same. proves LOAD-10
func TestRefChain(t *testing.T) {
	files := map[string]string{
		"packs/a.tool.yaml":     with(t, "outputSchema: {type: object}", "outputSchema: {$ref: s/top.json}"),
		"packs/s/top.json":      `{"type":"object","properties":{"a":{"$ref":"../../shared/mid.json#/$defs/x"},"self":{"$ref":"#"},"data":{"const":{"$ref":"not a reference"}}},"$defs":{"shared_mid":true}}`,
		"shared/mid.json":       `{"$defs":{"x":{"type":"array","items":{"$ref":"deep/leaf.json"}}}}`,
		"shared/deep/leaf.json": `{"oneOf":[{"type":"integer"},{"$ref":"../mid.json#/$defs/x"}]}`,
	}
	set, found := loadText(files)
	if found != nil {
		t.Fatal(found)
	}
	p := set.List()[0]
	var got any
	must(t, json.Unmarshal(p.OutputSchema(), &got))
	var want any
	if err := json.Unmarshal([]byte(`{"type":"object","properties":{"a":{"$ref":"#/$defs/shared_mid_2/$defs/x"},"self":{"$ref":"#"},"data":{"const":{"$ref":"not a reference"}}},
		"$defs":{"shared_mid":true,"shared_mid_2":{"$defs":{"x":{"type":"array","items":{"$ref":"#/$defs/shared_deep_leaf"}}}},
		"shared_deep_leaf":{"oneOf":[{"type":"integer"},{"$ref":"#/$defs/shared_mid_2/$defs/x"}]}}}`), &want); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for text, ok := range map[string]bool{
		`{}`: true, `{"a":[1,[2,[]]]}`: true, `{"a":[1,"x"]}`: false, `{"a":1}`: false, `{"self":{"a":[1]}}`: true, `{"self":{"a":2}}`: false,
		`{"data":{"$ref":"not a reference"}}`: true,
	} {
		if err := p.Contract().CheckOutput(json.RawMessage(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A schema that is only a reference into a part of a file.
func TestRefToPart(t *testing.T) {
	set, found := loadText(map[string]string{
		"a.tool.yaml": with(t, "outputSchema: {type: object}", "outputSchema: {$ref: \"s/all.json#/$defs/count\"}"),
		"s/all.json":  `{"$defs":{"count":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}}},"n":{"type":"integer"}}}`,
	})
	if found != nil {
		t.Fatal(found)
	}
	p := set.List()[0]
	if p.Contract().CheckOutput(json.RawMessage(`{"n":1}`)) != nil || p.Contract().CheckOutput(json.RawMessage(`{"n":"x"}`)) == nil {
		t.Error("the part is not enforced")
	}
}

// A broken schema file is named with its own line. proves LOAD-10 LOAD-11
func TestBrokenSchemaFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"metaschema": {"{\n \"type\": \"object\",\n \"properties\": {\n  \"a\": {\"type\": \"strong\"}\n }\n}",
			"PACK-SCHEMA dom/s/o.json:4 properties.a.type"},
		"no JSON":       {"{\n \"type\": object\n}", "PACK-SCHEMA-JSON dom/s/o.json:2 type"},
		"duplicate key": {"{\n \"type\": \"object\",\n \"type\": \"object\"\n}", "PACK-SCHEMA-JSON dom/s/o.json:3 type"},
		"trailing data": {"{}\n{}", "PACK-SCHEMA-JSON dom/s/o.json:2 "},
		"bad ref":       {"{\n \"items\": {\n  \"$ref\": \"gone.json\"}}", "PACK-REF dom/s/o.json:3 items.$ref"},
		"remote ref":    {"{\n \"items\": {\n  \"$ref\": \"http://localhost:1/x.json\"}}", "PACK-REF dom/s/o.json:3 items.$ref"},
		"protocol ref":  {"{\n \"items\": {\n  \"$ref\": \"//h/x.json\"}}", "PACK-REF dom/s/o.json:3 items.$ref"},
		"escape":        {"{\n \"items\": {\n  \"$ref\": \"../../x.json\"}}", "PACK-REF dom/s/o.json:3 items.$ref"},
		"anchor":        {"{\n \"items\": {\n  \"$anchor\": \"a\"}}", "PACK-SCHEMA-ID dom/s/o.json:3 items.$anchor"},
		"depth": {strings.Repeat(`{"not":`, 80) + "true" + strings.Repeat("}", 80),
			"PACK-SCHEMA-JSON dom/s/o.json:1 " + strings.TrimPrefix(strings.Repeat(".not", 64), ".")},
	} {
		_, found := loadText(map[string]string{"a.tool.yaml": with(t, "outputSchema: {type: object}", "outputSchema: {$ref: s/o.json}"),
			"s/o.json": c.text})
		got := ""
		for _, p := range found {
			if got = fmt.Sprintf("%s %s:%d %s", p.Code, p.File, p.Line, p.Field); p.File == "dom/s/o.json" {
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s (%v)", name, got, c.want, found)
		}
	}
}

// An undeclared argument is refused, unless the schema allows more.
func TestClosedByDefault(t *testing.T) {
	for more, want := range map[string]bool{"": false, "  additionalProperties: {type: integer}\n": true,
		"  patternProperties: {\"^z\": true}\n": true} {
		set, found := loadText(map[string]string{"a.tool.yaml": with(t, "  type: object\n", "  type: object\n"+more)})
		if found != nil {
			t.Fatal(found)
		}
		_, err := set.List()[0].Canonicalize(json.RawMessage(`{"data":"`+artifact+`","zzz":1}`), testEnv())
		if (err == nil) != want {
			t.Errorf("%q: %v", more, err)
		}
		if err != nil && (fault.CodeOf(err) != "ARGS-UNKNOWN" || fault.ProblemsOf(err)[0].Field != "zzz") {
			t.Errorf("%q: %v", more, err)
		}
	}
}
