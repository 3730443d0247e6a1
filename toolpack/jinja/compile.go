package jinja

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// An expr computes a value. A failed one notes its error in the renderer; the use of its value then has no effect.
type expr func(r *renderer) any

// A step writes a part of the text.
type step func(r *renderer)

// compiler walks a template once, refuses what is not supported, and makes steps of the rest.
type compiler struct {
	names Names
	known []string // names in scope
	uses  []Use
	err   error // the first
	last  expr  // the list of the last loop
}

func (c *compiler) failf(format string, args ...any) expr {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
	return nil
}

func (c *compiler) nodes(list []nodes.Node) step {
	steps := make([]step, len(list))
	for i, n := range list {
		steps[i] = c.node(n)
	}
	return func(r *renderer) {
		for _, s := range steps {
			if r.pay(1) {
				s(r)
			}
		}
	}
}

func (c *compiler) node(n nodes.Node) step {
	switch n := n.(type) {
	case nil, *nodes.Comment:
		return func(*renderer) {}
	case *nodes.Data:
		s := n.Data.Val
		if n.Trim.Left {
			s = strings.TrimLeft(s, " \n\t")
		}
		if n.Trim.Right {
			s = strings.TrimRight(s, " \n\t")
		}
		return func(r *renderer) { r.write(s) }
	case *nodes.Output:
		return c.output(n)
	case *nodes.ControlStructureBlock:
		switch s := n.ControlStructure.(type) {
		case *ifStatement:
			return c.branches(s)
		case *forStatement:
			return c.loop(s)
		}
	}
	c.failf("a %T is not supported", n)
	return nil
}

func (c *compiler) output(n *nodes.Output) step {
	if use, ok := c.member(n.Expression); ok && n.Condition == nil {
		use.Bare = true
		value := c.use(use)
		return func(r *renderer) { r.write(r.printed(value(r))) }
	}
	value, condition, otherwise := c.expr(n.Expression), c.optional(n.Condition), c.optional(n.Alternative)
	return func(r *renderer) {
		e := value
		if condition != nil && !truth(condition(r)) {
			e = otherwise
		}
		if e != nil {
			r.write(r.printed(e(r)))
		}
	}
}

func (c *compiler) branches(s *ifStatement) step {
	conditions, bodies := make([]expr, len(s.branches)), make([]step, len(s.branches))
	for i, b := range s.branches {
		conditions[i], bodies[i] = c.optional(b.condition), c.nodes(b.body)
	}
	return func(r *renderer) {
		for i, condition := range conditions {
			if condition == nil || truth(condition(r)) {
				bodies[i](r)
				return
			}
		}
	}
}

func (c *compiler) loop(s *forStatement) step {
	list := c.expr(s.list)
	if slices.Contains(c.known, s.name) || s.name == "loop" {
		c.failf("the name %s of the loop variable is already in use", s.name)
	}
	outside := c.known
	c.known = slices.Concat(c.known, []string{s.name, "loop"})
	body := c.nodes(s.body)
	c.known, c.last = outside, list
	return func(r *renderer) {
		items := r.listOf(list(r))
		outer, nested := r.vars["loop"]
		for i, item := range items {
			r.vars[s.name] = item
			r.vars["loop"] = map[string]any{"index": i + 1, "index0": i, "first": i == 0, "last": i == len(items)-1, "length": len(items)}
			if !r.pay(1) {
				return
			}
			body(r)
		}
		delete(r.vars, s.name)
		if delete(r.vars, "loop"); nested {
			r.vars["loop"] = outer
		}
	}
}

// optional is expr for an expression that a template may leave out; nil then.
func (c *compiler) optional(e nodes.Expression) expr {
	if e == nil {
		return nil
	}
	return c.expr(e)
}

func (c *compiler) expr(e nodes.Expression) expr {
	f := c.compile(e)
	return func(r *renderer) any {
		if !r.pay(1) {
			return nil
		}
		return f(r)
	}
}

func (c *compiler) compile(e nodes.Expression) expr {
	if use, ok := c.member(e); ok {
		return c.use(use)
	}
	switch n := e.(type) {
	case *nodes.None:
		return constant(nil)
	case *nodes.String:
		return constant(n.Val)
	case *nodes.Integer:
		return constant(n.Val)
	case *nodes.Float:
		return constant(n.Val)
	case *nodes.Bool:
		return constant(n.Val)
	case *nodes.Name:
		return c.name(n.Name.Val)
	case *nodes.List:
		return c.list(n.Val)
	case *nodes.Tuple:
		return c.list(n.Val)
	case *nodes.GetAttribute:
		if n.Attribute == "" {
			return c.item(n.Node, constant(n.Index))
		}
		return c.item(n.Node, constant(n.Attribute))
	case *nodes.GetItem:
		if n.Arg == nil {
			return c.failf("an index is missing")
		}
		return c.item(n.Node, c.expr(n.Arg))
	case *nodes.Negation:
		term := c.expr(n.Term)
		return func(r *renderer) any { return !truth(term(r)) }
	case *nodes.UnaryExpression:
		term, f := c.expr(n.Term), operators[tokens.Addition]
		if n.Negative {
			f = operators[tokens.Subtraction]
		}
		return func(r *renderer) any { return f(r, 0, term(r)) }
	case *nodes.BinaryExpression:
		return c.binary(n)
	case *nodes.FilteredExpression:
		return c.filtered(n)
	case *nodes.TestExpression:
		return c.test(n)
	case *nodes.Call:
		return c.failf("calls are not supported; the filters are %s", strings.Join(filterNames(), " "))
	}
	return c.failf("a %s is not supported here", strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "*nodes.")))
}

