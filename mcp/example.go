package mcp

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

const (
	maxRepeated = 80  // bytes of a caller's argument that is repeated in an example
	maxExample  = 800 // bytes of the arguments of an example, as far as placeholders can keep them within it
	asGiven     = "… (as given)"
)

// schemaNode is the part of a JSON schema that an example needs.
type schemaNode struct {
	Type       any                   `json:"type"`
	Properties map[string]schemaNode `json:"properties"`
	Required   []string              `json:"required"`
	Enum       []any                 `json:"enum"`
	Const      any                   `json:"const"`
	Default    any                   `json:"default"`
	Examples   []any                 `json:"examples"`
	Minimum    *float64              `json:"minimum"`
	Maximum    *float64              `json:"maximum"`
	MinItems   int                   `json:"minItems"`
	Items      *schemaNode           `json:"items"`
	Pattern    string                `json:"pattern"`
}

// example returns the arguments of a corrected call. It has every argument of the caller: a valid one unchanged, a
// misnamed one under the name that it most likely means, a wrong value as the schema takes it, or else a value that
// shows the form. It also has a value for each required argument that is missing. Only what means no argument of the
// tool, and an optional argument that is null, are left out.
func example(t gate.Tool, given json.RawMessage, d details) string {
	var s schemaNode
	var args map[string]json.RawMessage
	if json.Unmarshal(inlined(takingFiles(t)), &s) != nil {
		return "{}"
	}
	_ = json.Unmarshal(given, &args) // what is no object has nothing to repeat
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		meant := s.meant(name, args)
		p, known := s.Properties[meant]
		switch raw := args[name]; {
		case !known || string(raw) == "null" && !slices.Contains(s.Required, meant):
		case meant != name:
			out[meant] = p.corrected(raw)
		case d.blames(name):
			if out[name] = p.corrected(raw); sameJSON(out[name], raw) { // the schema does not say what is wrong with it
				out[name] = p.sample()
			}
		default:
			out[meant] = raw
		}
	}
	for _, name := range s.Required {
		if _, has := out[name]; !has {
			out[name] = s.Properties[name].sample()
		}
	}
	return exampleJSON(out)
}

// meant returns the parameter that an argument's name means: itself, the nearest that the caller did not use, or the
// only required one that is missing, if it takes the value.
func (s schemaNode) meant(name string, given map[string]json.RawMessage) string {
	if _, known := s.Properties[name]; known {
		return name
	}
	var free, missing []string
	for _, p := range slices.Sorted(maps.Keys(s.Properties)) {
		if _, taken := given[p]; taken {
			continue
		}
		if free = append(free, p); slices.Contains(s.Required, p) {
			missing = append(missing, p)
		}
	}
	if near := plan.Nearest(name, free); near != "" {
		return near
	}
	if len(missing) == 1 && s.Properties[missing[0]].takes(given[name]) {
		return missing[0]
	}
	return ""
}

// takes reports whether the schema takes a value as it is.
func (s schemaNode) takes(raw json.RawMessage) bool {
	v, err := decoded(raw)
	if err != nil {
		return false
	}
	fixed, ok := s.fit(v)
	return ok && sameJSON(fixed, raw)
}

// decoded reads a value with its numbers as they are written.
func decoded(raw json.RawMessage) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return v, dec.Decode(&v)
}

// exampleJSON writes arguments as JSON. Long ones, the longest first, become a placeholder.
func exampleJSON(args map[string]any) string {
	texts := map[string]string{}
	for name, v := range args {
		raw, err := plan.Marshal(v)
		if err != nil {
			raw = []byte(strconv.Quote(asGiven))
		}
		texts[name] = string(raw)
	}
	names := slices.SortedFunc(maps.Keys(texts), func(a, b string) int { return len(texts[b]) - len(texts[a]) })
	total := 2
	for name, text := range texts {
		total += len(name) + len(text) + 4
	}
	for _, name := range names {
		if long := len(texts[name]); long > maxRepeated || total > maxExample && long > len(asGiven)+2 {
			short := placeholder(texts[name])
			total, texts[name] = total-long+len(short), short
		}
	}
	var b bytes.Buffer
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(name) + ":" + texts[name])
	}
	return "{" + plain(b.String(), 2*maxExample) + "}"
}

// placeholder replaces a value of an example that is too long to repeat: a list keeps its first element.
func placeholder(text string) string {
	var list []json.RawMessage
	if json.Unmarshal([]byte(text), &list) == nil && len(list) > 1 && len(list[0]) <= maxRepeated/2 {
		return "[" + string(list[0]) + `,"` + asGiven + `"]`
	}
	return `"` + asGiven + `"`
}

// blames reports whether a problem is about the argument.
func (d details) blames(name string) bool {
	return slices.ContainsFunc(d.Problems, func(p fault.Problem) bool {
		field := strings.TrimPrefix(p.Field, "args.")
		return field == name || strings.HasPrefix(field, name+".") || strings.HasPrefix(field, name+"[")
	})
}

