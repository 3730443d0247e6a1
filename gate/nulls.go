package gate

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"slurmgate/plan"
)

// WithoutNulls returns arguments without those that are null and optional and may not be null by the schema: models
// write null for an argument that they omit. Objects and lists within are treated alike. Invalid JSON, and arguments
// whose schema does not compile, are returned unchanged.
func WithoutNulls(schema, args json.RawMessage) json.RawMessage {
	doc, err := plan.Read(args)
	if err != nil {
		return args
	}
	compiled, err := compileAll(schema, "")
	if err != nil || !dropNulls(compiled[0].Schema, doc.Value) {
		return args
	}
	out, err := plan.Marshal(doc.Value)
	if err != nil {
		return args
	}
	return out
}

// dropNulls removes such members from a value, and reports whether it removed any.
func dropNulls(s *jsonschema.Schema, v any) (dropped bool) {
	for s != nil && s.Ref != nil && len(s.Properties) == 0 {
		s = s.Ref
	}
	if s == nil {
		return false
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			p := s.Properties[name]
			switch {
			case p == nil:
			case v[name] != nil:
				dropped = dropNulls(p, v[name]) || dropped
			case !slices.Contains(s.Required, name) && p.Validate(nil) != nil:
				delete(v, name)
				dropped = true
			}
		}
	case []any:
		for _, item := range v {
			dropped = dropNulls(s.Items2020, item) || dropped
		}
	}
	return dropped
}
