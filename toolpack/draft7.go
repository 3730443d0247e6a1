package toolpack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A schema document has its draft in $schema: 2020-12, which is also the default, or draft-07. It is checked against
// the metaschema of its draft; then one of draft-07 is rewritten in 2020-12, so that all other code handles one
// draft.

const (
	draft2020 = "https://json-schema.org/draft/2020-12/schema"
	draft07   = "http://json-schema.org/draft-07/schema"
)

// metaschemas check schemas; they are compiled into the library, nothing is fetched.
var metaschemas = map[string]func() *jsonschema.Schema{
	draft2020: sync.OnceValue(func() *jsonschema.Schema { return compiledIn(draft2020) }),
	draft07:   sync.OnceValue(func() *jsonschema.Schema { return compiledIn(draft07 + "#") }),
}

func compiledIn(metaschema string) *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.AssertFormat() // a pattern must be a regular expression
	return c.MustCompile(metaschema)
}

// draftOf returns the draft of a document; msg is the reason if it has none.
func draftOf(tree any) (draft, msg string) {
	o, _ := tree.(map[string]any)
	v, ok := o["$schema"]
	if !ok {
		return draft2020, ""
	}
	s, _ := v.(string)
	switch s := strings.TrimSuffix(s, "#"); s {
	case draft2020, draft07:
		return s, ""
	}
	return "", fmt.Sprintf(`the draft "%s" is not supported`, clip(fmt.Sprint(v)))
}

// keywords07 are the keywords of draft-07. A document of that draft may also have $defs, which references of others point into.
var keywords07 = strings.Fields(`
	$schema $ref $comment $id definitions $defs
	allOf anyOf oneOf not if then else dependencies properties patternProperties additionalProperties propertyNames
	items additionalItems contains type enum const
	multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern
	maxItems minItems uniqueItems maxProperties minProperties required
	title description default readOnly writeOnly examples format contentEncoding contentMediaType`)

// nextToRef lists the keywords that have a meaning next to a $ref in draft-07, where it hides all others.
var nextToRef = []string{"$ref", "$schema", "$id", "$comment", "definitions", "$defs", "title", "description", "default", "examples"}

// rewrite07 turns a schema object of draft-07 into 2020-12.
func rewrite07(o map[string]any) {
	if _, ok := o["$ref"]; ok {
		maps.DeleteFunc(o, func(k string, _ any) bool { return !slices.Contains(nextToRef, k) })
	}
	more, hasMore := o["additionalItems"]
	delete(o, "additionalItems")
	if list, ok := o["items"].([]any); ok {
		delete(o, "items")
		o["prefixItems"] = list // not empty, by the metaschema
		if hasMore {
			o["items"] = more
		}
	}
	by, _ := o["dependencies"].(map[string]any)
	delete(o, "dependencies")
	names, schemas := map[string]any{}, map[string]any{}
	for k, v := range by {
		if _, ok := v.([]any); ok {
			names[k] = v
		} else {
			schemas[k] = v
		}
	}
	for k, v := range map[string]map[string]any{"dependentRequired": names, "dependentSchemas": schemas} {
		if len(v) > 0 {
			o[k] = v
		}
	}
}
