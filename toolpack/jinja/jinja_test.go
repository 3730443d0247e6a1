package jinja

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var names = Names{Objects: []string{"params", "inputs", "outputs", "resources"}, Values: []string{"settings", "words"}}

func vars() map[string]any {
	return map[string]any{
		"params": map[string]any{"n": 7, "f": 0.25, "big": 1e21, "text": "a b", "evil": "{{ 1 }}{% for %}", "flag": true, "off": false,
			"list": []any{"x", "y", "z"}, "nums": []any{3, 1, 2, 3},
			"nested": []any{[]any{1, 2}, []any{3}}, "empty": "", "nil": nil, "map": map[string]any{"k": "v"}, "dashed-name": "d"},
		"inputs": map[string]any{"reads": "/work/in/r.fq"}, "outputs": map[string]any{"report": "/work/out/r.json"},
		"resources": map[string]any{"cpus": 4},
		"settings":  map[string]any{"preset": map[string]any{"a b": "-x sr"}, "limit": 10}, "words": []any{"one", "two"},
	}
}

func render(source string) (string, error) {
	t, err := Parse(source, names)
	if err != nil {
		return "", fmt.Errorf("parse: %w", err)
	}
	return t.Render(vars())
}

// The same templates on the same data give the same text in Jinja2 3.1 (Python), but for those marked.
//
// proves LOAD-09
func TestRender(t *testing.T) {
	for source, want := range map[string]string{
		"plain {text} }} %} #}": "plain {text} }} %} #}",
		"{{ params.n }}":        "7", "{{params.n}}": "7", "a{{ params.n }}b{{ params.n }}": "a7b7", "{{ params.f }}": "0.25",
		"{{ params.text }}": "a b",
		"{{ params.evil }}": "{{ 1 }}{% for %}", "{{ params['n'] }}": "7", "{{ params['dashed-name'] }}": "d",
		"{{ params.map.k }}{{ params.map['k'] }}":   "vv",
		"{{ params.list[0] }}{{ params.list[-1] }}": "xz", "{{ settings.preset['a b'] }}": "-x sr", "{{ inputs.reads }}": "/work/in/r.fq",
		"{{ params.n + 1 }} {{ params.n - 10 }} {{ params.n * 3 }} {{ params.n // 2 }} {{ params.n % 4 }} {{ -7 // 2 }} {{ -7 % 4 }} {{ 2 ** " +
			"10 }}": "8 -3 21 3 3 -4 1 1024",
		"{{ params.f * 3 }} {{ 7 / 2 }} {{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }}":                                                               "0.75 3.5 7 9",
		"{{ params.text ~ '-' ~ params.n }} {{ 'a' + 'b' }}":                                                                             "a b-7 ab",
		"{{ 'yes' if params.flag else 'no' }} {{ 'yes' if params.off else 'no' }}{{ 'x' if params.off }}":                                "yes no",
		"{{ 'y' if params.n > 5 and not params.off else 'n' }}{{ 'y' if params.n >= 8 or params.empty else 'n' }}":                       "yn",
		"{{ 'y' if params.n + 1 > 3 + 4 else 'n' }}{{ 'y' if 'x' in params.list else 'n' }}{{ 'y' if 'q' not in params.list else 'n' }}": "yyy",
		"{{ 'y' if params.text == 'a b' else 'n' }}{{ 'y' if params.n != 7 else 'n' }}{{ 'y' if 'a' < 'b' else 'n' }}":                   "yny",
		"{{ params.nothing | default('none') }} {{ params.n | default(1) }} {{ params.empty | default('e', true) }} {{ params.nothing | d(2) " +
			"+ 1 }}": "none 7 e 3",
		"{{ 'y' if params.nothing is defined else 'n' }}{{ 'y' if params.n is defined else 'n' }}{{ 'y' if params.nothing is undefined else " +
			"'n' }}": "nyy",
		"{{ 'y' if params.nil is none else 'n' }}{{ 'y' if params.n is odd else 'n' }}{{ 'y' if params.n is not even else 'n' }}":        "yyy",
		"{{ 'y' if params.n is number else 'n' }}{{ 'y' if params.text is string else 'n' }}{{ 'y' if params.map is mapping else 'n' }}": "yyy",
		"{{ params.list | join(',') }} {{ params.list | length }} {{ params.list | first }} {{ params.list | last }}":                    "x,y,z 3 x z",
		"{{ params.nums | sort | unique | join('-') }} {{ params.nums | min }} {{ params.nums | max }}":                                  "1-2-3 1 3",
		"{{ params.text | upper | lower | replace(' ', '_') }} {{ ' a ' | trim }}.":                                                      "a_b a.",
		"{{ '12' | int + 1 }} {{ 2.7 | int }} {{ '0.5' | float }} {{ -3 | abs }} {{ 7 | string ~ 'x' }}":                                 "13 2 0.5 3 7x",
		"{{ '1.µ' ~ \"2.é\" }}":                                                                           "1.µ2.é",
		"{% if params.flag %}on{% else %}off{% endif %}":                                                  "on",
		"{% if params.off %}a{% elif params.n == 7 %}b{% else %}c{% endif %}":                             "b",
		"{% if params.off %}a{% elif params.n == 8 %}b{% else %}c{% endif %}":                             "c",
		"{% for x in params.list %}{{ loop.index }}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}": "1x,2y,3z",
		"{% for a in params.nested %}{{ loop.index0 }}:{% for b in a %}{{ b }}.{{ loop.first and 'f' or 'l' }}{% endfor %}/{{ loop.length }} " +
			"{% endfor %}": "0:1.f2.l/2 1:3.f/2 ",
		"{# a comment #}x{#- y -#} z":                    "xz",
		"a  {{- params.n -}}  b":                         "a7b",
		"x\n{{ params.n }}\n":                            "x\n7\n", // Jinja2 with keep_trailing_newline
		"{{ words | join(' ') }}":                        "one two",
		"{{ (params.list + ['w']) | join }}":             "xyzw",
		"{{ 'a' if params.n in (1, 7) else 'b' }}":       "a",
		"{{ 'y' if [1, [2]] == [1.0, [2]] else 'n' }}":   "y",
		`{{ "it's" }} {{ 'say "x"' }} {{ '{{ not }}' }}`: `it's say "x" {{ not }}`,
		// Not as in Python: numbers are printed as canonical JSON has them, as arguments always were.
		"{{ 4 / 2 }} {{ 2.0 }} {{ 1e3 }} {{ 1e-7 }} {{ 2.50 | round(1) }} {{ 2.4 | round }}": "2 2 1000 1e-7 2.5 2",
	} {
		got, err := render(source)
		if err != nil || got != want {
			t.Errorf("%s\n got %q, %v\nwant %q", source, got, err, want)
		}
	}
}

