package jinja

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// undefined is the error for a name or member that does not exist.
type undefined struct{ what string }

func (u undefined) Error() string { return u.what + " is undefined" }

var errBudget = errors.New("the rendering takes too many steps")

// renderer is one rendering.
type renderer struct {
	vars map[string]any
	out  strings.Builder
	left int
}

// Render returns the text. vars contain nil, bool, int, float64, string, []any and map[string]any. Only strings and numbers
// can be printed: a list or a boolean is an error, since a program would read the wrong thing.
func (t *Template) Render(vars map[string]any) (string, error) {
	if t.nodes == nil {
		return t.source, nil
	}
	r := &renderer{vars: map[string]any{}, left: maxSteps}
	for k, v := range vars {
		r.vars[k] = v
	}
	if err := r.nodes(t.nodes); err != nil {
		return "", err
	}
	return r.out.String(), nil
}

func (r *renderer) pay(steps int) error {
	if r.left -= steps; r.left < 0 {
		return errBudget
	}
	return nil
}

// text bounds a string that was just made, or is about to be.
func (r *renderer) text(bytes int) error {
	if bytes > MaxText {
		return fmt.Errorf("the text is longer than %d bytes", MaxText)
	}
	return r.pay(1 + bytes/64)
}

func (r *renderer) write(s string) error {
	if err := r.text(r.out.Len() + len(s)); err != nil {
		return err
	}
	r.out.WriteString(s)
	return nil
}

func (r *renderer) nodes(list []nodes.Node) error {
	for _, n := range list {
		if err := r.node(n); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) node(n nodes.Node) error {
	if err := r.pay(1); err != nil {
		return err
	}
	switch n := n.(type) {
	case *nodes.Data:
		s := n.Data.Val
		if n.Trim.Left {
			s = strings.TrimLeft(s, " \n\t")
		}
		if n.Trim.Right {
			s = strings.TrimRight(s, " \n\t")
		}
		return r.write(s)
	case *nodes.Output:
		return r.output(n)
	case *nodes.ControlStructureBlock:
		switch s := n.ControlStructure.(type) {
		case *ifStatement:
			return r.branches(s)
		case *forStatement:
			return r.loop(s)
		}
	}
	return nil
}

func (r *renderer) output(n *nodes.Output) error {
	e := n.Expression
	if n.Condition != nil {
		v, err := r.eval(n.Condition)
		if err != nil {
			return err
		}
		if !truth(v) {
			if e = n.Alternative; e == nil {
				return nil
			}
		}
	}
	v, err := r.eval(e)
	if err != nil {
		return err
	}
	s, err := printed(v)
	if err != nil {
		return err
	}
	return r.write(s)
}

func (r *renderer) branches(s *ifStatement) error {
	for _, b := range s.branches {
		if b.condition != nil {
			v, err := r.eval(b.condition)
			if err != nil {
				return err
			}
			if !truth(v) {
				continue
			}
		}
		return r.nodes(b.body)
	}
	return nil
}

func (r *renderer) loop(s *forStatement) error {
	v, err := r.eval(s.list)
	if err != nil {
		return err
	}
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("a loop needs a list, not %s", kindOf(v))
	}
	outer, nested := r.vars["loop"]
	for i, item := range list {
		r.vars[s.name] = item
		r.vars["loop"] = map[string]any{"index": i + 1, "index0": i, "first": i == 0, "last": i == len(list)-1, "length": len(list)}
		if err := r.pay(1); err != nil {
			return err
		}
		if err := r.nodes(s.body); err != nil {
			return err
		}
	}
	delete(r.vars, s.name)
	if delete(r.vars, "loop"); nested {
		r.vars["loop"] = outer
	}
	return nil
}