// corrected returns a valid value in place of a caller's: the same in the right type, the nearest bound or word, or
// else a sample.
func (s schemaNode) corrected(raw json.RawMessage) any {
	if v, err := decoded(raw); err == nil {
		if fixed, ok := s.fit(v); ok {
			return fixed
		}
	}
	return s.sample()
}

// sameJSON reports whether a value equals a text of JSON.
func sameJSON(v any, raw json.RawMessage) bool {
	one, err1 := plan.Marshal(v)
	two, err2 := plan.Marshal(raw)
	return err1 == nil && err2 == nil && string(one) == string(two)
}

// fit turns a value into one that the schema takes; false if there is no such value.
func (s schemaNode) fit(v any) (any, bool) {
	if len(s.Enum) > 0 {
		return s.listed(v)
	}
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	switch s.Type {
	case "integer", "number":
		if isText {
			number = json.Number(strings.TrimSpace(text))
		}
		return s.within(number)
	case "boolean":
		if b, err := strconv.ParseBool(strings.TrimSpace(text)); isText && err == nil {
			return b, true
		}
		_, is := v.(bool)
		return v, is
	case "string":
		if isNumber {
			text, isText = number.String(), true
		}
		if b, is := v.(bool); is {
			text, isText = strconv.FormatBool(b), true
		}
		re, err := regexp.Compile(s.Pattern)
		return text, isText && err == nil && re.MatchString(text)
	case "array":
		return s.list(v)
	case "object":
		return s.object(v)
	}
	return v, true
}

// listed returns the word of an enumeration that is nearest to a value.
func (s schemaNode) listed(v any) (any, bool) {
	var words []string
	for _, e := range s.Enum {
		if text, is := e.(string); is {
			words = append(words, text)
		}
	}
	text, is := v.(string)
	if near := plan.Nearest(text, words); is && near != "" {
		return near, true
	}
	return nil, false
}

// within returns the nearest number within the bounds.
func (s schemaNode) within(n json.Number) (any, bool) {
	x, err := n.Float64()
	switch {
	case err != nil:
		return nil, false
	case s.Minimum != nil && x < *s.Minimum:
		return *s.Minimum, true
	case s.Maximum != nil && x > *s.Maximum:
		return *s.Maximum, true
	case s.Type == "integer" && x != float64(int64(x)):
		return int64(x), true
	}
	return x, true
}

// list fits the elements of a list. A text may be one as JSON, and another value is its only element.
func (s schemaNode) list(v any) (any, bool) {
	list, is := v.([]any)
	if text, isText := v.(string); isText && json.Unmarshal([]byte(text), &list) == nil {
		is = true
	}
	if !is {
		list = []any{v}
	}
	out := []any{}
	for _, item := range list {
		if s.Items == nil {
			out = append(out, item)
		} else if fixed, ok := s.Items.fit(item); ok {
			out = append(out, fixed)
		} else {
			out = append(out, s.Items.sample())
		}
	}
	return out, true
}

// object fits the members of an object. A text may be one as JSON.
func (s schemaNode) object(v any) (any, bool) {
	o, is := v.(map[string]any)
	if text, isText := v.(string); isText && json.Unmarshal([]byte(text), &o) == nil {
		is = true
	}
	if !is {
		return nil, false
	}
	out := map[string]any{}
	for name, x := range o {
		p, known := s.Properties[name]
		if fixed, ok := p.fit(x); known && ok {
			out[name] = fixed
		} else if known {
			out[name] = p.sample()
		}
	}
	form := len(o) > 0 && len(out) == 0 // nothing of it fits
	for name, p := range s.Properties {
		if _, has := out[name]; !has && (form || slices.Contains(s.Required, name)) {
			out[name] = p.sample()
		}
	}
	return out, true
}

// sample returns a value that shows the form of an argument.
func (s schemaNode) sample() any {
	for _, v := range slices.Concat(s.Examples, []any{s.Const}, s.Enum, []any{s.Default}) {
		if v != nil {
			return v
		}
	}
	for _, id := range []string{"run", "art"} {
		if rest, is := strings.CutPrefix(strings.TrimLeft(s.Pattern, "^("), id); is && strings.ContainsAny(rest[:min(1, len(rest))], "_|") {
			return id + "_…"
		}
	}
	switch s.Type {
	case "integer", "number":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 1
	case "boolean":
		return true
	case "array":
		out := []any{}
		for s.Items != nil && len(out) < min(s.MinItems, 2) {
			out = append(out, s.Items.sample())
		}
		return out
	case "object":
		out := map[string]any{}
		for _, name := range s.Required {
			out[name] = s.Properties[name].sample()
		}
		return out
	}
	return "…"
}
