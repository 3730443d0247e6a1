package gate

import (
	"encoding/json"
	"testing"

	"slurmgate/plan"
)

// fitSchema has every keyword that a quick check knows.
const fitSchema = `{"type":"object","required":["a"],"additionalProperties":false,"$defs":{"id":{"type":"string","minLength":2,"maxLength":4,"pattern":"^[a-z]+$"}},
 "properties":{"a":{"$ref":"#/$defs/id"},"n":{"type":"integer","minimum":-3,"maximum":5},"f":{"type":["number","null"],"minimum":0},
 "l":{"type":"array","minItems":1,"maxItems":2,"items":{"enum":["x",null,true]}},"c":{"const":"k"},"at":{"type":"string","format":"date-time"},"no":false,
 "any":{"anyOf":[{"type":"string"},{"allOf":[{"type":"number"},{"maximum":2}]}]},
 "by":{"type":"object","properties":{"own":{}},"additionalProperties":{"type":"string"}}},
 "if":{"properties":{"c":{"const":"k"}},"required":["c"]},"then":{"required":["n"]},"else":{"required":["f"]}}`

// The quick check of a schema and the library's agree on every document.
func FuzzFits(f *testing.F) {
	for _, doc := range []string{`{"a":"ab","f":null}`, `{"a":"ab","c":"k","n":5}`, `{"a":"ab","c":"k","n":5.5}`, `{"a":"ab","c":"k","n":6}`, `{"a":"ab","c":"k"}`,
		`{"a":"é","f":1}`, `{"a":"abcde","f":1}`, `{"a":"AB","f":1}`, `{"a":1,"f":1}`, `{"a":"ab","f":-1}`, `{"a":"ab","f":1,"l":[]}`,
		`{"a":"ab","f":1,"l":["x",true]}`, `{"a":"ab","f":1,"l":["x",null,true]}`, `{"a":"ab","f":1,"l":["y"]}`, `{"a":"ab","f":1,"l":[{}]}`,
		`{"a":"ab","f":1,"at":"2026-11-22T12:00:00Z"}`, `{"a":"ab","f":1,"at":"noon"}`, `{"a":"ab","f":1,"no":1}`, `{"a":"ab","f":1,"other":1}`,
		`{"a":"ab","f":1,"any":"x"}`, `{"a":"ab","f":1,"any":2}`, `{"a":"ab","f":1,"any":3}`, `{"a":"ab","f":1,"by":{"x":"y","own":1}}`, `{"a":"ab","f":1,"by":{"x":1}}`, `{"a":"ab","f":1,"c":["k"]}`, `{"f":1}`, `[]`, `null`, `1e300`} {
		f.Add(doc)
	}
	own, err := compileAll([]byte(fitSchema), "")
	if err != nil {
		f.Fatal(err)
	}
	envelope, err := compileEnvelopes()
	if err != nil {
		f.Fatal(err)
	}
	all := append(own, envelope.request, envelope.response, envelope.event)
	for i, s := range all {
		if !s.quick {
			f.Fatalf("schema %d is not quick", i)
		}
	}
	f.Fuzz(func(t *testing.T, raw string) {
		doc, err := plan.Read([]byte(raw))
		if err != nil {
			return
		}
		for i, s := range all {
			if err := s.Validate(doc.Value); s.obeyed(doc.Value) != (err == nil) {
				t.Errorf("schema %d, %s: the quick check says %t, the library %v", i, raw, s.obeyed(doc.Value), err)
			}
		}
	})
}

// Schemas with other keywords are left to the library.
func TestOnlyKnownKeywordsAreQuick(t *testing.T) {
	for _, raw := range []string{`{"$ref":"#"}`, `{"properties":{"a":{"$ref":"#"}}}`, `{"items":{"uniqueItems":true}}`, `{"anyOf":[{"not":{}}]}`, `{"oneOf":[{}]}`,
		`{"enum":["a",1]}`, `{"const":{}}`, `{"minimum":0.1}`, `{"maximum":1e30}`, `{"additionalProperties":{"not":{}}}`, `{"additionalProperties":{"$ref":"#"}}`,
		`{"patternProperties":{"a":{}}}`, `{"$schema":"http://json-schema.org/draft-07/schema#","type":"string"}`, `{"unevaluatedProperties":false}`,
		`{"multipleOf":2}`, `{"prefixItems":[{}]}`, `{"minProperties":1}`, `{"contains":{}}`, `{"dependentRequired":{"a":["b"]}}`} {
		s, err := compile("schema", json.RawMessage(raw))
		if err != nil || s.quick {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
