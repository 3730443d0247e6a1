package jinja

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/tokens"

	"slurmgate/plan"
)

const maxSafe = 1<<53 - 1 // the largest integer that JSON carries exactly

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

// printed is the form of a value in an argument: a string as it is, a number as canonical JSON writes it.
func printed(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		raw, err := json.Marshal(v)
		if err == nil {
			raw, err = plan.Canonical(raw)
		}
		return string(raw), err
	}
	return "", fmt.Errorf("only a string or a number can be printed, not %s", kindOf(v))
}

// truth follows Python: none, false, 0 and anything empty are false.
func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
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
	return true
}

func (r *renderer) operate(op tokens.Type, left, right any) (any, error) {
	switch op {
	case tokens.Equals, tokens.Ne:
		same, err := r.equal(left, right)
		return same == (op == tokens.Equals), err
	case tokens.LowerThan, tokens.LowerThanOrEqual, tokens.GreaterThan, tokens.GreaterThanOrEqual:
		c, err := compare(left, right)
		switch op {
		case tokens.LowerThan:
			return c < 0, err
		case tokens.LowerThanOrEqual:
			return c <= 0, err
		case tokens.GreaterThan:
			return c > 0, err
		}
		return c >= 0, err
	case tokens.In:
		return r.contains(right, left)
	case tokens.Tilde:
		a, err := printed(left)
		if err != nil {
			return nil, err
		}
		b, err := printed(right)
		if err != nil {
			return nil, err
		}
		return r.join("", a, b)
	case tokens.Addition:
		if a, ok := left.(string); ok {
			if b, ok := right.(string); ok {
				return r.join("", a, b)
			}
		}
		if a, ok := left.([]any); ok {
			if b, ok := right.([]any); ok {
				return slices.Concat(a, b), r.pay(len(a) + len(b))
			}
		}
	}
	return arithmetic(op, left, right)
}

// join is the only place where strings grow: they are measured before they are made.
func (r *renderer) join(separator string, parts ...string) (any, error) {
	total := len(separator) * max(0, len(parts)-1)
	for _, p := range parts {
		total += len(p)
	}
	if err := r.pay(len(parts)); err != nil {
		return nil, err
	}
	if err := r.text(total); err != nil {
		return nil, err
	}
	return strings.Join(parts, separator), nil
}

func (r *renderer) equal(a, b any) (bool, error) {
	if err := r.pay(1); err != nil {
		return false, err
	}
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a == b, r.pay(len(a) / 64)
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false, nil
		}
		for i := range a {
			if same, err := r.equal(a[i], b[i]); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false, nil
		}
		for k := range a {
			other, ok := b[k]
			if !ok {
				return false, nil
			}
			if same, err := r.equal(a[k], other); !same || err != nil {
				return false, err
			}
		}
		return true, nil
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y, nil
	}
	_, isString := b.(string)
	_, isList := b.([]any)
	_, isMap := b.(map[string]any)
	return !isString && !isList && !isMap && a == b, nil
}

func compare(a, b any) (int, error) {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	}
	x, ok := number(a)
	y, ok2 := number(b)
	if !ok || !ok2 {
		return 0, fmt.Errorf("%s and %s cannot be compared", kindOf(a), kindOf(b))
	}
	switch {
	case x < y:
		return -1, nil
	case x > y:
		return 1, nil
	}
	return 0, nil
}

func (r *renderer) contains(in, what any) (bool, error) {
	switch in := in.(type) {
	case []any:
		for _, e := range in {
			if same, err := r.equal(e, what); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case string:
		if s, ok := what.(string); ok {
			return strings.Contains(in, s), r.text(len(in))
		}
	case map[string]any:
		s, ok := what.(string)
		_, there := in[s]
		return ok && there, nil
	}
	return false, fmt.Errorf("%s in %s is not supported", kindOf(what), kindOf(in))
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

// arithmetic works on numbers. A result that JSON cannot carry is an error, not a wrong number.
func arithmetic(op tokens.Type, left, right any) (any, error) {
	x, ok := number(left)
	y, ok2 := number(right)
	if !ok || !ok2 {
		return nil, fmt.Errorf("cannot calculate with %s and %s", kindOf(left), kindOf(right))
	}
	_, isInt := left.(int)
	_, isInt2 := right.(int)
	whole := isInt && isInt2
	var z float64
	switch op {
	case tokens.Addition:
		z = x + y
	case tokens.Subtraction:
		z = x - y
	case tokens.Multiply:
		z = x * y
	case tokens.Power:
		z = math.Pow(x, y)
		whole = whole && y >= 0
	case tokens.Division, tokens.FloorDivision, tokens.Modulo:
		if y == 0 {
			return nil, errors.New("division by zero")
		}
		z = x / y
		if op != tokens.Division {
			z = math.Floor(z)
		}
		if op == tokens.Modulo {
			z = x - y*z
		}
		whole = whole && op != tokens.Division
	default:
		return nil, errors.New("the operator is not supported")
	}
	return sane(z, whole)
}

// sane returns a number of the kind wanted, if it is one JSON carries.
func sane(z float64, whole bool) (any, error) {
	if math.IsNaN(z) || math.IsInf(z, 0) || whole && math.Abs(z) > maxSafe {
		return nil, errors.New("the result is not a number within ±(2^53-1)")
	}
	if whole {
		return int(z), nil
	}
	return z, nil
}
