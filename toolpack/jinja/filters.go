package jinja

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/tokens"
)

type filter struct {
	least, most int // arguments
	f           func(r *renderer, v any, args []any) any
}

// filters has the filters of Jinja2 that are useful in an argument of a program.
var filters = map[string]filter{
	"default": {1, 2, nil}, // evaluated in [compiler.filtered], because its operand may be undefined
	"d":       {1, 2, nil},
	"join":    {0, 1, joinFilter},
	"replace": {2, 2, replaceFilter},
	"upper":   ofText(strings.ToUpper),
	"lower":   ofText(strings.ToLower),
	"trim":    ofText(strings.TrimSpace),
	"length":  {0, 0, lengthFilter},
	"count":   {0, 0, lengthFilter},
	"first":   ofList(func(_ *renderer, list []any) any { return list[0] }),
	"last":    ofList(func(_ *renderer, list []any) any { return list[len(list)-1] }),
	"string":  {0, 0, func(r *renderer, v any, _ []any) any { return r.printed(v) }},
	"int":     {0, 0, intFilter},
	"float":   {0, 0, floatFilter},
	"round":   {0, 1, roundFilter},
	"abs":     {0, 0, absFilter},
	"min":     ofList(func(r *renderer, list []any) any { return slices.MinFunc(list, r.compare) }),
	"max":     ofList(func(r *renderer, list []any) any { return slices.MaxFunc(list, r.compare) }),
	"sort":    {0, 0, sortFilter},
	"unique":  {0, 0, uniqueFilter},
}

func isDefault(filter string) bool { return filter == "default" || filter == "d" }

func filterNames() []string { return slices.Sorted(maps.Keys(filters)) }

func ofText(f func(string) string) filter {
	return filter{0, 0, func(r *renderer, v any, _ []any) any {
		s, ok := v.(string)
		if !ok {
			return r.failf("expected a string, not %s", kindOf(v))
		}
		return r.join("", f(s))
	}}
}

// ofList returns a filter that picks an element of a list.
func ofList(f func(r *renderer, list []any) any) filter {
	return filter{0, 0, func(r *renderer, v any, _ []any) any {
		list := r.listOf(v)
		if len(list) == 0 {
			return r.fail(undefined{"an element of an empty list"})
		}
		r.pay(len(list))
		return f(r, list)
	}}
}

func joinFilter(r *renderer, v any, args []any) any {
	separator := ""
	if len(args) > 0 {
		separator = r.printed(args[0])
	}
	var parts []string
	for _, e := range r.listOf(v) {
		parts = append(parts, r.printed(e))
	}
	return r.join(separator, parts...)
}

func replaceFilter(r *renderer, v any, args []any) any {
	s, ok := v.(string)
	old, ok2 := args[0].(string)
	fresh, ok3 := args[1].(string)
	if !ok || !ok2 || !ok3 || old == "" {
		return r.failf("expected strings; the string to replace must not be empty")
	}
	if n := strings.Count(s, old); !r.pay(len(s)/64) || !r.text(len(s)+n*(len(fresh)-len(old))) {
		return nil
	}
	return strings.ReplaceAll(s, old, fresh)
}

func lengthFilter(r *renderer, v any, _ []any) any {
	switch v := v.(type) {
	case string:
		r.text(len(v))
		return len([]rune(v))
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	}
	return r.failf("%s has no length", kindOf(v))
}

func intFilter(r *renderer, v any, _ []any) any {
	switch v := v.(type) {
	case int:
		return v
	case float64:
		return r.sane(math.Trunc(v), true)
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n > maxSafe || n < -maxSafe {
			return r.failf("the string is not a decimal integer")
		}
		return int(n)
	}
	return r.failf("%s is not a number", kindOf(v))
}

func floatFilter(r *renderer, v any, _ []any) any {
	f, ok := number(v)
	if s, isText := v.(string); isText {
		var err error
		f, err = strconv.ParseFloat(strings.TrimSpace(s), 64)
		ok = err == nil
	}
	if !ok {
		return r.failf("%s is not a number", kindOf(v))
	}
	return r.sane(f, false)
}

func roundFilter(r *renderer, v any, args []any) any {
	f, ok := number(v)
	if !ok {
		return r.failf("expected a number, not %s", kindOf(v))
	}
	digits := 0
	if len(args) > 0 {
		if digits, ok = args[0].(int); !ok || digits < 0 || digits > 15 {
			return r.failf("the number of digits must be an integer from 0 to 15")
		}
	}
	z, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	if err != nil {
		return r.fail(err)
	}
	return r.sane(z, false)
}

func absFilter(r *renderer, v any, _ []any) any {
	f, ok := number(v)
	if !ok {
		return r.failf("expected a number, not %s", kindOf(v))
	}
	_, whole := v.(int)
	return r.sane(math.Abs(f), whole)
}

func sortFilter(r *renderer, v any, _ []any) any {
	out := slices.Clone(r.listOf(v))
	if r.pay(16 * len(out)) {
		slices.SortStableFunc(out, r.compare)
	}
	return out
}

func uniqueFilter(r *renderer, v any, _ []any) any {
	out := []any{}
	for _, e := range r.listOf(v) {
		there := r.contains(out, e)
		if r.err != nil {
			return nil
		}
		if !there {
			out = append(out, e)
		}
	}
	return out
}

type test struct {
	args int
	f    func(r *renderer, v any, args []any) any
}

// tests come after "is". The parser returns comparisons and "in" in that form too.
var tests = map[string]test{
	"defined":   {0, nil}, // evaluated in [compiler.test], because the operand may be undefined
	"undefined": {0, nil},
	"none":      kindIs("none"),
	"boolean":   kindIs("a boolean"),
	"number":    kindIs("a number"),
	"string":    kindIs("a string"),
	"sequence":  kindIs("a list"),
	"mapping":   kindIs("a mapping"),
	"odd":       parity(1),
	"even":      parity(0),
	"in":        comparison(tokens.In),
	"<":         comparison(tokens.LowerThan),
	"<=":        comparison(tokens.LowerThanOrEqual),
	">":         comparison(tokens.GreaterThan),
	">=":        comparison(tokens.GreaterThanOrEqual),
}

func testNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(tests)), func(n string) bool { return n[0] < 'a' })
}

func kindIs(kind string) test {
	return test{0, func(_ *renderer, v any, _ []any) any { return kindOf(v) == kind }}
}

func parity(rest int) test {
	return test{0, func(r *renderer, v any, _ []any) any {
		n, ok := v.(int)
		if !ok {
			return r.failf("expected an integer, not %s", kindOf(v))
		}
		return n&1 == rest
	}}
}

func comparison(op tokens.Type) test {
	return test{1, func(r *renderer, v any, args []any) any { return operators[op](r, v, args[0]) }}
}
