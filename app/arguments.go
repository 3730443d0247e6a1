package app

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"

	"slurmgate/plan"
)

// The arguments of an operation are a struct. Its tags give their JSON Schema, and with it what HTTP, OpenAPI and MCP
// accept, and the options of the shell's verb where that has the same arguments. The tags:
//
//	json     its name; without omitzero it is required
//	kind     one of [kinds]; the tag ids, by which the shell takes shortened ids, is one too
//	enum     one of these values, separated by commas
//	pattern  of a text
//	min max  of a number, or of the length of a text
//	count    of a list or a map: how many values it may have, such as 1-64; the other tags are about each value
//	set      of a list: no value twice
//	const    the only value, as JSON
//	about    its description; without it that of its kind
//
// The shell reads kong's tags too, such as help, name, arg and placeholder.

// argumentsOf writes the JSON Schema of arguments.
func argumentsOf[A any]() json.RawMessage {
	raw, err := plan.Marshal(objectSchema(reflect.TypeFor[A]()))
	if err != nil {
		panic(err) // a schema of plain words is always JSON
	}
	return raw
}

func objectSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	addProperties(t, properties, &required)
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
}

func addProperties(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			addProperties(f.Type, properties, required)
		case name == "" || name == "-":
		default:
			properties[name] = argumentSchema(f)
			if !strings.HasPrefix(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}

func argumentSchema(f reflect.StructField) (schema map[string]any) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]():
		schema = map[string]any{"type": "array", "items": valueSchema(t.Elem(), f.Tag)}
		addBounds(schema, f.Tag, "count", "minItems", "maxItems")
		if _, ok := f.Tag.Lookup("set"); ok {
			schema["uniqueItems"] = true
		}
	case t.Kind() == reflect.Map:
		schema = map[string]any{"type": "object"}
		if of := valueSchema(t.Elem(), f.Tag); len(of) > 0 {
			schema["additionalProperties"] = of
		}
		addBounds(schema, f.Tag, "count", "minProperties", "maxProperties")
	default:
		schema = valueSchema(t, f.Tag)
	}
	if about := f.Tag.Get("about"); about != "" {
		schema["description"] = about
	}
	return schema
}

// valueSchema returns the schema of one value of a type, with the tags of its field.
func valueSchema(t reflect.Type, tag reflect.StructTag) map[string]any {
	kind, _, _ := strings.Cut(tag.Get("ids"), ",")
	if named := tag.Get("kind"); named != "" {
		kind = named
	}
	if t == reflect.TypeFor[time.Time]() && kind == "" {
		kind = "time"
	}
	schema := map[string]any{}
	switch {
	case kind != "":
		if err := json.Unmarshal([]byte(kinds()[kind]), &schema); err != nil {
			panic("there is no kind " + kind + " of arguments: " + err.Error())
		}
	case tag.Get("const") != "":
		schema["const"] = json.RawMessage(tag.Get("const"))
	case tag.Get("enum") != "":
		schema["enum"] = strings.Split(strings.TrimPrefix(tag.Get("enum"), ","), ",") // the shell's empty default is not a value
	case t.Kind() == reflect.Struct:
		return objectSchema(t)
	case t.Kind() == reflect.String:
		schema["type"] = "string"
		addBounds(schema, tag, "", "minLength", "maxLength")
		if pattern := tag.Get("pattern"); pattern != "" {
			schema["pattern"] = pattern
		}
	case t.Kind() == reflect.Bool:
		schema["type"] = "boolean"
	case t.Kind() == reflect.Map:
		schema["type"] = "object"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		schema["type"] = "integer"
		addBounds(schema, tag, "", "minimum", "maximum")
	}
	return schema
}

// kinds returns the schemas of values that several arguments have, by their names in the tags kind and ids.
func kinds() map[string]string {
	const (
		id    = `[0-9A-HJKMNP-TV-Z]{26}$"`
		begin = `[0-9A-HJKMNP-TV-Z]{1,26}$","description":"only those whose id begins with this"}`
	)
	return map[string]string{
		"run":             `{"type":"string","pattern":"^run_` + id + `,"description":"a run id, run_…"}`,
		"run_prefix":      `{"type":"string","pattern":"^run_` + begin,
		"artifact":        `{"type":"string","pattern":"^art_` + id + `,"description":"an artifact id, art_…"}`,
		"artifact_prefix": `{"type":"string","pattern":"^art_` + begin,
		"file":            `{"type":"string","pattern":"^file_` + id + `,"description":"a file that artifact.find found, file_…"}`,
		"approval":        `{"type":"string","pattern":"^apr_[A-Z2-7]{26}$"}`,
		"artifact_type":   `{"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,31}$"}`,
		"project": `{"type":"string","minLength":1,"maxLength":128,` +
			`"description":"project id (proj_…) or name; the site's default project when absent"}`,
		"principal": `{"type":"string","minLength":1,"maxLength":1024,` +
			`"description":"a principal's name or id, a login name of the gateway's host, or me"}`,
		"batch": `{"type":"string","minLength":1,"maxLength":128,"description":"a batch's name or id (batch_…)"}`,
		"batch_name": `{"type":"string","pattern":"` + batchName + `","not":{"pattern":"^batch_"},` +
			`"description":"the batch's name, unique in its project"}`,
		"reference": `{"type":"string","pattern":"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$","description":"a name: letters, digits and . _ -"}`,
		"time":      `{"type":"string","format":"date-time","maxLength":40,"description":"RFC 3339, e.g. 2026-11-21T08:00:00Z"}`,
		"as_of": `{"type":"string","pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?Z$",` +
			`"description":"only artifacts created up to this time (UTC); use the value of an earlier answer to get the same list again"}`,
		"path":   `{"type":"string","minLength":1,"maxLength":4096}`,
		"object": `{"type":"object"}`,
		"retry_resources": string(moreSchema("what the new attempt gets instead of what the last one had, and not less than the plan's. "+
			"By default memory or time grow by the tool's own factor, if it has one", false)),
	}
}

// addBounds adds the bounds in the tags min and max, or in one tag with both.
func addBounds(schema map[string]any, tag reflect.StructTag, both, least, most string) {
	low, high := tag.Get("min"), tag.Get("max")
	if both != "" {
		low, high, _ = strings.Cut(tag.Get(both), "-")
	}
	for name, text := range map[string]string{least: low, most: high} {
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic(err) // a tag is part of the program
		}
		schema[name] = n
	}
}

// Page is the part of a list that a call asks for.
type Page struct {
	Limit  int    `json:"limit,omitzero" min:"1" max:"200" default:"20" help:"Maximum number to list (1 to 200)."`
	Cursor string `json:"cursor,omitzero" max:"256" help:"Continue after an earlier page." placeholder:"CURSOR"`
}
