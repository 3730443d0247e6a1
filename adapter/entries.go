package adapter

import (
	"encoding/json"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Entries returns the manifest's entries of the configured tools, as YAML, and their schema files by path below the
// domain's folder. A tool that the upstream does not list is a NotFound fault.
func (c Config) Entries(tools map[string]Listed) (entries string, files map[string][]byte, err error) {
	files = map[string][]byte{}
	var b strings.Builder
	for _, t := range c.Tools {
		l, ok := tools[t.Name]
		if !ok {
			return "", nil, fault.New(fault.NotFound, "tool_not_found", "the upstream has no tool "+fault.Clip(t.Name)).
				WithNext("choose among its tools: " + fault.ClipTo(strings.Join(Names(tools), ", "), 2000))
		}
		in, out := "schemas/"+t.ID+".in.json", "schemas/"+t.ID+".out.json"
		fmt.Fprintf(&b, "  - tool_id: %s\n    kind: service_worker\n", t.ID)
		if l.Title != "" {
			fmt.Fprintf(&b, "    display_name: %s\n", quoted(l.Title, 128))
		}
		if l.Description != "" {
			fmt.Fprintf(&b, "    description: %s\n", quoted(l.Description, 4096))
		}
		fmt.Fprintf(&b, "    transport: {type: http, base_url: %s, endpoint: /%s/%s}\n    timeout_sec: 60\n",
			quoted(c.BaseURL, 2048), t.ID, l.Digest)
		fmt.Fprintf(&b, "    input_schema_ref: %s\n    output_schema_ref: %s\n", in, out)
		if files[in], err = inputFile(l.Input); err == nil {
			files[out], err = outputFile(l.Output)
		}
		if err != nil {
			return "", nil, err
		}
	}
	return b.String(), files, nil
}

// quoted returns a text as a double-quoted scalar of YAML, which JSON strings are, without characters that a manifest
// refuses.
func quoted(s string, most int) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' || c == 0x7f {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, ""))
	doc, err := json.Marshal(fault.ClipTo(s, most))
	if err != nil {
		return `""`
	}
	return string(doc)
}

const draft2020 = "https://json-schema.org/draft/2020-12/schema"

// inputFile returns the schema of the arguments. Servers name the draft of their library; what they write is the same
// in all of them.
func inputFile(schema json.RawMessage) ([]byte, error) {
	tree := map[string]any{}
	if err := json.Unmarshal(schema, &tree); err != nil {
		return nil, fault.Wrap(fault.Validation, "schema", "the upstream's input schema is not an object", err)
	}
	tree["$schema"] = draft2020
	return pretty(tree)
}

// outputFile returns the schema of an [output].
func outputFile(structured json.RawMessage) ([]byte, error) {
	text := map[string]any{"type": "string"}
	object := func(required []string, properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	list := func(of any) map[string]any { return map[string]any{"type": "array", "items": of} }
	properties := map[string]any{"text": text, "structured": map[string]any{},
		"media": list(object([]string{"kind", "mime_type"}, map[string]any{"kind": text, "mime_type": text, "uri": text, "text": text,
			"data_base64": map[string]any{"type": "string", "contentEncoding": "base64"}})),
		"links": list(object([]string{"uri", "name"}, map[string]any{"uri": text, "name": text, "mime_type": text})),
		"left_out": list(object([]string{"kind", "mime_type", "bytes"}, map[string]any{"kind": text, "mime_type": text,
			"bytes": map[string]any{"type": "integer"}}))}
	required := []string{"text"}
	if string(structured) != "null" {
		tree := map[string]any{}
		if err := json.Unmarshal(structured, &tree); err != nil {
			return nil, fault.Wrap(fault.Validation, "schema", "the upstream's output schema is not an object", err)
		}
		delete(tree, "$schema")
		move(tree)
		properties["structured"] = tree
		required = append(required, "structured")
	}
	doc := object(required, properties)
	doc["$schema"] = draft2020
	return pretty(doc)
}

// move corrects the references of a schema that becomes a part of another.
func move(tree any) {
	switch t := tree.(type) {
	case map[string]any:
		if ref, ok := t["$ref"].(string); ok && strings.HasPrefix(ref, "#") {
			t["$ref"] = "#/properties/structured" + ref[1:]
		}
		for _, v := range t {
			move(v)
		}
	case []any:
		for _, v := range t {
			move(v)
		}
	}
}

func pretty(tree any) ([]byte, error) {
	canonical, err := plan.Marshal(tree)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(canonical, &v); err != nil {
		return nil, err
	}
	doc, err := json.MarshalIndent(v, "", "  ")
	return append(doc, '\n'), err
}
