package jinja

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

type filter struct {
	least, most int // arguments
	f           func(r *renderer, v any, args []any) (any, error)
}

// filters are those of Jinja2 that are useful in an argument of a program.
var filters = map[string]filter{
	"default": {1, 2, nil}, // evaluated in [renderer.filtered], because its operand may be undefined
	"d":       {1, 2, nil},
	"join":    {0, 1, joinFilter},
	"replace": {2, 2, replaceFilter},
	"upper":   {0, 0, ofText(strings.ToUpper)},
	"lower":   {0, 0, ofText(strings.ToLower)},
	"trim":    {0, 0, ofText(strings.TrimSpace)},
	"length":  {0, 0, lengthFilter},
	"count":   {0, 0, lengthFilter},
	"first":   {0, 0, endFilter(false)},
	"last":    {0, 0, endFilter(true)},
	"string":  {0, 0, func(_ *renderer, v any, _ []any) (any, error) { return printed(v) }},
	"int":     {0, 0, intFilter},
	"float":   {0, 0, floatFilter},
	"round":   {0, 1, roundFilter},
	"abs":     {0, 0, absFilter},
	"min":     {0, 0, extremeFilter(-1)},
	"max":     {0, 0, extremeFilter(1)},
	"sort":    {0, 0, sortFilter},
	"unique":  {0, 0, uniqueFilter},
}

func filterNames() []string { return slices.Sorted(maps.Keys(filters)) }

func ofText(f func(string) string) func(*renderer, any, []any) (any, error) {
	return func(r *renderer, v any, _ []any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("expected a string, not %s", kindOf(v))
		}
		return r.join("", f(s))
	}
}

func listOf(v any) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("expected a list, not %s", kindOf(v))
	}
	return list, nil
}

func joinFilter(r *renderer, v any, args []any) (any, error) {
	list, err := listOf(v)
	if err != nil {
		return nil, err
	}
	separator := ""
	if len(args) > 0 {
		if separator, err = printed(args[0]); err != nil {
			return nil, err
		}
	}
	parts := make([]string, len(list))
	for i, e := range list {
		if parts[i], err = printed(e); err != nil {
			return nil, err
		}
	}
	return r.join(separator, parts...)
}

func replaceFilter(r *renderer, v any, args []any) (any, error) {
	s, ok := v.(string)
	old, ok2 := args[0].(string)
	fresh, ok3 := args[1].(string)
	if !ok || !ok2 || !ok3 || old == "" {
		return nil, errors.New("expected strings; the string to replace must not be empty")
	}
	n := strings.Count(s, old)
	if err := r.text(len(s) + n*(len(fresh)-len(old))); err != nil {
		return nil, err
	}
	return strings.ReplaceAll(s, old, fresh), r.pay(len(s) / 64)
}

func lengthFilter(r *renderer, v any, _ []any) (any, error) {
	switch v := v.(type) {
	case string:
		return len([]rune(v)), r.text(len(v))
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	}
	return nil, fmt.Errorf("%s has no length", kindOf(v))
}

func endFilter(last bool) func(*renderer, any, []any) (any, error) {
	return func(_ *renderer, v any, _ []any) (any, error) {
		list, err := listOf(v)
		if err != nil {
			return nil, err
		}
		switch {
		case len(list) == 0:
			return nil, undefined{"an element of an empty list"}
		case last:
			return list[len(list)-1], nil
		}
		return list[0], nil
	}
}

func intFilter(_ *renderer, v any, _ []any) (any, error) {
	switch v := v.(type) {
	case int:
		return v, nil
	case float64:
		return sane(math.Trunc(v), true)
	case string:
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n > maxSafe || n < -maxSafe {
			return nil, errors.New("the string is not a decimal integer")
		}
		return int(n), nil
	}
	return nil, fmt.Errorf("%s is not a number", kindOf(v))
}

func floatFilter(_ *renderer, v any, _ []any) (any, error) {
	if f, ok := number(v); ok {
		return f, nil
	}
	s, ok := v.(string)
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if !ok || err != nil {
		return nil, fmt.Errorf("%s is not a number", kindOf(v))
	}
	return sane(f, false)
}

