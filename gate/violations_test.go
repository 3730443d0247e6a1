package gate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// A document that breaks its schema in a hundred thousand places gets a short answer.
func TestManyViolations(t *testing.T) {
	g, _ := newGate(t, nil, echo)
	unknown, nested := map[string]any{}, []any{}
	for i := range 30_000 {
		unknown[fmt.Sprint("key", i)] = i
		nested = append(nested, map[string]any{strings.Repeat("k", 20): i})
	}
	for name, doc := range map[string]map[string]any{"keys": unknown, "long keys": {strings.Repeat("k", 900_000): 1},
		"nested": {"actor": nested}} {
		raw, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		res := g.CallRaw(t.Context(), Process(), raw)
		answer, err := json.Marshal(res)
		if err != nil || res.Error == nil || len(answer) > 16<<10 {
			t.Errorf("%s: %d bytes, %v", name, len(answer), err)
		}
	}
}
