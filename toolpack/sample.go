package toolpack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/plan"
	"slurmgate/toolpack/jinja"
)

// How much is tried before a template is taken to fail always.
const (
	maxSamples = 12 // sets of arguments
	maxFailing = 10 // templates of one pack
)

// samples returns sets of arguments to try: listed values, defaults, bounds and a few short strings. The first set
// leaves out the optional arguments, the others have all.
func (c contract) samples() []map[string]any {
	values := map[string][]any{}
	for name, p := range c.props {
		values[name] = p.candidates()
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

// candidates returns values to try for a property. Its schema may refuse some: then a template that fails with all
// others passes.
func (p property) candidates() []any {
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
	return list
}

func (p property) kinds() []string {
	if len(p.types) == 0 {
		return []string{"string", "integer", "boolean", "array", "object"}
	}
	return p.types
}

// checkRendering refuses a template that fails with any arguments.
func (d *draft) checkRendering() {
	if d.in.schema == nil || len(d.Problems()) > 0 {
		return // the problems found so far say more
	}
	var scopes []map[string]any
	failing := 0
	try := func(field string, t *jinja.Template, e element) {
		if t == nil || t.Literal() || failing == maxFailing {
			return
		}
		if scopes == nil {
			for _, values := range d.in.samples() {
				scopes = append(scopes, d.scope(values, d.def.samplePaths(values)))
			}
		}
		var first error
		for _, vars := range scopes {
			var err error
			if t == e.each {
				_, err = t.Items(vars)
			} else {
				if e.each != nil {
					vars = maps.Clone(vars)
					if vars[jinja.Item] = "a"; len(e.items(vars)) > 0 {
						vars[jinja.Item] = e.items(vars)[0]
					}
				}
				_, err = t.Render(vars)
			}
			if err == nil {
				return
			}
			if first == nil {
				first = err
			}
		}
		failing++
		d.Add("TEMPLATE", field, "a template that renders with some arguments",
			fmt.Sprintf("the template fails with each of %d sets of sample arguments: %s", len(scopes), clip(first.Error())), "")
	}
	for _, p := range d.programs {
		for _, e := range p.words {
			try(e.field+".when", e.when, element{})
			try(e.field+".each", e.each, e)
			for i, t := range e.args {
				try(e.at(i), t, e)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.envs)) {
		try("env.set."+name, d.envs[name], element{})
	}
}

// items returns those of a fragment; none where they cannot be found.
func (e element) items(vars map[string]any) []any {
	items, _ := e.each.Items(vars)
	return items
}

// samplePaths returns the paths of inputs of a sample call.
func (f definition) samplePaths(values map[string]any) map[string]any {
	out := map[string]any{}
	for i, in := range f.sampled() {
		at := plan.Workdir + "/" + in.DestRelpath
		_, given := values[f.Inputs[i].Param]
		switch {
		case f.Inputs[i].Optional && !given:
		case f.Inputs[i].List != nil:
			out[in.Role] = []any{at}
		default:
			out[in.Role] = at
		}
	}
	return out
}
