package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"slurmgate/fault"
	"slurmgate/gate"
)

// resolved returns a schema with every reference resolved, and without what does not change the allowed values:
// texts, the order of required, and the type of a constant text.
func resolved(t *testing.T, doc any, node any) any {
	t.Helper()
	switch n := node.(type) {
	case []any:
		out := make([]any, len(n))
		for i, v := range n {
			out[i] = resolved(t, doc, v)
		}
		return out
	case map[string]any:
		if ref, ok := n["$ref"].(string); ok {
			at := doc
			for _, part := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
				at = at.(map[string]any)[part]
			}
			if at == nil {
				t.Fatalf("%s is not there", ref)
			}
			return resolved(t, doc, at)
		}
		out := map[string]any{}
		for k, v := range n {
			out[k] = resolved(t, doc, v)
		}
		if _, words := n["description"].(string); words {
			delete(out, "description")
		}
		if required, ok := out["required"].([]any); ok {
			slices.SortFunc(required, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		if n["type"] == "string" && (n["const"] != nil || n["enum"] != nil) {
			delete(out, "type")
		}
		return out
	}
	return node
}

func parsed(t *testing.T, raw []byte) (doc map[string]any) {
	t.Helper()
	must(t, json.Unmarshal(raw, &doc))
	return doc
}

// The OpenAPI document describes the envelope exactly as the schema that the gate checks.
//
// proves AX-03 HTC-01
func TestDocumentIsTheEnvelope(t *testing.T) {
	htc, doc := parsed(t, gate.EnvelopeSchema()), parsed(t, documentOf(t))
	defs := htc["$defs"].(map[string]any)
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for def, name := range map[string]string{"request": "ToolCall", "response": "ToolCallResponse", "actor": "Actor", "timing": "Timing",
		"resources": "Resources", "error": "ToolCallError"} {
		if d := cmp.Diff(resolved(t, htc, defs[def]), resolved(t, doc, schemas[name])); d != "" {
			t.Errorf("%s (-htc_v1.json +openapi.json):\n%s", name, d)
		}
	}
	kinds := schemas["ToolCallError"].(map[string]any)["properties"].(map[string]any)["kind"].(map[string]any)["enum"]
	if d := cmp.Diff(defs["error_kind"].(map[string]any)["enum"], kinds); d != "" {
		t.Error(d)
	}
}

// Every route is in the document, and everything in the document is a route.
func TestDocumentIsTheRoutes(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	r, err := gate.NewRegistry()
	must(t, err)
	h := Handler(Config{Gate: gate.New(gate.Config{Registry: r}), Auth: tokens{}, Metrics: nothing, MCP: nothing}, nil)
	var routes, documented []string
	err = chi.Walk(h.(chi.Routes), func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if route != "/mcp" || method == http.MethodPost { // MCP answers every method itself, with its own errors
			routes = append(routes, method+" "+route)
		}
		return nil
	})
	must(t, err)
	for path, ops := range newContract(t, nil).doc.Paths {
		for method := range ops {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if d := cmp.Diff(routes, documented); d != "" {
		t.Errorf("-routes +document:\n%s", d)
	}
}

// Every operation that is a call of the gate lists the status of every kind of error, and of a body that cannot be read where it takes one.
// What other operations answer is checked whenever a test makes a request.
func TestErrorsAreListed(t *testing.T) {
	kinds := fault.Kinds()
	calls := 0
	for path, ops := range newContract(t, nil).doc.Paths {
		for method, op := range ops {
			var want []int
			if slices.Contains([]string{"/v1/domain", "/v1/tools", "/v1/registry"}, path) || !strings.HasPrefix(path, "/v1/") ||
				strings.HasSuffix(path, "_schema") {
				continue
			}
			calls++
			for _, k := range kinds {
				want = append(want, k.HTTPStatus())
			}
			if op.RequestBody != nil {
				want = append(want, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge)
			}
			for _, status := range want {
				if _, ok := op.Responses[fmt.Sprint(status)]; !ok {
					t.Errorf("%s %s: %d is not in the document", method, path, status)
				}
			}
		}
	}
	if calls < 20 {
		t.Errorf("only %d calls", calls)
	}
}
