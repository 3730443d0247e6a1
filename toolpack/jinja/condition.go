package jinja

import (
	"errors"
	"strings"
)

// Condition is an expression that is true or false for given values.
type Condition struct{ t *Template }

// ParseCondition reads an expression, such as value.reads > 0. The error is one line that says what is wrong.
func ParseCondition(source string, names Names) (*Condition, error) {
	for _, s := range []string{"{{", "}}", "{%", "%}", "{#", "#}"} {
		if strings.Contains(source, s) {
			return nil, errors.New("a condition is only an expression, without " + s)
		}
	}
	t, err := Parse("{% if "+source+" %}1{% endif %}", names)
	if err != nil {
		return nil, err
	}
	return &Condition{t}, nil
}

// Holds evaluates the condition; vars are as for [Template.Render]. An undefined name and an expression that takes too many
// steps are errors.
func (c *Condition) Holds(vars map[string]any) (bool, error) {
	s, err := c.t.Render(vars)
	return s == "1", err
}
