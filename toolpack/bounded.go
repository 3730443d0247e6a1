package toolpack

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema comes from an author and its instance from a caller; either may be crafted to be expensive. Patterns are
// RE2, so matching is linear, and their size is bounded here. A schema that recurses several times at one place of
// the instance has a cost exponential in its depth, so evaluations are counted while they happen.
const (
	maxPattern   = 1000    // bytes of a regular expression
	maxProgram   = 5000    // instructions it compiles to: [a-z]{1000} has about a thousand
	maxEvaluated = 100_000 // subschemas applied in one validation; a large argument takes some hundreds
)

// errCostly reports a validation that was abandoned.
var errCostly = errors.New("the check takes too long because the schema refers to itself too often")

// checkPattern returns what is wrong with a regular expression; "" for a valid one.
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

// count implements the format's check. Only a panic can stop a validation; [contract.validate] recovers from it.
func (m *meter) count(any) error {
	if m.left--; m.left < 0 {
		panic(errCostly)
	}
	return nil
}

// metered copies a schema with the meter in every subschema. An author's own formats are annotations (2020-12), so nothing is lost.
func metered(tree any) any {
	out := copied(tree)
	visit(out, "", func(o map[string]any, _ string) { o["format"] = meterFormat })
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

// inPlace lists the schemas that s applies to the same place of the instance.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	one := []*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}
	return slices.Concat(one, s.AllOf, s.AnyOf, s.OneOf, slices.Collect(maps.Values(s.DependentSchemas)))
}

// circle finds a schema that applies itself to the same place, and so never ends. It returns where one schema of the
// cycle is in the file, "" without a cycle.
func circle(c *jsonschema.Compiler, file string, tree any) (at string) {
	const open, done = 1, 2
	state := map[*jsonschema.Schema]int{}
	var closes func(s *jsonschema.Schema) bool
	closes = func(s *jsonschema.Schema) bool {
		if s == nil || state[s] == done {
			return false
		}
		if state[s] == open {
			at, _ = url.PathUnescape(strings.TrimPrefix(s.Location, file))
			return true
		}
		state[s] = open
		defer func() { state[s] = done }()
		return slices.ContainsFunc(inPlace(s), closes)
	}
	visit(tree, "", func(_ map[string]any, ptr string) {
		if s, err := c.Compile(file + "#" + strings.ReplaceAll(ptr, "%", "%25")); err == nil && at == "" {
			closes(s)
		}
	})
	return at
}
