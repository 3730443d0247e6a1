package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/tokens"

	"slurmgate/plan"
)

const maxSafe = 1<<53 - 1 // the largest integer that JSON carries exactly

// undefined is the error for a name or member that does not exist.
type undefined struct{ what string }

func (u undefined) Error() string { return u.what + " is undefined" }

var errBudget = errors.New("the rendering takes too many steps")

// renderer is one rendering. After its first error nothing more is done.
type renderer struct {
	vars map[string]any
	out  strings.Builder
	left int
	err  error
}

// Render returns the text. vars contain nil, bool, int, float64, string, []any and map[string]any. Only strings and numbers
// can be printed: a list or a boolean is an error, since a program would read the wrong thing.
func (t *Template) Render(vars map[string]any) (string, error) {
	if t.Literal() {
		return t.source, nil
	}
	r := newRenderer(vars)
	if t.run(r); r.err != nil {
		return "", r.err
	}
	return r.out.String(), nil
}

func newRenderer(vars map[string]any) *renderer {
	r := &renderer{vars: maps.Clone(vars), left: maxSteps}
	if r.vars == nil {
		r.vars = map[string]any{}
	}
	return r
}

// fail notes the first error.
func (r *renderer) fail(err error) any {
	if r.err == nil {
		r.err = err
	}
	return nil
}

func (r *renderer) failf(format string, args ...any) any { return r.fail(fmt.Errorf(format, args...)) }

// undefined reports whether the rendering failed at something undefined, and lets it go on.
func (r *renderer) undefined() bool {
	_, absent := errors.AsType[undefined](r.err)
	if absent {
		r.err = nil
	}
	return absent
}

// pay reports whether the rendering may go on.
func (r *renderer) pay(steps int) bool {
	if r.left -= steps; r.left < 0 {
		r.fail(errBudget)
	}
	return r.err == nil
}

// text bounds a string that was just made, or is about to be.
func (r *renderer) text(bytes int) bool {
	if bytes > MaxText {
		r.failf("the text is longer than %d bytes", MaxText)
	}
	return r.pay(1 + bytes/64)
}

func (r *renderer) write(s string) {
	if r.text(r.out.Len() + len(s)) {
		r.out.WriteString(s)
	}
}

func (r *renderer) values(of []expr) []any {
	out := make([]any, len(of))
	for i, e := range of {
		out[i] = e(r)
	}
	return out
}

func (r *renderer) item(prefix string, owner, key any) any {
	switch v := owner.(type) {
	case map[string]any:
		if k, ok := key.(string); ok {
			if got, ok := v[k]; ok {
				return got
			}
		}
	case []any:
		if i, ok := key.(int); ok {
			if i < 0 {
				i += len(v)
			}
			if i >= 0 && i < len(v) {
				return v[i]
			}
		}
	}
	return r.fail(undefined{prefix + fmt.Sprint(key)})
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "none"
	case bool:
		return "a boolean"
	case int, float64:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "a list"
	}
	return "a mapping"
}

func (r *renderer) listOf(v any) []any {
	list, ok := v.([]any)
	if !ok {
		r.failf("expected a list, not %s", kindOf(v))
	}
	return list
}

// printed returns the form of a value in an argument: a string as it is, a number as canonical JSON writes it.
func (r *renderer) printed(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	case float64:
		raw, err := json.Marshal(v)
		if err == nil {
			raw, err = plan.Canonical(raw)
		}
		if err != nil {
			r.fail(err)
		}
		return string(raw)
	}
	r.failf("only a string or a number can be printed, not %s", kindOf(v))
	return ""
}

// truth follows Python: none, false, 0 and anything empty are false.
func truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return false
}

