package toolpack

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// contract is a schema ready for use.
type contract struct {
	raw    json.RawMessage // self-contained: no reference leaves it
	schema *jsonschema.Schema
	props  map[string]property // of the top level

	mu    *sync.Mutex // guards the meter: one validation at a time
	meter *meter

	needs  []string // members the top level requires
	closed bool     // the top level accepts only its properties

	badDefaults []string // properties whose default violates their own schema
}

// property is what the loader needs to know about one top-level property.
type property struct {
	types      []string // empty: the schema gives none
	listed     bool     // enum or const: the author listed every value
	hasDefault bool
	def        any
	required   bool
	values     []any // of enum or const
	edges      []any // minimum and maximum
}

// open are the keywords with which the top level of a schema decides for itself which other properties it accepts.
var open = []string{"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if", "not",
	"dependentSchemas"}

// compile makes a bundled schema usable. The top level of an input schema must be an object, and is closed unless it says
// otherwise: an undeclared argument is an error and is never ignored.
func compile(tree map[string]any, isInput bool) (contract, string) {
	if isInput {
		if tree["type"] != "object" {
			return contract{}, "the top level of an input schema must have type: object"
		}
		closed := true
		for _, k := range open {
			_, says := tree[k]
			closed = closed && !says
		}
		if closed {
			tree["additionalProperties"] = false
		}
	}
	raw, err := yamldoc.EncodeJSON(tree)
	if err == nil {
		raw, err = plan.Canonical(raw)
	}
	if err != nil {
		return contract{}, fault.First(err)
	}
	if at, ok := circle(tree); ok {
		return contract{}, "the schema refers to itself endlessly at #" + clip(at)
	}
	const url = "pack:///schema.json"
	out := contract{raw: raw, props: properties(tree), mu: &sync.Mutex{}, meter: &meter{}}
	for _, name := range list(tree["required"]) {
		out.needs = append(out.needs, fmt.Sprint(name))
	}
	_, patterns := tree["patternProperties"]
	out.closed = tree["additionalProperties"] == false && !patterns
	c := jsonschema.NewCompiler()
	c.RegisterFormat(&jsonschema.Format{Name: meterFormat, Validate: out.meter.count})
	c.AssertFormat()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(url, metered(tree)); err != nil {
		return contract{}, clip(err.Error())
	}
	if out.schema, err = c.Compile(url); err != nil {
		return contract{}, clip(strings.ReplaceAll(err.Error(), url, ""))
	}
	for _, name := range slices.Sorted(maps.Keys(out.props)) {
		if p := out.props[name]; p.hasDefault {
			if err := out.validate(out.schema.Properties[name], p.def); err != nil {
				out.badDefaults = append(out.badDefaults, name)
			}
		}
	}
	return out, ""
}

// noLoader refuses to load anything: a bundle contains everything it refers to.
type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not followed here")
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func properties(tree map[string]any) map[string]property {
	out := map[string]property{}
	props, _ := tree["properties"].(map[string]any)
	required := list(tree["required"])
	for name, v := range props {
		var p property
		for range 16 {
			o, ok := v.(map[string]any)
			if !ok {
				break
			}
			p.learn(o)
			ref, ok := o["$ref"].(string)
			if !ok {
				break
			}
			v, _ = at(tree, strings.TrimPrefix(ref, "#"))
		}
		for _, r := range required {
			p.required = p.required || r == name
		}
		out[name] = p
	}
	return out
}

func (p *property) learn(o map[string]any) {
	switch t := o["type"].(type) {
	case string:
		p.types = []string{t}
	case []any:
		p.types = nil
		for _, e := range t {
			if s, ok := e.(string); ok {
				p.types = append(p.types, s)
			}
		}
	}
	_, enum := o["enum"]
	_, constant := o["const"]
	p.listed = p.listed || enum || constant
	if list, ok := o["enum"].([]any); ok {
		p.values = append(p.values, list...)
	}
	for _, k := range []string{"const", "minimum", "maximum"} {
		if v, ok := o[k]; ok && k == "const" {
			p.values = append(p.values, v)
		} else if ok {
			p.edges = append(p.edges, v)
		}
	}
	if d, ok := o["default"]; ok && !p.hasDefault {
		p.hasDefault, p.def = true, d
	}
}
