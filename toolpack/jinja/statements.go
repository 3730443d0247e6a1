package jinja

import (
	"errors"

	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// statements are if and for. There is no include, import, extends, macro, call, set or block.
type statements struct{}

// Get returns the parser of a statement.
func (statements) Get(name string) (parser.ControlStructureParser, bool) {
	switch name {
	case "if":
		return parseIf, true
	case "for":
		return parseFor, true
	}
	return nil, false
}

// branch is if, elif or else with its body; else has no condition.
type branch struct {
	condition nodes.Expression
	body      []nodes.Node
}

type ifStatement struct {
	at       *tokens.Token
	branches []branch
}

func (s *ifStatement) Position() *tokens.Token { return s.at }
func (s *ifStatement) String() string          { return "if" }

func parseIf(p, args *parser.Parser) (nodes.ControlStructure, error) {
	s := &ifStatement{at: args.Current()}
	condition, err := wholeExpression(args)
	if err != nil {
		return nil, err
	}
	for {
		body, rest, err := p.WrapUntil("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		s.branches = append(s.branches, branch{condition, body.Nodes})
		isElse := condition == nil
		condition = nil
		switch {
		case body.EndTag == "endif" && rest.End():
			return s, nil
		case isElse:
			return nil, errors.New("else must be the last branch of an if")
		case body.EndTag == "else" && rest.End():
		case body.EndTag == "elif":
			if condition, err = wholeExpression(rest); err != nil {
				return nil, err
			}
		default:
			return nil, errors.New(body.EndTag + " has no condition")
		}
	}
}

// forStatement is {% for NAME in LIST %}…{% endfor %}.
type forStatement struct {
	at   *tokens.Token
	name string
	list nodes.Expression
	body []nodes.Node
}

func (s *forStatement) Position() *tokens.Token { return s.at }
func (s *forStatement) String() string          { return "for" }

func parseFor(p, args *parser.Parser) (nodes.ControlStructure, error) {
	s := &forStatement{at: args.Current()}
	name := args.Match(tokens.Name)
	if name == nil || args.Match(tokens.In) == nil {
		return nil, errors.New("a loop is written {% for NAME in LIST %}")
	}
	s.name = name.Val
	var err error
	if s.list, err = wholeExpression(args); err != nil {
		return nil, err
	}
	body, rest, err := p.WrapUntil("endfor")
	if err != nil {
		return nil, err
	}
	if !rest.End() {
		return nil, errors.New("endfor without for")
	}
	s.body = body.Nodes
	return s, nil
}

func wholeExpression(args *parser.Parser) (nodes.Expression, error) {
	e, err := args.ParseExpression()
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return nil, errors.New("an expression is missing")
	case !args.End():
		return nil, args.Error("unexpected", args.Current())
	}
	return e, nil
}