// What is refused when the template is read: everything that could load, define, assign, call or reach behind a value.
func TestParseRefuses(t *testing.T) {
	for source, says := range map[string]string{
		"{% include '/etc/passwd' %}":                "include",
		"{% import 'x' as y %}":                      "import",
		"{% from 'x' import y %}":                    "from",
		"{% extends 'x' %}":                          "extends",
		"{% macro m() %}{% endmacro %}":              "macro",
		"{% call m() %}{% endcall %}":                "call",
		"{% set x = 1 %}":                            "set",
		"{% block b %}{% endblock %}":                "block",
		"{% filter upper %}x{% endfilter %}":         "filter",
		"{% with a = 1 %}{% endwith %}":              "with",
		"{% do 1 %}":                                 "do",
		"{% raw %}{{ x }}{% endraw %}":               "raw",
		"{% autoescape true %}{% endautoescape %}":   "autoescape",
		"{{ self }}":                                 "self",
		"{{ range(10) }}":                            "calls are not supported",
		"{{ lipsum() }}":                             "calls are not supported",
		"{{ params.text.upper() }}":                  "calls are not supported",
		"{{ params.text.__class__ }}{{ zzz }}":       "zzz",
		"{{ params }}":                               "is not a value",
		"{{ params[params.text] }}":                  "is not a value",
		"{{ params[0] }}":                            "is not a value",
		"{{ params | join }}":                        "is not a value",
		"{% for x in params %}{% endfor %}":          "is not a value",
		"{% for params in words %}{% endfor %}":      "already in use",
		"{% for x in words if x %}{% endfor %}":      "unexpected",
		"{% for x, y in words %}{% endfor %}":        "NAME in LIST",
		"{% for x in words recursive %}{% endfor %}": "unexpected",
		"{{ x }}": "no name x",
		"{% for x in words %}{% endfor %}{{ x }}":             "no name x",
		"{{ loop.index }}":                                    "no name loop",
		"{{ environ.HOME }}":                                  "no name environ",
		"{{ params.n | nosuch }}":                             "no filter nosuch",
		"{{ params.n | attr('x') }}":                          "no filter attr",
		"{{ params.n | tojson }}":                             "no filter tojson",
		"{{ params.list | map('upper') }}":                    "no filter map",
		"{{ params.list | join(d=',') }}":                     "named arguments",
		"{{ params.list | join('a', 'b') }}":                  "arguments",
		"{{ params.n is nosuch }}":                            "no test nosuch",
		"{{ {'a': 1} }}":                                      "dict",
		"{{ params.text[0:1] }}":                              "getslice",
		"{{ params.n":                                         "}}",
		"{{ }}":                                               "",
		"{{ in [] }}":                                         "not supported",
		"{{ params.n }}{{":                                    "",
		"{% if %}x{% endif %}":                                "",
		"{% if params.n %}x":                                  "EOF",
		"{% if params.n %}x{% else %}y{% else %}z{% endif %}": "else",
		"{% endif %}":                                         "endif",
		"{{ params.n ! }}":                                    "",
		"{{ 'open }}":                                         "",
		"{{ params.n }}{# open":                               "",
		"{{ params.n 3 }}":                                    "",
		"{{ 1__0 }}":                                          "",
		"{{ 99999999999999999999 }}":                          "",
		"{{ " + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000) + " }}": "longer",
		"{{ " + strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500) + " }}":   "deeper",
		"{{ 1 }}" + strings.Repeat("{% if 1 %}", 500):                               "deeper",
		"{{ 1 }}" + strings.Repeat("x", MaxSource):                                  "longer",
		"{{ 1 }}\r\n": "carriage return",
		"{{#0.岸81.#0": "in quotes", "{% if ٣.é %}": "in quotes", "{{ '1.5' ~ 1.µ }}": "in quotes",
	} {
		_, err := Parse(source, names)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: %v, want something about %q", source, err, says)
		}
	}
}

