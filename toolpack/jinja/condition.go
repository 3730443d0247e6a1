package jinja

import (
	"errors"
	"strings"
)

// ParseCondition reads an expression, such as value.reads > 0, whose template [Template.Holds]. The error is one line
// with the reason.
func ParseCondition(source string, names Names) (*Template, error) {
	if err := bare("a condition", source); err != nil {
		return nil, err
	}
	return Parse("{% if "+source+" %}1{% endif %}", names)
}

// Holds evaluates the condition; vars are as for [Template.Render]. An undefined name and an expression that takes too many
// steps are errors.
func (t *Template) Holds(vars map[string]any) (bool, error) {
	s, err := t.Render(vars)
	return s == "1", err
}

// ParseList reads an expression whose value is a list, such as inputs.reads, for [Template.Items]. The error is one
// line with the reason.
func ParseList(source string, names Names) (*Template, error) {
	if err := bare("a list", source); err != nil {
		return nil, err
	}
	return Parse("{% for "+Item+" in "+source+" %}{% endfor %}", names)
}

// Item is the name that a loop variable has by default.
const Item = "item"

// bare refuses what would end the expression.
func bare(what, source string) error {
	for _, s := range []string{"{{", "}}", "{%", "%}", "{#", "#}"} {
		if strings.Contains(source, s) {
			return errors.New(what + " is only an expression, without " + s)
		}
	}
	return nil
}

// Items evaluates the list of [ParseList]; vars are as for [Template.Render]. An undefined name, and a value that is no list, are errors.
func (t *Template) Items(vars map[string]any) ([]any, error) {
	r := newRenderer(vars)
	items := r.listOf(t.list(r))
	if r.err != nil {
		return nil, r.err
	}
	return items, nil
}
