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
func SchemaOf[T any]() json.RawMessage {
	raw, err := plan.Marshal(shape(reflect.TypeFor[T]()))
	if err != nil {
		panic(err) // a schema of plain words is always JSON
	}
	return raw
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

func shape(t reflect.Type) any {
	switch {
	case t == timeType:
		return map[string]any{"type": "string", "format": "date-time"}
	case t == rawType:
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{shape(t.Elem()), map[string]any{"type": "null"}}}
	case reflect.Slice, reflect.Array:
		return map[string]any{"type": "array", "items": shape(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": shape(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		fields(t, properties, &required)
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
	case reflect.Interface:
		return map[string]any{}
	}
	return map[string]any{"type": "integer"}
}

func fields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			fields(f.Type, properties, required)
		case name == "" || name == "-":
		default:
			properties[name] = shape(f.Type)
			if !strings.Contains(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}
