package toolpack

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/toolpack/jinja"
)

// How much is tried before a template counts as one that always fails.
const (
	maxSamples = 12 // sets of arguments
	maxFailing = 10 // templates of one pack
)

// samples are sets of arguments as callers could give them, each value one its own schema accepts where one was found: listed values, defaults,
// bounds and a few short texts; without the optional ones first, then with all.
func (c contract) samples() []map[string]any {
	values := map[string][]any{}
	for name, p := range c.props {
		values[name] = p.candidates(c, c.schema.Properties[name])
	}
	out := make([]map[string]any, 0, maxSamples)
	for i := range maxSamples {
		set := map[string]any{}
		for name, p := range c.props {
			if list := values[name]; len(list) > 0 && (p.required || p.hasDefault || i > 0) {
				set[name] = list[i%len(list)]
			}
		}
		out = append(out, set)
	}
	return out
}

// candidates are values of one property. Where the schema accepts none of those thought of, as with a pattern, they are given all the same: a
// template that fails with all of them would be refused wrongly only if it depended on that pattern.
func (p property) candidates(c contract, schema *jsonschema.Schema) []any {
	var list []any
	if p.hasDefault {
		list = append(list, p.def)
	}
	list = append(list, p.values...)
	list = append(list, p.edges...)
	for _, t := range p.kinds() {
		switch t {
		case "string":
			list = append(list, "a", "1", "1.5", strings.Repeat("a", 12))
		case "integer", "number":
			for _, n := range []string{"1", "0", "2", "10", "100", "-1"} {
				list = append(list, json.Number(n))
			}
		case "boolean":
			list = append(list, true, false)
		case "null":
			list = append(list, nil)
		case "array":
			list = append(list, []any{"a"}, []any{json.Number("1")}, []any{})
		case "object":
			list = append(list, map[string]any{})
		}
	}
	var fit []any
	for _, v := range list {
		if schema == nil || c.validate(schema, v) == nil {
			fit = append(fit, v)
		}
	}
	if len(fit) == 0 {
		return list
	}
	return fit
}

func (p property) kinds() []string {
	if len(p.types) == 0 {
		return []string{"string", "integer", "boolean", "array", "object"}
	}
	return p.types
}

// checkRendering refuses a template that fails whatever arguments are given.
func (d *draft) checkRendering(in contract) {
	if in.schema == nil || len(d.Problems()) > 0 {
		return // what is wrong already says more
	}
	p := &Pack{def: d.def, context: d.context, in: in}
	var scopes []map[string]any
	failing := 0
	try := func(field string, t *jinja.Template) {
		if t == nil || t.Literal() || failing == maxFailing {
			return
		}
		if scopes == nil {
			for _, values := range in.samples() {
				scopes = append(scopes, p.scope(values))
			}
		}
		var first error
		for _, vars := range scopes {
			_, err := t.Render(vars)
			if err == nil {
				return
			}
			if first == nil {
				first = err
			}
		}
		failing++
		d.Add("TEMPLATE", field, "a template that renders with some arguments", fmt.Sprintf("it fails with every one of %d sets of sample arguments: %s", len(scopes), clip(first.Error())), "")
	}
	for i, t := range d.cmd {
		try(fmt.Sprintf("execution.cmd[%d]", i), t)
	}
	for _, name := range sortedKeys(d.envs) {
		try("env.set."+name, d.envs[name])
	}
}
