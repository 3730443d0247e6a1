package toolpack

import (
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema comes from an author and its instance from a caller; either may be crafted to be expensive. Patterns are RE2,
// so matching is linear, and their size is bounded here. A schema that recurses several times at one place of the instance
// has a cost exponential in its depth, so evaluations are counted while they happen.
const (
	maxPattern   = 1000    // bytes of a regular expression
	maxProgram   = 5000    // instructions it compiles to: [a-z]{1000} has about a thousand
	maxEvaluated = 100_000 // subschemas applied in one validation; a large argument takes some hundreds
)

// errCostly reports a validation that was abandoned.
var errCostly = errors.New("the check takes too long because the schema refers to itself too often")

// checkPattern says what is wrong with a regular expression; "" when nothing.
func checkPattern(s string) string {
	if len(s) > maxPattern {
		return fmt.Sprintf("it is longer than %d bytes", maxPattern)
	}
	re, err := syntax.Parse(s, syntax.Perl)
	if err != nil {
		return clip(err.Error())
	}
	prog, err := syntax.Compile(re.Simplify())
	switch {
	case err != nil:
		return clip(err.Error())
	case len(prog.Inst) > maxProgram:
		return fmt.Sprintf("its repetitions expand to %d steps; the limit is %d", len(prog.Inst), maxProgram)
	}
	return ""
}

// meter counts the subschemas applied. It is the format of every subschema, because the format is the one thing that the
// library checks before it descends.
type meter struct{ left int }

const meterFormat = "x-applied"

// count is the format's check. Only a panic can stop a validation; [contract.validate] recovers from it.
func (m *meter) count(any) error {
	if m.left--; m.left < 0 {
		panic(errCostly)
	}
	return nil
}

// metered copies a schema with the meter in every subschema. An author's own formats are annotations (2020-12), so nothing is lost.
func metered(tree any) any {
	o, ok := tree.(map[string]any)
	if !ok {
		return tree
	}
	out := maps.Clone(o)
	out["format"] = meterFormat
	for _, k := range schemaWords {
		if c, ok := o[k]; ok {
			out[k] = metered(c)
		}
	}
	for _, k := range schemaLists {
		if list, ok := o[k].([]any); ok {
			copied := make([]any, len(list))
			for i, c := range list {
				copied[i] = metered(c)
			}
			out[k] = copied
		}
	}
	for _, k := range schemaMaps {
		if m, ok := o[k].(map[string]any); ok {
			copied := make(map[string]any, len(m))
			for name, c := range m {
				copied[name] = metered(c)
			}
			out[k] = copied
		}
	}
	return out
}

// validate checks an instance, within bounds. The error is the schema library's, or errCostly.
func (c *contract) validate(schema *jsonschema.Schema, instance any) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meter.left = maxEvaluated
	defer func() {
		if r := recover(); r != nil {
			if r != error(errCostly) {
				panic(r)
			}
			err = errCostly
		}
	}()
	return schema.Validate(instance)
}

// inPlace are the keywords that apply a subschema to the same place of the instance.
var (
	inPlaceWords = []string{"not", "if", "then", "else"}
	inPlaceLists = []string{"allOf", "anyOf", "oneOf"}
)

// circle finds a schema that applies itself to the same place, and so never ends. It returns the pointer of one schema in
// the cycle. The tree is a bundle, so all its references begin with #/.
func circle(tree any) (ptr string, found bool) {
	const open, done = 1, 2
	state := map[string]int{}
	var closes func(p string, depth int) bool
	closes = func(p string, depth int) bool {
		if state[p] == open || depth > 20_000 {
			ptr = p
			return true
		}
		if state[p] == done {
			return false
		}
		o, ok := tree.(map[string]any)
		if p != "" {
			var here any
			if here, ok = at(tree, p); ok {
				o, ok = here.(map[string]any)
			}
		}
		if !ok {
			return false
		}
		state[p] = open
		defer func() { state[p] = done }()
		if ref, ok := o["$ref"].(string); ok && closes(strings.TrimPrefix(ref, "#"), depth+1) {
			return true
		}
		for _, k := range inPlaceWords {
			if _, ok := o[k]; ok && closes(p+"/"+k, depth+1) {
				return true
			}
		}
		for _, k := range inPlaceLists {
			list, _ := o[k].([]any)
			for i := range list {
				if closes(fmt.Sprintf("%s/%s/%d", p, k, i), depth+1) {
					return true
				}
			}
		}
		more, _ := o["dependentSchemas"].(map[string]any)
		for _, name := range sortedKeys(more) {
			if closes(p+"/dependentSchemas/"+escape(name), depth+1) {
				return true
			}
		}
		return false
	}
	visit(tree, "", func(_ map[string]any, p string) {
		if !found {
			found = closes(p, 0)
		}
	})
	return ptr, found
}
