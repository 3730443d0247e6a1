package yamldoc

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slurmgate/plan"
)

// Value is one place in the document, present or not. Reading an absent value, or one already reported, returns the zero
// value and records nothing.
type Value struct {
	r    *Reader
	n    *yaml.Node // nil when absent
	path string
	at   place
}

// Exists reports whether the document has the value.
func (v Value) Exists() bool { return v.n != nil }

// Field returns a field of a mapping without checking the others; it does not exist if the value is not a mapping.
func (v Value) Field(key string) Value {
	for i := 0; v.IsMap() && i+1 < len(v.n.Content); i += 2 {
		if k := v.n.Content[i]; k.Value == key {
			return Value{v.r, v.n.Content[i+1], join(v.path, key), of(k)}
		}
	}
	return Value{r: v.r, path: join(v.path, key), at: v.at}
}

// Peek returns the text of a field without recording anything; empty if absent.
func (v Value) Peek(key string) string {
	if f := v.Field(key); f.IsText() && f.n.ShortTag() == "!!str" {
		return f.n.Value
	}
	return ""
}

// IsText reports whether the value is a string, a number or the like: neither a mapping nor a list.
func (v Value) IsText() bool { return v.n != nil && v.n.Kind == yaml.ScalarNode }

// UnlessNull returns the value, or an absent one where the document has null.
func (v Value) UnlessNull() Value {
	if v.n != nil && v.n.Kind == yaml.ScalarNode && v.n.ShortTag() == "!!null" && v.n.Style&yaml.TaggedStyle == 0 {
		v.n = nil
	}
	return v
}

// IsMap reports whether the value is a mapping.
func (v Value) IsMap() bool { return v.n != nil && v.n.Kind == yaml.MappingNode }

// Has reports whether the value is a mapping with the key.
func (v Value) Has(key string) bool { return v.Field(key).Exists() }

// Path returns the value's place, e.g. inputs[0].role.
func (v Value) Path() string { return v.path }

// Place returns the value's line and column, those of its key where it has one; 0 when it is absent.
func (v Value) Place() (line, column int) { return v.at.line, v.at.column }

// Fail records a problem with this value.
func (v Value) Fail(code, rule, msg, hint string) { v.r.add(code, v.path, rule, msg, hint, v.at) }

func (v Value) usable() bool { return v.n != nil && !v.r.silent[v.n] }

func (v Value) wrongType(want, hint string) {
	got := map[string]string{"!!map": "a mapping", "!!seq": "a list", "!!str": "a string", "!!int": "a number", "!!float": "a number",
		"!!bool": "true or false", "!!null": "empty", "!!timestamp": "a date"}[v.n.ShortTag()]
	if v.n.Kind == yaml.ScalarNode && v.n.Value != "" {
		got += " (" + clip(v.n.Value) + ")"
	}
	v.Fail("TYPE", want, "it is "+strings.TrimSpace(got)+", not "+want, hint)
	v.r.silent[v.n] = true
}

// Text reads a string. Unquoted text that YAML reads as a number, a date, a boolean or null is refused.
func (v Value) Text() string {
	if !v.usable() {
		return ""
	}
	if v.n.Kind != yaml.ScalarNode || v.n.ShortTag() != "!!str" {
		hint := ""
		if v.n.Kind == yaml.ScalarNode && v.n.Value != "" {
			hint = "put it in quotes"
		}
		v.wrongType("a string", hint)
		return ""
	}
	return v.n.Value
}

// Time reads a string or an unquoted date, as it is written.
func (v Value) Time() string {
	if v.usable() && v.n.ShortTag() == "!!timestamp" {
		return v.n.Value
	}
	return v.Text()
}

// Match reads a string that must match a pattern; rule describes it.
func (v Value) Match(re *regexp.Regexp, code, rule string) string {
	s := v.Text()
	if v.usable() && !re.MatchString(s) {
		v.Fail(code, rule, `"`+clip(s)+`" does not have the right form`, "")
		return ""
	}
	return s
}

// OneOf reads one of some strings.
func (v Value) OneOf(code string, words ...string) string {
	s := v.Text()
	if v.usable() && !slices.Contains(words, s) {
		v.Fail(code, "one of "+strings.Join(words, ", "), `"`+clip(s)+`" is not allowed here`, plan.DidYouMean(s, words))
		return ""
	}
	return s
}

// Bool reads true or false.
func (v Value) Bool() bool {
	if !v.usable() {
		return false
	}
	if v.n.Kind != yaml.ScalarNode || v.n.ShortTag() != "!!bool" || v.n.Value != "true" && v.n.Value != "false" {
		v.wrongType("true or false", "")
		return false
	}
	return v.n.Value == "true"
}

