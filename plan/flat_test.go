package plan

import (
	"encoding/json"
	"math"
	"testing"
)

// What is written the short way is what the long one gives, or is left to it.
func FuzzFlat(f *testing.F) {
	f.Add("run_id", "run_00XYZ", "send", int64(1), true)
	f.Add("é", "a\"b", "b", int64(math.MaxInt64), false)
	f.Add("", "line\nline", "", int64(-(1 << 53)), false)
	f.Add("a", "<&>", "a.b", int64(1<<53-1), false)
	f.Add("Z", "x\x7f\xff", "a", int64(0), true)
	f.Fuzz(func(t *testing.T, name, text, other string, n int64, yes bool) {
		m := map[string]any{name: text, other: n, "yes": yes, "none": nil, "n": int(n)}
		raw, err := json.Marshal(m)
		if err != nil {
			return
		}
		got, ok := flat(m)
		if !ok {
			return
		}
		want, err := Canonical(raw)
		if err != nil || string(got) != string(want) {
			t.Fatalf("%s, want %s (%v)", got, want, err)
		}
	})
}

func TestFlat(t *testing.T) {
	for _, c := range []struct {
		m    map[string]any
		want string // empty: left to the encoder
	}{
		{nil, `{}`},
		{map[string]any{"send": 1, "job_id": "12", "attempt": int64(2), "b": nil, "a": true},
			`{"a":true,"attempt":2,"b":null,"job_id":"12","send":1}`},
		{map[string]any{"a": "ü"}, ""}, {map[string]any{"a": "\""}, ""}, {map[string]any{"a": `\`}, ""}, {map[string]any{"a": "\n"}, ""},
		{map[string]any{"ä": 1}, ""}, {map[string]any{"A": 1}, ""},
		{map[string]any{"a": 1.5}, ""}, {map[string]any{"a": []string{}}, ""}, {map[string]any{"a": 1 << 53}, ""},
		{map[string]any{"a": -(1 << 53)}, ""},
	} {
		got, ok := flat(c.m)
		if ok != (c.want != "") || ok && string(got) != c.want {
			t.Errorf("%v: %s", c.m, got)
		}
	}
	if _, err := Marshal(map[string]any{"a": 1 << 53}); err == nil {
		t.Error("a number beyond what JSON can hold was written")
	}
}
