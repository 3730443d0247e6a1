package toolpack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"slurmgate/plan"
)

// keywords are the keywords of JSON Schema 2020-12; $id and its like are refused elsewhere, with their own reason.
var keywords = strings.Fields(`
	$schema $ref $defs $comment $id $anchor $dynamicAnchor $dynamicRef $vocabulary definitions
	allOf anyOf oneOf not if then else dependentSchemas properties patternProperties additionalProperties propertyNames unevaluatedProperties
	items prefixItems contains unevaluatedItems type enum const
	multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern
	maxItems minItems uniqueItems maxContains minContains maxProperties minProperties required dependentRequired
	title description default deprecated readOnly writeOnly examples format contentEncoding contentMediaType contentSchema`)

// former are keywords of other drafts, and what to write in 2020-12 instead.
var former = map[string]string{"dependencies": "dependentSchemas or dependentRequired", "additionalItems": "items next to prefixItems",
	"$recursiveRef": "$ref", "nullable": `type: [..., "null"]`, "example": "examples", "id": "nothing: a schema is addressed by its file"}

// unknownKeyword reports what is wrong with a keyword; "" if nothing. Every validator ignores an unknown keyword, so the
// rule its author meant would silently not apply. known are those of the document's draft. Names that begin with x- are notes.
func unknownKeyword(k string, known []string) (msg, hint string) {
	if slices.Contains(known, k) || strings.HasPrefix(k, "x-") {
		return "", ""
	}
	if now, ok := former[k]; ok {
		return `"` + k + `" is a keyword of another draft`, "write " + now + " instead"
	}
	if slices.Contains(keywords, k) {
		return `"` + k + `" is a keyword of draft 2020-12`, "change $schema, or write it as draft-07 does"
	}
	return `there is no keyword "` + clip(k) + `"`,
		cmp.Or(plan.DidYouMean(k, known), "remove it, or begin its name with x- if it is a note")
}

// bounds are pairs of keywords of which the first must not exceed the second; with strict, they must not be equal either.
var bounds = []struct {
	low, high string
	strict    bool
}{
	{"minimum", "maximum", false}, {"exclusiveMinimum", "exclusiveMaximum", true},
	{"minimum", "exclusiveMaximum", true}, {"exclusiveMinimum", "maximum", true},
	{"minLength", "maxLength", false}, {"minItems", "maxItems", false},
	{"minProperties", "maxProperties", false}, {"minContains", "maxContains", false},
}

// contradiction finds a keyword that makes a schema accept nothing, and the reason; both are "" without one.
func contradiction(o map[string]any) (keyword, msg string) {
	for _, b := range bounds {
		low, ok := o[b.low].(json.Number)
		high, ok2 := o[b.high].(json.Number)
		if !ok || !ok2 {
			continue
		}
		// A bound beyond what a float64 holds is not compared.
		x, err := low.Float64()
		y, err2 := high.Float64()
		switch {
		case err != nil || err2 != nil:
		case x > y:
			return b.low, fmt.Sprintf("%s %v is above %s %v: no value satisfies both", b.low, low, b.high, high)
		case x == y && b.strict:
			return b.low, fmt.Sprintf("%s %v and %s %v leave no value between them", b.low, low, b.high, high)
		}
	}
	if list, ok := o["enum"].([]any); ok && len(list) == 0 {
		return "enum", "the list is empty, so no value is accepted"
	}
	return "", ""
}