// What is refused when it is rendered.
func TestRenderRefuses(t *testing.T) {
	for source, says := range map[string]string{
		"{{ params.nothing }}":                      "params.nothing is undefined",
		"{{ params.nothing ~ 'x' }}":                "undefined",
		"{{ params.nothing | upper }}":              "undefined",
		"{{ 'x' if params.nothing else 'y' }}":      "undefined",
		"{% if params.nothing %}{% endif %}":        "undefined",
		"{{ params.map.q }}":                        "undefined",
		"{{ params.list[3] }}{{ params.list[-4] }}": "undefined",
		"{{ params.text.upper }}":                   "undefined",
		"{{ params.text.__class__ }}":               "undefined",
		"{{ params.list.Len }}":                     "undefined",
		"{{ params.flag }}":                         "only a string or a number",
		"{{ params.nil }}":                          "only a string or a number",
		"{{ params.list }}":                         "only a string or a number",
		"{{ params.map }}":                          "only a string or a number",
		"{{ 1 / 0 }}":                               "zero",
		"{{ 1 % 0 }}":                               "zero",
		"{{ 1 // 0.0 }}":                            "zero",
		"{{ params.big }}":                          "2^53",
		"{{ 10 ** 400 }}":                           "2^53",
		"{{ 9007199254740991 + 1 }}":                "2^53",
		"{{ (-1) ** 0.5 }}":                         "2^53",
		"{{ 'a' * 1000000000 }}":                    "cannot calculate",
		"{{ 'a' * -1 }}":                            "cannot calculate",
		"{{ 'a' + 1 }}":                             "cannot calculate",
		"{{ 'a' < 1 }}":                             "cannot be compared",
		"{{ 1 in 2 }}":                              "is not supported",
		"{{ params.n | join }}":                     "a list",
		"{{ 'x' | int }}":                           "not a decimal integer",
		"{{ 'abc' | replace('', 'x') }}":            "must not be empty",
		"{{ [] | first }}":                          "undefined",
		"{{ ['a', 1] | sort | join }}":              "cannot be compared",
		"{% for x in params.text %}{% endfor %}":    "a list",
		"{% for x in params.map %}{% endfor %}":     "a list",
	} {
		_, err := render(source)
		if err == nil || strings.HasPrefix(err.Error(), "parse") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want something about %q", source, err, says)
		}
	}
}

