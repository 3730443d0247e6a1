package toolpack

import (
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/fault"
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

// property is the part of a top-level property that the loader needs.
type property struct {
	types      []string // empty: none in the schema
	listed     bool     // enum or const: the author listed every value
	hasDefault bool
	def        any
	required   bool
	values     []any // of enum or const
	edges      []any // minimum and maximum
	patterns   []string
	items      *property // of an array, where the schema describes them all alike; nil: any
}

// open are the keywords with which the top level of a schema decides for itself which other properties it accepts.
var open = []string{"additionalProperties", "unevaluatedProperties", "patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if", "not",
	"dependentSchemas"}

// compile compiles a bundled schema. The top level of an input schema must be an object, and is closed unless the
// schema sets otherwise: an undeclared argument is an error and is never ignored.
func compile(tree map[string]any, isInput bool) (contract, string) {
	if isInput {
		if tree["type"] != "object" {
			return contract{}, "the top level of an input schema must have type: object; add it"
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
	raw, err := yamldoc.Canonical(tree)
	if err != nil {
		return contract{}, fault.First(err)
	}
	const file = "pack:///schema.json"
	out := contract{raw: raw, mu: &sync.Mutex{}, meter: &meter{}}
	c := jsonschema.NewCompiler()
	c.RegisterFormat(&jsonschema.Format{Name: meterFormat, Validate: out.meter.count})
	c.AssertFormat()
	c.UseLoader(noLoader{})
	c.DefaultDraft(jsonschema.Draft2020)
	if err := c.AddResource(file, metered(tree)); err != nil {
		return contract{}, clip(err.Error())
	}
	if out.schema, err = c.Compile(file); err != nil {
		return contract{}, clip(strings.ReplaceAll(err.Error(), file, ""))
	}
	if at := circle(c, file, tree); at != "" {
		return contract{}, "the schema refers to itself endlessly at " + clip(at)
	}
	out.props, out.needs = properties(out.schema), out.schema.Required
	out.closed = out.schema.AdditionalProperties == false && out.schema.PatternProperties == nil
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

func properties(s *jsonschema.Schema) map[string]property {
	out := map[string]property{}
	for name, of := range s.Properties {
		p := property{required: slices.Contains(s.Required, name)}
		p.follow(of)
		out[name] = p
	}
	return out
}

// follow learns from a schema and from those it refers to.
func (p *property) follow(of *jsonschema.Schema) {
	for range 16 {
		if of == nil {
			break
		}
		p.learn(of)
		if items := of.Items2020; items != nil && len(of.PrefixItems) == 0 && p.items == nil {
			p.items = &property{}
			p.items.learn(items)
			if items.Ref != nil {
				p.items.learn(items.Ref)
			}
		}
		of = of.Ref
	}
}

func (p *property) learn(s *jsonschema.Schema) {
	if s.Types != nil {
		p.types = s.Types.ToStrings()
	}
	if s.Enum != nil {
		p.listed, p.values = true, append(p.values, s.Enum.Values...)
	}
	if s.Const != nil {
		p.listed, p.values = true, append(p.values, *s.Const)
	}
	if s.Pattern != nil {
		p.patterns = append(p.patterns, s.Pattern.String())
	}
	for _, edge := range []*big.Rat{s.Minimum, s.Maximum} {
		if edge != nil {
			n, _ := edge.Float64()
			p.edges = append(p.edges, json.Number(strconv.FormatFloat(n, 'g', -1, 64)))
		}
	}
	if s.Default != nil && !p.hasDefault {
		p.hasDefault, p.def = true, *s.Default
	}
}
