package jinja

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// checker walks a template once and accepts only what [renderer] knows.
type checker struct {
	names Names
	known []string // names in scope
	uses  []Use
}

func (c *checker) nodes(list []nodes.Node) error {
	for _, n := range list {
		if err := c.node(n); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) node(n nodes.Node) error {
	switch n := n.(type) {
	case nil, *nodes.Data, *nodes.Comment:
		return nil
	case *nodes.Output:
		if use, ok := c.member(n.Expression); ok && n.Condition == nil {
			use.Bare = true
			c.add(use)
			return nil
		}
		for _, e := range []nodes.Expression{n.Expression, n.Condition, n.Alternative} {
			if e != nil {
				if err := c.expression(e); err != nil {
					return err
				}
			}
		}
		return nil
	case *nodes.ControlStructureBlock:
		return c.statement(n.ControlStructure)
	}
	return fmt.Errorf("a %T is not supported", n)
}

func (c *checker) statement(s nodes.ControlStructure) error {
	switch s := s.(type) {
	case *ifStatement:
		for _, b := range s.branches {
			if b.condition != nil {
				if err := c.expression(b.condition); err != nil {
					return err
				}
			}
			if err := c.nodes(b.body); err != nil {
				return err
			}
		}
		return nil
	case *forStatement:
		if err := c.expression(s.list); err != nil {
			return err
		}
		if slices.Contains(c.known, s.name) || s.name == "loop" {
			return fmt.Errorf("the name %s of the loop variable is already in use", s.name)
		}
		outside := c.known
		c.known = slices.Concat(c.known, []string{s.name, "loop"})
		err := c.nodes(s.body)
		c.known = outside
		return err
	}
	return fmt.Errorf("a %T is not supported", s)
}

func (c *checker) all(list ...nodes.Expression) error {
	for _, e := range list {
		if err := c.expression(e); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) expression(e nodes.Expression) error {
	if use, ok := c.member(e); ok {
		c.add(use)
		return nil
	}
	switch n := e.(type) {
	case *nodes.None, *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool:
		return nil
	case *nodes.Name:
		switch name := n.Name.Val; {
		case slices.Contains(c.names.Objects, name):
			return fmt.Errorf("%s is not a value; name a member of it, as in %s.NAME", name, name)
		case !slices.Contains(c.known, name):
			return fmt.Errorf("there is no name %s; known names are %s", name, strings.Join(c.known, ", "))
		}
		return nil
	case *nodes.List:
		return c.all(n.Val...)
	case *nodes.Tuple:
		return c.all(n.Val...)
	case *nodes.GetAttribute:
		return c.expression(n.Node)
	case *nodes.GetItem:
		if n.Arg == nil {
			return fmt.Errorf("an index is missing")
		}
		return c.all(n.Node, n.Arg)
	case *nodes.Negation:
		return c.expression(n.Term)
	case *nodes.UnaryExpression:
		return c.expression(n.Term)
	case *nodes.BinaryExpression:
		if !slices.Contains(operators, n.Operator.Token.Type) {
			return fmt.Errorf("the operator %s is not supported", n.Operator.Token.Val)
		}
		return c.all(n.Left, n.Right)
	case *nodes.FilteredExpression:
		return c.filtered(n)
	case *nodes.TestExpression:
		return c.test(n)
	case *nodes.Call:
		return fmt.Errorf("calls are not supported; the filters are %s", strings.Join(filterNames(), " "))
	}
	return fmt.Errorf("a %s is not supported here", strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "*nodes.")))
}

var operators = []tokens.Type{
	tokens.And, tokens.Or, tokens.Addition, tokens.Subtraction, tokens.Multiply, tokens.Division, tokens.FloorDivision, tokens.Modulo,
	tokens.Power, tokens.Tilde, tokens.Equals, tokens.Ne, tokens.LowerThan, tokens.LowerThanOrEqual, tokens.GreaterThan,
	tokens.GreaterThanOrEqual, tokens.In}

func (c *checker) filtered(n *nodes.FilteredExpression) error {
	for i, f := range n.Filters {
		known, ok := filters[f.Name]
		switch {
		case !ok:
			return fmt.Errorf("there is no filter %s; the filters are %s", f.Name, strings.Join(filterNames(), " "))
		case len(f.Kwargs) > 0:
			return fmt.Errorf("the filter %s does not accept named arguments", f.Name)
		case len(f.Args) < known.least || len(f.Args) > known.most:
			return fmt.Errorf("the filter %s takes %d to %d arguments", f.Name, known.least, known.most)
		}
		if err := c.all(f.Args...); err != nil {
			return err
		}
		if use, ok := c.member(n.Expression); ok && i == 0 && isDefault(f.Name) {
			use.Guarded = true
			c.add(use)
			continue
		}
		if i == 0 {
			if err := c.expression(n.Expression); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) test(n *nodes.TestExpression) error {
	known, ok := tests[n.Test.Name]
	switch {
	case !ok:
		return fmt.Errorf("there is no test %s; the tests are %s", n.Test.Name, strings.Join(testNames(), " "))
	case len(n.Test.Kwargs) > 0 || len(n.Test.Args) != known.args:
		return fmt.Errorf("the test %s takes %d arguments", n.Test.Name, known.args)
	}
	if err := c.all(n.Test.Args...); err != nil {
		return err
	}
	if use, ok := c.member(n.Expression); ok && isDefined(n.Test.Name) {
		use.Guarded = true
		c.add(use)
		return nil
	}
	return c.expression(n.Expression)
}

// member recognises OBJECT.NAME and OBJECT["NAME"].
func (c *checker) member(e nodes.Expression) (Use, bool) {
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

func (c *checker) add(u Use) {
	if !slices.Contains(c.uses, u) {
		c.uses = append(c.uses, u)
	}
}
