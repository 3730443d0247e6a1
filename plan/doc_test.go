package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
)

// A value written directly equals the reading of the encoder's text, or is left to the encoder.
func FuzzMarshal(f *testing.F) {
	f.Add("run_id", "run_00XYZ", "send", int64(1), 0.5)
	f.Add("é", "a\"b", "b", int64(math.MaxInt64), -0.0)
	f.Add("", "line\nline", "", int64(-(1 << 53)), 1e-7)
	f.Add("a", "<&>", "a.b", int64(1<<53-1), 1e21)
	f.Add("Z", "x\x7f\xff", "a", int64(0), math.Inf(1))
	f.Add("\U0001F600", "\u2028", "\uFFFD", int64(0), 4.9e-324)
	f.Fuzz(func(t *testing.T, name, text, other string, n int64, x float64) {
		m := map[string]any{name: text, other: n, "yes": true, "none": nil, "n": int(n), "list": []any{x, map[string]any{name: other}}}
		raw, err := json.Marshal(m)
		if err != nil {
			return
		}
		got, ok := appendCanonical(nil, m, 0)
		if !ok {
			return
		}
		want, err := read(raw, MaxDocumentBytes, false)
		if err != nil || string(got) != string(want.Bytes) {
			t.Fatalf("%s, want %s (%v)", got, want.Bytes, err)
		}
	})
}

func TestMarshal(t *testing.T) {
	for _, c := range []struct {
		m    map[string]any
		want string // empty: refused
	}{
		{nil, `{}`},
		{map[string]any{"send": 1, "job_id": "12", "attempt": int64(2), "b": nil, "a": true},
			`{"a":true,"attempt":2,"b":null,"job_id":"12","send":1}`},
		{map[string]any{"a": "ü", "B": "\"\\\n"}, `{"B":"\"\\\n","a":"ü"}`},
		{map[string]any{"\uFFFD": 1, "\U0001F600": 2}, "{\"\U0001F600\":2,\"\uFFFD\":1}"},
		{map[string]any{"a": 1.5, "b": []string{}, "c": []any(nil)}, `{"a":1.5,"b":[],"c":[]}`},
		{map[string]any{"a": 1 << 53}, ""}, {map[string]any{"a": -(1 << 53)}, ""}, {map[string]any{"a": math.NaN()}, ""},
		{map[string]any{"a": "\xff"}, ""}, {map[string]any{"a": string(make([]byte, MaxDocumentBytes))}, ""},
	} {
		got, err := Marshal(c.m)
		if (err == nil) != (c.want != "") || string(got) != c.want {
			t.Errorf("%.80v: %.80s %v", c.m, got, err)
		}
	}
}

// A document that was read has its value besides its bytes, and is decoded without another check.
func TestDoc(t *testing.T) {
	d, err := Read([]byte(` {"n": 1e0, "list": [true, null, "x", []], "o": {}} `))
	must(t, err)
	if want := `{"list":[true,null,"x",[]],"n":1,"o":{}}`; string(d.Bytes) != want {
		t.Errorf("%s", d.Bytes)
	}
	value := map[string]any{"list": []any{true, nil, "x", []any(nil)}, "n": 1.0, "o": map[string]any{}}
	if !reflect.DeepEqual(d.Value, value) {
		t.Errorf("%#v", d.Value)
	}
	var a struct {
		N    int            `json:"n"`
		List []any          `json:"list"`
		O    map[string]any `json:"o"`
	}
	if err := d.Into(&a); err != nil || a.N != 1 || len(a.List) != 4 {
		t.Errorf("Into: n = %v, %d items in list, %v; want 1 and 4", a.N, len(a.List), err)
	}
	if err := d.Into(&struct{}{}); err == nil {
		t.Error("an unknown field was accepted")
	}
	same, err := Of(a)
	if err != nil || string(same.Bytes) != string(d.Bytes) || !reflect.DeepEqual(same.Value, value) {
		t.Errorf("%s %v", same.Bytes, err)
	}
}

// Names are in the order of their UTF-16 code units, for any pair of runes.
func TestOrderOfNames(t *testing.T) {
	var names []string
	runes := []rune{0, 'a', 'b', 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xe001, 0xefff, 0xf000, 0xfffd, 0xffff, 0x10000,
		0x10001, 0x3ffff, 0x10ffff}
	for _, r := range runes {
		names = append(names, string(r), "x"+string(r), string(r)+"x")
		for _, s := range runes {
			names = append(names, string(r)+string(s))
		}
	}
	for _, a := range names {
		for _, b := range names {
			if got, want := compareUTF16(a, b), slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b))); got != want {
				t.Errorf("%q, %q: %d, want %d", a, b, got, want)
			}
		}
	}
}

// An id is its prefix and 26 of Crockford's digits.
func TestIDs(t *testing.T) {
	const digits = "0123456789ABCDEFGHJKMNPQRS"
	for s, want := range map[string][3]bool{"run_" + digits: {true, false, false}, "art_" + digits: {false, true, false},
		"proj_" + digits: {false, false, true}, "run_" + digits + "\n": {}, "run_" + digits + "0": {}, "run_" + digits[1:]: {},
		"run_" + digits[1:] + "I": {}, "run_" + digits[1:] + "L": {}, "run_" + digits[1:] + "O": {}, "run_" + digits[1:] + "U": {},
		"run_" + digits[1:] + "a": {}, "run_" + digits[2:] + "é": {}, "Run_" + digits: {}, " run_" + digits: {}, "": {}, digits: {}} {
		if got := [3]bool{IsRunID(s), IsArtifactID(s), IsProjectID(s)}; got != want {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"minimum", "maximum", "minLength", "enum", "not", "if", "cpus", "mem_mb"}
	for word, want := range map[string]string{"minimun": "minimum", "maxmum": "maximum", "minlength": "minLength", "enmu": "enum",
		"memMb": "mem_mb", "cpu": "cpus",
		"colour": "", "x": "", "": "", "multipleOf": "", "ni": ""} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if DidYouMean("enun", known) != `did you mean "enum"?` || DidYouMean("zzzzz", known) != "" {
		t.Error("the question")
	}
}

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
		must(t, err)
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
