package plan

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{`{"a":1,"b":[1,2,{"c":null}]}`, `{"b":[1,2,{"c":null}],"a":1}`, "[]"},
		{`{"a":1,"b":{"x":true,"y":"s"}}`, `{"a":2,"b":{"x":true,"z":[]}}`, `[a: 1 → 2 b.y: "s" →  b.z:  → []]`},
		{`{"l":[1,2,3]}`, `{"l":[1,4]}`, `[l[1]: 2 → 4 l[2]: 3 → ]`},
		{`{"n":1}`, `{"n":"1"}`, `[n: 1 → "1"]`},
		{`{"n":{}}`, `{"n":[]}`, `[n: {} → []]`},
		{`{"n":null}`, `{}`, `[n: null → ]`},
		{`9007199254740993`, `9007199254740992`, `[: 9007199254740993 → 9007199254740992]`},
	} {
		list, err := Diff(json.RawMessage(c.a), json.RawMessage(c.b), 10)
		if err != nil {
			t.Fatal(err)
		}
		text := []string{}
		for _, x := range list {
			text = append(text, fmt.Sprintf("%s: %s → %s", x.Path, x.A, x.B))
		}
		if d := cmp.Diff(c.want, fmt.Sprint(text)); d != "" {
			t.Errorf("%s %s: %s", c.a, c.b, d)
		}
	}
	if list, err := Diff(json.RawMessage(`[1,2,3,4]`), json.RawMessage(`[5,6,7,8]`), 2); err != nil || len(list) != 2 {
		t.Errorf("%v %v", list, err)
	}
	if _, err := Diff(json.RawMessage(`{`), json.RawMessage(`1`), 2); err == nil {
		t.Error("half a document was compared")
	}
}