func roundFilter(_ *renderer, v any, args []any) (any, error) {
	f, ok := number(v)
	if !ok {
		return nil, fmt.Errorf("expected a number, not %s", kindOf(v))
	}
	digits := 0
	if len(args) > 0 {
		if digits, ok = args[0].(int); !ok || digits < 0 || digits > 15 {
			return nil, errors.New("the number of digits must be an integer from 0 to 15")
		}
	}
	z, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	if err != nil {
		return nil, err
	}
	return sane(z, false)
}

func absFilter(_ *renderer, v any, _ []any) (any, error) {
	f, ok := number(v)
	if !ok {
		return nil, fmt.Errorf("expected a number, not %s", kindOf(v))
	}
	_, whole := v.(int)
	return sane(math.Abs(f), whole)
}

func extremeFilter(sign int) func(*renderer, any, []any) (any, error) {
	return func(r *renderer, v any, _ []any) (any, error) {
		list, err := listOf(v)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, undefined{"an element of an empty list"}
		}
		best := list[0]
		for _, e := range list[1:] {
			c, err := compare(e, best)
			if err != nil {
				return nil, err
			}
			if c*sign > 0 {
				best = e
			}
		}
		return best, r.pay(len(list))
	}
}

func sortFilter(r *renderer, v any, _ []any) (any, error) {
	list, err := listOf(v)
	if err != nil {
		return nil, err
	}
	if err := r.pay(16 * len(list)); err != nil {
		return nil, err
	}
	out, failed := slices.Clone(list), error(nil)
	slices.SortStableFunc(out, func(a, b any) int {
		c, err := compare(a, b)
		if err != nil {
			failed = err
		}
		return c
	})
	return out, failed
}

func uniqueFilter(r *renderer, v any, _ []any) (any, error) {
	list, err := listOf(v)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for _, e := range list {
		there, err := r.contains(out, e)
		if err != nil {
			return nil, err
		}
		if !there {
			out = append(out, e)
		}
	}
	return out, nil
}

type test struct {
	args int
	f    func(r *renderer, v any, args []any) (bool, error)
}

// tests come after "is". The parser returns comparisons and "in" in that form too.
var tests = map[string]test{
	"defined":   {0, nil}, // evaluated in [renderer.test], because the operand may be undefined
	"undefined": {0, nil},
	"none":      {0, kindIs("none")},
	"boolean":   {0, kindIs("a boolean")},
	"number":    {0, kindIs("a number")},
	"string":    {0, kindIs("a string")},
	"sequence":  {0, kindIs("a list")},
	"mapping":   {0, kindIs("a mapping")},
	"odd":       {0, parity(1)},
	"even":      {0, parity(0)},
	"in":        {1, func(r *renderer, v any, args []any) (bool, error) { return r.contains(args[0], v) }},
	"<":         {1, ordered(func(c int) bool { return c < 0 })},
	"<=":        {1, ordered(func(c int) bool { return c <= 0 })},
	">":         {1, ordered(func(c int) bool { return c > 0 })},
	">=":        {1, ordered(func(c int) bool { return c >= 0 })},
}

func testNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(tests)), func(n string) bool { return n[0] < 'a' })
}

func kindIs(kind string) func(*renderer, any, []any) (bool, error) {
	return func(_ *renderer, v any, _ []any) (bool, error) { return kindOf(v) == kind, nil }
}

func parity(rest int) func(*renderer, any, []any) (bool, error) {
	return func(_ *renderer, v any, _ []any) (bool, error) {
		n, ok := v.(int)
		if !ok {
			return false, fmt.Errorf("expected an integer, not %s", kindOf(v))
		}
		return n&1 == rest, nil
	}
}

func ordered(ok func(int) bool) func(*renderer, any, []any) (bool, error) {
	return func(_ *renderer, v any, args []any) (bool, error) {
		c, err := compare(v, args[0])
		return err == nil && ok(c), err
	}
}
