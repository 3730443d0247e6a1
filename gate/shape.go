package gate

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"slurmgate/plan"
)

// SchemaOf writes the JSON Schema of what a Go type is as JSON: what [plan.Marshal] makes of it. So a tool's schema cannot
// say another thing than its code. Keys that may be left out are optional, pointers may be null, nothing unknown is allowed.
func SchemaOf[T any]() json.RawMessage { return typeSchema(reflect.TypeFor[T](), false) }

// DescribedSchemaOf returns [SchemaOf] for people and for programs that are written for the gateway: with the tags help and enum
// (comma-separated values) of the fields, and open to properties that a later version adds.
func DescribedSchemaOf[T any]() json.RawMessage { return typeSchema(reflect.TypeFor[T](), true) }

func typeSchema(t reflect.Type, described bool) json.RawMessage {
	raw, err := plan.Marshal(shape(t, described))
	if err != nil {
		panic(err) // a schema of plain words is always JSON
	}
	return raw
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	byteType = reflect.TypeFor[[]byte]()
)

func shape(t reflect.Type, described bool) map[string]any {
	switch {
	case t == timeType:
		return map[string]any{"type": "string", "format": "date-time"}
	case t == rawType:
		return map[string]any{}
	case t == byteType: // encoding/json writes it so
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{shape(t.Elem(), described), map[string]any{"type": "null"}}}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": shape(t.Elem(), described)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": shape(t.Elem(), described)}
	case reflect.String:
		if some, ok := reflect.Zero(t).Interface().(interface{ Values() []string }); ok && described {
			return map[string]any{"type": "string", "enum": some.Values()}
		}
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		fields(t, described, properties, &required)
		return map[string]any{"type": "object", "additionalProperties": described, "properties": properties, "required": required}
	case reflect.Interface:
		return map[string]any{}
	}
	return map[string]any{"type": "integer"}
}

func fields(t reflect.Type, described bool, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fields(f.Type, described, properties, required)
		case name == "" || name == "-":
		default:
			of := shape(f.Type, described)
			if described {
				describe(of, f.Tag)
			}
			properties[name] = of
			if !strings.Contains(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}

// describe adds what the tags of a field say to its schema.
func describe(schema map[string]any, tag reflect.StructTag) {
	if help := tag.Get("help"); help != "" {
		schema["description"] = help
	}
	values := tag.Get("enum")
	if values == "" {
		return
	}
	if either, ok := schema["anyOf"].([]any); ok { // or null
		schema = either[0].(map[string]any)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		schema = items
	}
	schema["enum"] = strings.Split(values, ",")
}
