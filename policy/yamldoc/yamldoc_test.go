package yamldoc

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func read(text string, style Case, use func(v Value)) string {
	r := &Reader{File: "f", Prefix: "T", Case: style}
	use(r.Parse([]byte(text)))
	var out []string
	for _, p := range r.Problems() {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s:%d %s", p.Code, p.Field, p.Line, p.Hint)))
	}
	return strings.Join(out, "; ")
}

// Names are matched exactly, and a misspelt one is not reported as missing as well. proves LOAD-03
func TestObject(t *testing.T) {
	for _, c := range []struct {
		text  string
		style Case
		want  string
	}{
		{"maxBytes: 1", Camel, ""},
		{"max_bytes: 1", Camel, "T-SNAKE-CASE max_bytes:1 write maxBytes"},
		{"max-bytes: 1", Camel, "T-SNAKE-CASE max-bytes:1 write maxBytes"},
		{"MaxBytes: 1", Camel, "T-UNKNOWN-FIELD MaxBytes:1 write maxBytes"},
		{"other: 1", Camel, "T-REQUIRED maxBytes:1; T-UNKNOWN-FIELD other:1"},
		{"maxbytes: 1\nmaxBytes: 2", Snake, "T-UNKNOWN-FIELD maxbytes:1 write maxBytes"},
		{"- 1", Camel, "T-TYPE :1"},
		{"maxBytes:", Camel, "T-TYPE maxBytes:1"},
	} {
		got := read(c.text, c.style, func(v Value) { v.Object("maxBytes").Need("maxBytes").Int(0, 9) })
		parts := strings.Split(got, "; ")
		want := strings.Split(c.want, "; ")
		if len(parts) != len(want) || !strings.Contains(c.want, parts[0]) {
			t.Errorf("%q: got %s, want %s", c.text, got, c.want)
		}
	}
}

// A value has one type, under any version of YAML.
func TestImplicitTypes(t *testing.T) {
	for _, s := range []string{"12", "1.0", "0o7", "0x1f", "true", "null", "~", "2026-01-31", ".inf", "1e3", "", "[a]", "{a: b}"} {
		if got := read("k: "+s, Snake, func(v Value) { v.Object("k").Opt("k").Text() }); !strings.HasPrefix(got, "T-TYPE k:1") {
			t.Errorf("%q is taken for a string: %q", s, got)
		}
	}
	for _, s := range []string{"a", `"12"`, "'true'", "yes", "no", "on", "1.0.0", "1_0x", "|\n  text"} {
		if got := read("k: "+s, Snake, func(v Value) { v.Object("k").Opt("k").Text() }); got != "" {
			t.Errorf("%q is no string: %s", s, got)
		}
	}
	for _, s := range []string{"010", "0x1", "1_000", "+1", "1.0", "1e3", "0b1", "99999999999999999999", `"1"`, "0o1"} {
		if got := read("k: "+s, Snake, func(v Value) { v.Object("k").Opt("k").Int(0, 1<<40) }); got == "" {
			t.Errorf("%q is taken for an integer", s)
		}
	}
	for _, s := range []string{"True", "yes", "on", "1", `"true"`} {
		if got := read("k: "+s, Snake, func(v Value) { v.Object("k").Opt("k").Bool() }); got == "" {
			t.Errorf("%q is taken for a truth value", s)
		}
	}
}

func TestJSON(t *testing.T) {
	var tree any
	got := read("a: [1, -2.5e3, true, null, 'x', {b: \"<\"}]", Snake, func(v Value) { tree = v.JSON() })
	raw, err := Canonical(tree)
	if want := `{"a":[1,-2500,true,null,"x",{"b":"<"}]}`; got != "" || err != nil || string(raw) != want || !json.Valid(raw) {
		t.Errorf("got %s (%s, %v), want %s", raw, got, err, want)
	}
	for _, s := range []string{".nan", ".inf", "0x1", "~", "2026-01-01", "+1", "01", "{1: a}", "{[a]: b}", "{true: a}"} {
		if got := read("a: "+s, Snake, func(v Value) { v.JSON() }); got == "" {
			t.Errorf("%q passes for JSON", s)
		}
	}
}

// Bombs cost no more than their size.
// cpuTime is what this process has used of the CPUs: unlike the clock it does not count what a busy machine does for others.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestBombs(t *testing.T) {
	aliases := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'z'; c++ {
		aliases += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	for name, text := range map[string]string{"aliases": aliases, "depth": strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"deeper": strings.Repeat("[", 500000), "block depth": strings.Repeat("- ", 5000) + "x",
		"size": strings.Repeat("x", MaxBytes+1), "wide": "a: [" + strings.Repeat("&a x,", 100000) + "]"} {
		start := cpuTime(t)
		got := read(text, Snake, func(v Value) { v.JSON() })
		if took := cpuTime(t) - start; got == "" || len(got) > 100_000 || took > 5*time.Second {
			t.Errorf("%s: %d bytes of problems after %v", name, len(got), took)
		}
	}
}

func TestPlace(t *testing.T) {
	r := &Reader{File: "f", Prefix: "T"}
	r.Parse([]byte("a:\n  - x\n  - b: 1\n    c: 2\nd: 3\n"))
	for field, want := range map[string]int{"": 1, "a": 1, "a[0]": 2, "a[1].c": 4, "a[1].zzz": 3, "a[9]": 1, "d": 5, "nope": 1} {
		if got, _ := r.Place(field); got != want {
			t.Errorf("%s: line %d, want %d", field, got, want)
		}
	}
}