// operators take two values, of which neither need exist after an error.
var operators = map[tokens.Type]func(r *renderer, a, b any) any{
	tokens.Equals:             func(r *renderer, a, b any) any { return r.equal(a, b) },
	tokens.Ne:                 func(r *renderer, a, b any) any { return !r.equal(a, b) },
	tokens.LowerThan:          func(r *renderer, a, b any) any { return r.compare(a, b) < 0 },
	tokens.LowerThanOrEqual:   func(r *renderer, a, b any) any { return r.compare(a, b) <= 0 },
	tokens.GreaterThan:        func(r *renderer, a, b any) any { return r.compare(a, b) > 0 },
	tokens.GreaterThanOrEqual: func(r *renderer, a, b any) any { return r.compare(a, b) >= 0 },
	tokens.In:                 func(r *renderer, a, b any) any { return r.contains(b, a) },
	tokens.Tilde:              func(r *renderer, a, b any) any { return r.join("", r.printed(a), r.printed(b)) },
	tokens.Addition:           add,
	tokens.Subtraction:        arithmetic(func(x, y float64) float64 { return x - y }),
	tokens.Multiply:           arithmetic(func(x, y float64) float64 { return x * y }),
	tokens.Power:              power,
	tokens.Division:           division(func(x, y float64) float64 { return x / y }, false),
	tokens.FloorDivision:      division(func(x, y float64) float64 { return math.Floor(x / y) }, true),
	tokens.Modulo:             division(func(x, y float64) float64 { return x - y*math.Floor(x/y) }, true),
}

func add(r *renderer, a, b any) any {
	switch a := a.(type) {
	case string:
		if b, ok := b.(string); ok {
			return r.join("", a, b)
		}
	case []any:
		if b, ok := b.([]any); ok && r.pay(len(a)+len(b)) {
			return slices.Concat(a, b)
		}
	}
	return arithmetic(func(x, y float64) float64 { return x + y })(r, a, b)
}

func power(r *renderer, a, b any) any {
	if n, ok := number(b); ok && n < 0 {
		b = n // a fraction
	}
	return arithmetic(math.Pow)(r, a, b)
}

func division(f func(x, y float64) float64, whole bool) func(*renderer, any, any) any {
	return func(r *renderer, a, b any) any {
		if y, ok := number(b); ok && y == 0 {
			return r.failf("division by zero")
		}
		if y, ok := b.(int); ok && !whole {
			b = float64(y)
		}
		return arithmetic(f)(r, a, b)
	}
}

// arithmetic works on numbers; the result of integers is one. A result that JSON cannot carry is an error, not a wrong number.
func arithmetic(f func(x, y float64) float64) func(*renderer, any, any) any {
	return func(r *renderer, a, b any) any {
		x, ok := number(a)
		y, ok2 := number(b)
		if !ok || !ok2 {
			return r.failf("cannot calculate with %s and %s", kindOf(a), kindOf(b))
		}
		_, isInt := a.(int)
		_, isInt2 := b.(int)
		return r.sane(f(x, y), isInt && isInt2)
	}
}

// sane returns a number of the kind wanted, if it is one JSON carries.
func (r *renderer) sane(z float64, whole bool) any {
	if math.IsNaN(z) || math.IsInf(z, 0) || whole && math.Abs(z) > maxSafe {
		return r.failf("the result is not a number within ±(2^53-1)")
	}
	if whole {
		return int(z)
	}
	return z
}

// join is the only place where strings grow: they are measured before they are made.
func (r *renderer) join(separator string, parts ...string) any {
	total := len(separator) * max(0, len(parts)-1)
	for _, p := range parts {
		total += len(p)
	}
	if !r.pay(len(parts)) || !r.text(total) {
		return nil
	}
	return strings.Join(parts, separator)
}

func (r *renderer) equal(a, b any) bool {
	if !r.pay(1) {
		return false
	}
	switch a := a.(type) {
	case string:
		return r.pay(len(a)/64) && any(a) == b
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, r.equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, r.equal)
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return a == b // none and booleans
}

func (r *renderer) compare(a, b any) int {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y)
		}
	}
	x, ok := number(a)
	y, ok2 := number(b)
	switch {
	case !ok || !ok2:
		r.failf("%s and %s cannot be compared", kindOf(a), kindOf(b))
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func (r *renderer) contains(in, what any) bool {
	switch in := in.(type) {
	case []any:
		return slices.ContainsFunc(in, func(e any) bool { return r.equal(e, what) })
	case string:
		if s, ok := what.(string); ok {
			return r.text(len(in)) && strings.Contains(in, s)
		}
	case map[string]any:
		s, ok := what.(string)
		_, there := in[s]
		return ok && there
	}
	r.failf("%s in %s is not supported", kindOf(what), kindOf(in))
	return false
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