// A rendering that would be long, large or endless ends soon, before what it would make exists.
func TestBounded(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	many := make([]any, 30000)
	for i := range many {
		many[i] = ""
	}
	v := map[string]any{"settings": map[string]any{"long": long, "many": many, "wide": many[:1000]}, "words": []any{long, long}}
	nest := func(levels int, body string) string {
		var b strings.Builder
		for i := range levels {
			fmt.Fprintf(&b, "{%% for v%d in settings.wide %%}", i)
		}
		return b.String() + body + strings.Repeat("{% endfor %}", levels)
	}
	for _, source := range []string{
		nest(3, ""), nest(30, ""), nest(2, "{{ settings.long | upper | length }}"),
		"{{ settings.long ~ settings.long }}", "{{ settings.many | join(settings.long) }}", "{{ settings.long | replace('x', settings.long) }}",
		"{% for w in words %}{{ w }}{% endfor %}", nest(1, "{{ settings.long }}"),
		nest(1, "{{ 'y' if settings.many == settings.many else 'n' }}"),
		nest(1, "{{ settings.many | unique | join }}"), nest(1, "{{ settings.many | sort | join }}"),
		nest(1, "{{ (settings.many + settings.many) | length }}"),
		"{{ " + strings.Repeat("settings.long ~ ", 400) + "'' }}", nest(2, "{{ 'q' in settings.long }}"),
		nest(2, "{{ settings.long == settings.long }}"),
	} {
		tpl, err := Parse(source, names)
		if err != nil {
			t.Errorf("%.80s: %v", source, err)
			continue
		}
		begin := cpuTime(t)
		if s, err := tpl.Render(v); err == nil {
			t.Errorf("%.80s gives %d bytes", source, len(s))
		}
		if d := cpuTime(t) - begin; d > 5*time.Second {
			t.Errorf("%.80s took %v", source, d)
		}
	}
}

// cpuTime returns the CPU time of this process: unlike the clock it does not count other processes on a busy machine.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestUses(t *testing.T) {
	tpl, err := Parse("{{ params.a }}{{ params.b | default('x') }}{{ 'y' if params['c'] is defined and params.d else params.a ~ "+
		"inputs.reads }}{% for x in params.e %}{{ x }}{% endfor %}", names)
	if err != nil {
		t.Fatal(err)
	}
	want := []Use{{"params", "a", true, false}, {"params", "b", false, true}, {"params", "c", false, true}, {"params", "d", false, false},
		{"params", "a", false, false}, {"inputs", "reads", false, false}, {"params", "e", false, false}}
	if d := cmp.Diff(want, tpl.Uses()); d != "" {
		t.Error(d)
	}
	for source, begins := range map[string]bool{"x": true, "--a={{ params.a }}": true, "{{ params.a }}": false, " {{- params.a }}": false,
		"{# c #}{{ params.a }}": false, "{% if params.a %}x{% endif %}": false} {
		if tpl, err := Parse(source, names); err != nil || tpl.Begins() != begins {
			t.Errorf("%s begins with its own text: %v, %v", source, !begins, err)
		}
	}
}

// One template renders in many calls at once.
func TestConcurrent(t *testing.T) {
	tpl, err := Parse("{% for x in params.list %}{{ x }}{{ loop.index }}{% endfor %}", names)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if s, err := tpl.Render(vars()); s != "x1y2z3" || err != nil {
					t.Error(s, err)
				}
			}
		})
	}
	wg.Wait()
}

// Any template is refused, or it renders within bounds, always the same.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"{{ params.n }}", "{% for x in params.list %}{{ loop.index }}{% endfor %}",
		"{% if params.flag %}a{% elif 1 %}b{% else %}c{% endif %}", "{{ params.list | join(',') | upper }}",
		"{{ 'a' if params.n is odd else 2 ** 3 }}", "{#- c -#}", "{{ params['a b'] ~ 1.5e3 }}", "{{ -1 // 2 % 3 }}", "{{ params.x | default(",
		"{% raw %}", "{{ (1, 2,) }}", "{{ {1: 2} }}", "{{ a[1:2:3] }}", "{%- if", "{{ 0x1f + 0b1 + 0o7 }}", "{{ \"\\u0000\\\"\" }}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tpl, err := Parse(source, names)
		if err != nil {
			return
		}
		first, err := tpl.Render(vars())
		if len(first) > max(MaxText, len(source)) {
			t.Fatal("too long")
		}
		again, err2 := tpl.Render(vars())
		if first != again || (err == nil) != (err2 == nil) {
			t.Fatalf("%q then %q", first, again)
		}
	})
}
