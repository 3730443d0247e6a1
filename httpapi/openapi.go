package httpapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
)

// openAPIFixed is the part of the document that comes from no operation: other paths, and what some routes have in addition
// to JSON. x-errors are the statuses of errors of an operation, x-problem is their form if it is not Problem; neither is in
// the document.
//
//go:embed openapi_fixed.json
var openAPIFixed []byte

// doc is a part of a JSON document.
type doc = map[string]any

// Document writes the OpenAPI 3.1 document of the face over a registry. The tests hold every request and answer they make against it.
func Document(r *gate.Registry) ([]byte, error) {
	var fixed doc
	if err := json.Unmarshal(openAPIFixed, &fixed); err != nil {
		return nil, err
	}
	paths, schemas := doc{}, doc{"DryRun": json.RawMessage(gate.DescribedSchemaOf[gate.Rehearsal]())}
	if err := envelopeSchemas(schemas); err != nil {
		return nil, err
	}
	for _, route := range Routes() {
		t, err := r.Find(route.Operation)
		if err != nil || route.Answer == "" && route.ID == "" {
			continue
		}
		e, err := endpointOf(route, t)
		if err != nil {
			return nil, err
		}
		if _, has := paths[route.Path]; !has {
			paths[route.Path] = doc{}
		}
		paths[route.Path].(doc)[strings.ToLower(route.Method)] = e.document(t)
		if _, has := schemas[route.Answer]; !has && route.Answer != "" && t.Described != nil {
			schemas[route.Answer] = t.Described()
		}
	}
	out := merged(doc{"paths": paths, "components": doc{"schemas": schemas}}, fixed).(doc)
	for _, methods := range out["paths"].(doc) {
		for _, op := range methods.(doc) {
			listErrors(op.(doc))
		}
	}
	return json.Marshal(out)
}

// document writes the operation of a route.
func (e endpoint) document(t gate.Tool) doc {
	op := doc{"operationId": e.ID, "summary": t.Title, "description": t.Description, "tags": []any{e.tag()}}
	if e.Summary != "" {
		op["summary"] = e.Summary
		delete(op, "description")
	}
	parameters := []any{}
	if e.named != "" {
		parameters = append(parameters, parameterOf("path", e.named, e.schemas[e.named], true))
	}
	properties := doc{}
	for _, name := range slices.Sorted(maps.Keys(e.types)) {
		required := slices.Contains(e.required, name)
		if e.inQuery() {
			parameters = append(parameters, parameterOf("query", name, e.schemas[name], required))
		} else {
			properties[name] = e.schemas[name]
		}
	}
	if t.SideEffect != gate.Read && e.Method == http.MethodPost {
		parameters = append(parameters, doc{"$ref": "#/components/parameters/IdempotencyKey"})
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	statuses := callErrors()
	if !e.inQuery() {
		body := doc{"type": "object", "additionalProperties": false, "properties": properties}
		if len(e.required) > 0 {
			body["required"] = e.required
		}
		op["requestBody"] = doc{"required": e.named == "" || len(e.required) > 0, "content": content(body)}
	}
	if e.Method == http.MethodPost {
		statuses = append(statuses, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge)
	}
	op["x-errors"] = statuses
	op["responses"] = e.answers()
	return op
}

// answers returns the responses of a route without its errors.
func (e endpoint) answers() doc {
	if e.Answer == "" {
		return doc{"200": doc{"description": "the answer"}}
	}
	answer := doc{"$ref": "#/components/schemas/" + e.Answer}
	out := doc{"200": doc{"description": "the answer", "content": content(answer)}}
	if e.rehearsed {
		out["200"] = doc{"description": "the answer; what the call would do, for a dry run",
			"content": content(doc{"anyOf": []any{answer, doc{"$ref": "#/components/schemas/DryRun"}}})}
	}
	if e.New != 0 {
		out[fmt.Sprint(e.New)] = doc{"description": "the answer; there was no such thing before", "content": content(answer)}
	}
	return out
}

// tag returns the group of a route in the document.
func (e endpoint) tag() string {
	switch group := strings.Split(e.Path, "/")[2]; group {
	case "runs", "batches", "artifacts":
		return group
	case "references":
		return "artifacts"
	}
	return "gateway"
}

func content(schema doc) doc { return doc{"application/json": doc{"schema": schema}} }

func parameterOf(in, name string, schema doc, required bool) doc {
	out := doc{"in": in, "name": name, "required": required, "schema": schema}
	if words, has := schema["description"]; has {
		schema = maps.Clone(schema)
		delete(schema, "description")
		out["description"], out["schema"] = words, schema
	}
	return out
}

// callErrors returns the statuses of the errors of a call.
func callErrors() []any {
	var out []any
	for _, k := range fault.Kinds() {
		if status := k.HTTPStatus(); !slices.Contains(out, any(status)) {
			out = append(out, status)
		}
	}
	return out
}

// listErrors turns x-errors and x-problem of an operation into responses.
func listErrors(op doc) {
	form, _ := op["x-problem"].(string)
	if form == "" {
		form = "Problem"
	}
	problem := doc{"$ref": "#/components/responses/" + form}
	responses := op["responses"].(doc)
	for _, status := range op["x-errors"].([]any) {
		responses[fmt.Sprint(status)] = problem
	}
	responses["default"] = problem
	delete(op, "x-errors")
	delete(op, "x-problem")
}

// envelopeSchemas adds what the schema of the envelope defines, under the names it has in the document.
func envelopeSchemas(to doc) error {
	var htc struct {
		Defs doc `json:"$defs"`
	}
	if err := json.Unmarshal(gate.EnvelopeSchema(), &htc); err != nil {
		return err
	}
	names := map[string]string{"request": "ToolCall", "response": "ToolCallResponse", "actor": "Actor", "timing": "Timing",
		"resources": "Resources", "error": "ToolCallError"}
	var moved func(node any) any
	moved = func(node any) any {
		switch n := node.(type) {
		case []any:
			out := make([]any, len(n))
			for i, v := range n {
				out[i] = moved(v)
			}
			return out
		case doc:
			if ref, ok := n["$ref"].(string); ok {
				def := strings.TrimPrefix(ref, "#/$defs/")
				if name, ok := names[def]; ok {
					return doc{"$ref": "#/components/schemas/" + name}
				}
				return moved(htc.Defs[def])
			}
			out := doc{}
			for k, v := range n {
				out[k] = moved(v)
			}
			return typed(out)
		}
		return node
	}
	for def, name := range names {
		to[name] = moved(htc.Defs[def])
	}
	return nil
}

// typed adds to a schema of texts that it is one: programs that write clients want to know.
func typed(schema doc) doc {
	values, _ := schema["enum"].([]any)
	if value, has := schema["const"]; has {
		values = []any{value}
	}
	if _, has := schema["type"]; !has && len(values) > 0 {
		if _, text := values[0].(string); text {
			schema["type"] = textType
		}
	}
	return schema
}

// merged returns a document with another over it: objects are joined, lists are appended.
func merged(one, other any) any {
	a, isDoc := one.(doc)
	b, both := other.(doc)
	if isDoc && both {
		for k, v := range b {
			if had, has := a[k]; has {
				v = merged(had, v)
			}
			a[k] = v
		}
		return a
	}
	if list, ok := one.([]any); ok {
		if more, ok := other.([]any); ok {
			return append(list, more...)
		}
	}
	return other
}

func (f *face) openAPI(w http.ResponseWriter, _ *http.Request) {
	text, err := f.document()
	if err != nil {
		problem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(text) // this fails when the peer has closed the connection
}