func constant(v any) expr { return func(*renderer) any { return v } }

func (c *compiler) name(name string) expr {
	switch {
	case slices.Contains(c.names.Objects, name):
		return c.failf("%s is not a value; name a member of it, as in %s.NAME", name, name)
	case !slices.Contains(c.known, name):
		return c.failf("there is no name %s; known names are %s", name, strings.Join(c.known, ", "))
	}
	return func(r *renderer) any {
		v, ok := r.vars[name]
		if !ok {
			return r.fail(undefined{name})
		}
		return v
	}
}

func (c *compiler) exprs(of []nodes.Expression) []expr {
	out := make([]expr, len(of))
	for i, e := range of {
		out[i] = c.expr(e)
	}
	return out
}

func (c *compiler) list(of []nodes.Expression) expr {
	elements := c.exprs(of)
	return func(r *renderer) any { return r.values(elements) }
}

// item finds a member of a mapping or an element of a list.
func (c *compiler) item(of nodes.Node, key expr) expr {
	owner := c.expr(of)
	prefix := ""
	if n, ok := of.(*nodes.Name); ok {
		prefix = n.Name.Val + "."
	}
	return func(r *renderer) any { return r.item(prefix, owner(r), key(r)) }
}

// member recognises OBJECT.NAME and OBJECT["NAME"].
func (c *compiler) member(e nodes.Expression) (Use, bool) {
	var object nodes.Node
	name := ""
	switch n := e.(type) {
	case *nodes.GetAttribute:
		object, name = n.Node, n.Attribute
	case *nodes.GetItem:
		if s, ok := n.Arg.(*nodes.String); ok {
			object, name = n.Node, s.Val
		}
	}
	root, ok := object.(*nodes.Name)
	if !ok || name == "" || !slices.Contains(c.names.Objects, root.Name.Val) {
		return Use{}, false
	}
	return Use{Object: root.Name.Val, Name: name}, true
}

func (c *compiler) use(u Use) expr {
	if !slices.Contains(c.uses, u) {
		c.uses = append(c.uses, u)
	}
	return func(r *renderer) any { return r.item(u.Object+".", r.vars[u.Object], u.Name) }
}

// guarded compiles an expression whose absence the template handles.
func (c *compiler) guarded(e nodes.Expression) expr {
	if use, ok := c.member(e); ok {
		use.Guarded = true
		return c.use(use)
	}
	return c.expr(e)
}

func (c *compiler) binary(n *nodes.BinaryExpression) expr {
	left, right, op := c.expr(n.Left), c.expr(n.Right), n.Operator.Token.Type
	if op == tokens.And || op == tokens.Or {
		return func(r *renderer) any {
			v := left(r)
			if r.err != nil || truth(v) == (op == tokens.Or) {
				return v
			}
			return right(r)
		}
	}
	f := operators[op]
	if f == nil {
		return c.failf("the operator %s is not supported", n.Operator.Token.Val)
	}
	return func(r *renderer) any { return f(r, left(r), right(r)) }
}

func (c *compiler) filtered(n *nodes.FilteredExpression) expr {
	type call struct {
		name string
		args []expr
	}
	var calls []call
	var value expr
	for i, f := range n.Filters {
		known, ok := filters[f.Name]
		switch {
		case !ok:
			return c.failf("there is no filter %s; the filters are %s", f.Name, strings.Join(filterNames(), " "))
		case len(f.Kwargs) > 0:
			return c.failf("the filter %s does not accept named arguments", f.Name)
		case len(f.Args) < known.least || len(f.Args) > known.most:
			return c.failf("the filter %s takes %d to %d arguments", f.Name, known.least, known.most)
		}
		calls = append(calls, call{f.Name, c.exprs(f.Args)})
		switch {
		case i > 0:
		case isDefault(f.Name):
			value = c.guarded(n.Expression)
		default:
			value = c.expr(n.Expression)
		}
	}
	return func(r *renderer) any {
		v := value(r)
		for _, f := range calls {
			absent := isDefault(f.name) && r.undefined()
			if r.err != nil {
				return nil
			}
			args := r.values(f.args)
			switch {
			case r.err != nil:
				return nil
			case !isDefault(f.name):
				if v = filters[f.name].f(r, v, args); r.err != nil {
					r.err = fmt.Errorf("filter %s: %w", f.name, r.err)
				}
			case absent || len(args) > 1 && truth(args[1]) && !truth(v):
				v = args[0]
			}
		}
		return v
	}
}

func (c *compiler) test(n *nodes.TestExpression) expr {
	known, ok := tests[n.Test.Name]
	switch {
	case !ok:
		return c.failf("there is no test %s; the tests are %s", n.Test.Name, strings.Join(testNames(), " "))
	case len(n.Test.Kwargs) > 0 || len(n.Test.Args) != known.args:
		return c.failf("the test %s takes %d arguments", n.Test.Name, known.args)
	}
	if known.f == nil {
		value := c.guarded(n.Expression)
		return func(r *renderer) any {
			value(r)
			return r.undefined() == (n.Test.Name == "undefined")
		}
	}
	value, args := c.expr(n.Expression), c.exprs(n.Test.Args)
	return func(r *renderer) any {
		v, given := value(r), r.values(args)
		if r.err != nil {
			return nil
		}
		return known.f(r, v, given)
	}
}
