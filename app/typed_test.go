package app

import (
	"encoding/json"
	"strings"
	"testing"

	"slurmgate/fault"
)

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