func (r *renderer) eval(e nodes.Expression) (any, error) {
	if err := r.pay(1); err != nil {
		return nil, err
	}
	switch n := e.(type) {
	case *nodes.String:
		return n.Val, nil
	case *nodes.Integer:
		return n.Val, nil
	case *nodes.Float:
		return n.Val, nil
	case *nodes.Bool:
		return n.Val, nil
	case *nodes.None:
		return nil, nil
	case *nodes.Name:
		v, ok := r.vars[n.Name.Val]
		if !ok {
			return nil, undefined{n.Name.Val}
		}
		return v, nil
	case *nodes.List:
		return r.list(n.Val)
	case *nodes.Tuple:
		return r.list(n.Val)
	case *nodes.GetAttribute:
		if n.Attribute == "" {
			return r.item(n.Node, n.Index)
		}
		return r.item(n.Node, n.Attribute)
	case *nodes.GetItem:
		key, err := r.eval(n.Arg)
		if err != nil {
			return nil, err
		}
		return r.item(n.Node, key)
	case *nodes.Negation:
		v, err := r.eval(n.Term)
		return !truth(v), err
	case *nodes.UnaryExpression:
		v, err := r.eval(n.Term)
		if err != nil {
			return nil, err
		}
		if n.Negative {
			return arithmetic(tokens.Subtraction, 0, v)
		}
		return arithmetic(tokens.Addition, 0, v)
	case *nodes.BinaryExpression:
		return r.binary(n)
	case *nodes.FilteredExpression:
		return r.filtered(n)
	case *nodes.TestExpression:
		return r.test(n)
	}
	return nil, fmt.Errorf("a %T is not supported", e) // the checker should have refused it: a bug of this package
}

func (r *renderer) list(of []nodes.Expression) (any, error) {
	out := make([]any, len(of))
	for i, e := range of {
		v, err := r.eval(e)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// item looks up a member of a mapping or an element of a list.
func (r *renderer) item(of nodes.Node, key any) (any, error) {
	v, err := r.eval(of)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case map[string]any:
		if k, ok := key.(string); ok {
			if got, ok := v[k]; ok {
				return got, nil
			}
		}
	case []any:
		if i, ok := key.(int); ok {
			if i < 0 {
				i += len(v)
			}
			if i >= 0 && i < len(v) {
				return v[i], nil
			}
		}
	}
	what := fmt.Sprint(key)
	if n, ok := of.(*nodes.Name); ok {
		what = n.Name.Val + "." + what
	}
	return nil, undefined{what}
}

func (r *renderer) binary(n *nodes.BinaryExpression) (any, error) {
	left, err := r.eval(n.Left)
	if err != nil {
		return nil, err
	}
	op := n.Operator.Token.Type
	if op == tokens.And && !truth(left) || op == tokens.Or && truth(left) {
		return left, nil
	}
	right, err := r.eval(n.Right)
	if err != nil || op == tokens.And || op == tokens.Or {
		return right, err
	}
	return r.operate(op, left, right)
}

func (r *renderer) filtered(n *nodes.FilteredExpression) (any, error) {
	v, err := r.eval(n.Expression)
	for _, f := range n.Filters {
		if _, absent := errors.AsType[undefined](err); err != nil && !(absent && isDefault(f.Name)) {
			return nil, err
		}
		args := make([]any, len(f.Args))
		for i, a := range f.Args {
			var aerr error
			if args[i], aerr = r.eval(a); aerr != nil {
				return nil, aerr
			}
		}
		if isDefault(f.Name) {
			if err != nil || len(args) > 1 && truth(args[1]) && !truth(v) {
				v = args[0]
			}
			err = nil
			continue
		}
		if v, err = filters[f.Name].f(r, v, args); err != nil {
			err = fmt.Errorf("filter %s: %w", f.Name, err)
		}
	}
	return v, err
}

func (r *renderer) test(n *nodes.TestExpression) (any, error) {
	v, err := r.eval(n.Expression)
	if isDefined(n.Test.Name) {
		_, absent := errors.AsType[undefined](err)
		if err != nil && !absent {
			return nil, err
		}
		return absent == (n.Test.Name == "undefined"), nil
	}
	if err != nil {
		return nil, err
	}
	args := make([]any, len(n.Test.Args))
	for i, a := range n.Test.Args {
		if args[i], err = r.eval(a); err != nil {
			return nil, err
		}
	}
	return tests[n.Test.Name].f(r, v, args)
}

func isDefault(filter string) bool { return filter == "default" || filter == "d" }
func isDefined(test string) bool   { return test == "defined" || test == "undefined" }