var decimal = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,18})$`)

// Int reads a decimal integer from low to high.
func (v Value) Int(low, high int64) int64 {
	if !v.usable() {
		return 0
	}
	if v.n.Kind != yaml.ScalarNode || v.n.ShortTag() != "!!int" || !decimal.MatchString(v.n.Value) {
		v.wrongType("a decimal integer", "")
		return 0
	}
	i, err := strconv.ParseInt(v.n.Value, 10, 64)
	if err != nil || i < low || i > high {
		v.Fail("RANGE", fmt.Sprintf("%d to %d", low, high), v.n.Value+" is out of range", "")
		return 0
	}
	return i
}

// Number reads a number from low to high.
func (v Value) Number(low, high float64) float64 {
	if !v.usable() {
		return 0
	}
	f, err := strconv.ParseFloat(v.n.Value, 64)
	if tag := v.n.ShortTag(); v.n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" || err != nil {
		v.wrongType("a number", "")
		return 0
	}
	if !(f >= low && f <= high) { // NaN is neither
		v.Fail("RANGE", fmt.Sprintf("%g to %g", low, high), v.n.Value+" is out of range", "")
		return 0
	}
	return f
}

// List reads a list.
func (v Value) List() []Value {
	if !v.usable() {
		return nil
	}
	if v.n.Kind != yaml.SequenceNode {
		v.wrongType("a list", "")
		return nil
	}
	out := make([]Value, len(v.n.Content))
	for i, c := range v.n.Content {
		out[i] = Value{v.r, c, fmt.Sprintf("%s[%d]", v.path, i), of(c)}
	}
	return out
}

// Words reads a list of distinct strings, each of which must pass ok; rule describes what ok requires.
func (v Value) Words(code, rule string, ok func(string) bool) []string {
	return v.WordsOr(code, rule, "", ok)
}

// WordsOr is Words with advice for a string that does not pass.
func (v Value) WordsOr(code, rule, hint string, ok func(string) bool) []string {
	list := v.List()
	if list == nil {
		return nil
	}
	out := []string{}
	for _, e := range list {
		s := e.Text()
		switch {
		case !e.usable():
		case !ok(s):
			e.Fail(code, rule, `"`+clip(s)+`" is not allowed here`, hint)
		case slices.Contains(out, s):
			e.Fail(code, "each value once", `"`+clip(s)+`" appears twice`, "remove one of the two")
		default:
			out = append(out, s)
		}
	}
	return out
}

// Entry is one key of a mapping whose keys are data.
type Entry struct {
	Key string
	Value
}

// Entries reads a mapping whose keys are data, in the order of the document.
func (v Value) Entries() []Entry {
	if !v.usable() {
		return nil
	}
	if v.n.Kind != yaml.MappingNode {
		v.wrongType("a mapping", "")
		return nil
	}
	var out []Entry
	for i := 0; i+1 < len(v.n.Content); i += 2 {
		k := v.n.Content[i]
		if !v.r.silent[k] {
			out = append(out, Entry{k.Value, Value{v.r, v.n.Content[i+1], join(v.path, k.Value), of(k)}})
		}
	}
	return out
}

// Object is a mapping whose keys are fields of the format.
type Object struct {
	Value
	fields map[string]Value
	misput map[string]bool // fields that are present in another spelling
}

// Object reads a mapping and refuses every key that is not in known.
func (v Value) Object(known ...string) Object {
	o := Object{Value: v, fields: map[string]Value{}, misput: map[string]bool{}}
	for _, e := range v.Entries() {
		if slices.Contains(known, e.Key) {
			o.fields[e.Key] = e.Value
			continue
		}
		i := slices.IndexFunc(known, func(k string) bool { return plan.Fold(k) == plan.Fold(e.Key) })
		switch {
		case i < 0:
			e.Fail("UNKNOWN-FIELD", "only "+strings.Join(known, ", "), "there is no such field", plan.DidYouMean(e.Key, known))
		case v.r.Case == Camel && strings.ContainsAny(e.Key, "_-"):
			e.Fail("SNAKE-CASE", "a name in camelCase", "the name is not in camelCase", "write "+known[i])
		default:
			e.Fail("UNKNOWN-FIELD", "only "+strings.Join(known, ", "), "there is no such field", "write "+known[i])
		}
		if i >= 0 {
			o.misput[known[i]] = true
		}
	}
	return o
}

// Opt returns a field that may be absent.
func (o Object) Opt(name string) Value {
	if f, ok := o.fields[name]; ok {
		return f
	}
	return Value{r: o.r, path: join(o.path, name), at: o.at}
}

// Need returns a field and records its absence, unless the object itself is absent or the field is misspelt.
func (o Object) Need(name string) Value { return o.NeedOr(name, "") }

// NeedOr is Need with advice where the field is missing.
func (o Object) NeedOr(name, hint string) Value {
	f := o.Opt(name)
	if !f.Exists() && o.usable() && o.n.Kind == yaml.MappingNode && !o.misput[name] {
		f.Fail("REQUIRED", "required", "the field is missing", hint)
	}
	return f
}

// Fields returns the keys of a section that a struct describes by its tags yaml, in order, and the field of each. The
// fields of an embedded struct belong to the section itself.
func Fields(t reflect.Type) (known map[string][]int, order []string) {
	known = map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); f.IsExported() && !f.Anonymous && name != "-" {
			known[name] = f.Index
			order = append(order, name)
		}
	}
	return known, order
}
