package yamldoc

import (
	"encoding/json"
	"regexp"

	"slurmgate/plan"

	"go.yaml.in/yaml/v3"
)

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// JSON reads any value as JSON: map[string]any, []any, string, json.Number, bool, nil. A value that JSON cannot express is
// recorded as a problem.
func (v Value) JSON() any {
	if !v.usable() {
		return nil
	}
	switch v.n.Kind {
	case yaml.MappingNode:
		out := map[string]any{}
		for _, e := range v.Entries() {
			out[e.Key] = e.JSON()
		}
		return out
	case yaml.SequenceNode:
		out := []any{}
		for _, e := range v.List() {
			out = append(out, e.JSON())
		}
		return out
	}
	s := v.n.Value
	switch v.n.ShortTag() {
	case "!!str":
		return s
	case "!!bool":
		return v.Bool()
	case "!!null":
		if s == "null" {
			return nil
		}
	case "!!int", "!!float":
		if jsonNumber.MatchString(s) {
			return json.Number(s)
		}
	}
	v.wrongType("a value as JSON writes it", "put it in quotes, or write a plain decimal, true, false or null")
	return nil
}

// Canonical returns the canonical JSON of a result of [Value.JSON].
func Canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return plan.Canonical(raw)
}

// Rewrite replaces every string value (not the keys) by the result of f. If f fails, the problem is recorded with the given
// code and rule, and the value is left unchanged.
func (v Value) Rewrite(code, rule string, f func(string) (string, error)) {
	if !v.usable() {
		return
	}
	switch v.n.Kind {
	case yaml.MappingNode:
		for _, e := range v.Entries() {
			e.Rewrite(code, rule, f)
		}
	case yaml.SequenceNode:
		for _, e := range v.List() {
			e.Rewrite(code, rule, f)
		}
	case yaml.ScalarNode:
		if v.n.ShortTag() != "!!str" {
			return
		}
		s, err := f(v.n.Value)
		if err != nil {
			v.Fail(code, rule, err.Error(), "")
			v.r.silent[v.n] = true
			return
		}
		// It remains a string even if it now looks like something else.
		v.n.Value, v.n.Tag, v.n.Style = s, "!!str", yaml.DoubleQuotedStyle
	}
}
