package jinja

import (
	"errors"
	"strings"
)

// ParseCondition reads an expression, such as value.reads > 0, whose template [Template.Holds]. The error is one line that says what is
// wrong.
func ParseCondition(source string, names Names) (*Template, error) {
	for _, s := range []string{"{{", "}}", "{%", "%}", "{#", "#}"} {
		if strings.Contains(source, s) {
			return nil, errors.New("a condition is only an expression, without " + s)
		}
	}
	return Parse("{% if "+source+" %}1{% endif %}", names)
}

// Holds evaluates the condition; vars are as for [Template.Render]. An undefined name and an expression that takes too many
// steps are errors.
func (t *Template) Holds(vars map[string]any) (bool, error) {
	s, err := t.Render(vars)
	return s == "1", err
}
