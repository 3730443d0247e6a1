package app

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// jsonTypes lists the types a schema can name, with what a person types for each.
var jsonTypes = []struct{ name, rule string }{
	{"integer", "an integer within ±(2^53-1)"}, {"number", "a number as in JSON, within ±(2^53-1)"}, {"boolean", "true or false"},
	{"string", "text"},
	{"array", "a JSON array, for example [1,2]"}, {"object", `a JSON object, for example {"a":1}`}, {"null", "null"},
}

// TypedAs reads a value of one of some types; without types it is text.
func TypedAs(types []string, field, value string) (any, error) {
	text := slices.Contains(types, "string")
	if len(types) == 0 || text && len(types) == 1 {
		return value, nil
	}
	raw, err := plan.Canonical([]byte(value))
	found := fault.ProblemsOf(err)
	notJSON := err != nil && (len(found) == 0 || found[0].Code == "JSON-SYNTAX" || found[0].Code == "JSON-TRAILING")
	switch {
	case err == nil && isOneOf(raw, types):
		return json.RawMessage(raw), nil
	case text && (err == nil || notJSON):
		return value, nil
	}
	msg := strconv.Quote(value) + " is of the wrong type"
	if err != nil && !notJSON {
		msg = found[0].Msg
	}
	var rules []string
	for _, t := range jsonTypes {
		if slices.Contains(types, t.name) {
			rules = append(rules, t.rule)
		}
	}
	return nil, fault.Invalid("", fault.Problem{Code: "RUN-PARAM", Field: field, Rule: strings.Join(rules, ", or "), Msg: msg})
}

// isOneOf reports whether a JSON value has one of the types.
func isOneOf(raw []byte, types []string) bool {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	if n, ok := v.(float64); ok && n == math.Trunc(n) && slices.Contains(types, "integer") {
		return true
	}
	return slices.Contains(types, typeOf(v))
}

func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// typesOf returns the types that a schema allows, all of them if it does not restrict them. It reads at most *most
// schemas, because references may form a cycle.
func typesOf(root map[string]any, schema any, most *int) (types []string) {
	for _, t := range jsonTypes {
		types = append(types, t.name)
	}
	s, ok := schema.(map[string]any)
	if *most--; !ok || *most < 0 {
		return types
	}
	only := func(allowed []string) {
		types = slices.DeleteFunc(types, func(t string) bool { return !slices.Contains(allowed, t) })
	}
	for word, v := range s {
		list, isList := v.([]any)
		if !isList || word == "const" {
			list = []any{v}
		}
		var allowed []string
		for _, one := range list {
			switch word {
			case "type":
				name, _ := one.(string)
				allowed = append(allowed, name)
			case "const", "enum":
				allowed = append(allowed, typeOf(one))
				if typeOf(one) == "number" { // an integer is a number too
					allowed = append(allowed, "integer")
				}
			case "anyOf", "oneOf":
				allowed = append(allowed, typesOf(root, one, most)...)
			case "allOf":
				only(typesOf(root, one, most))
			case "$ref":
				ref, _ := one.(string)
				allowed = append(allowed, typesOf(root, referred(root, ref), most)...)
			}
		}
		if allowed != nil {
			only(allowed)
		}
	}
	return types
}

// referred returns the schema that a reference within the document names; nil allows everything.
func referred(root map[string]any, ref string) any {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	var at any = root
	for part := range strings.SplitSeq(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		m, _ := at.(map[string]any)
		at = m[part]
	}
	return at
}
