package jinja

import (
	"errors"
	"strings"
)

// Condition is an expression that is true or false of some values.
type Condition struct{ t *Template }

// ParseCondition reads an expression, such as value.reads > 0. The error is one line saying what is not understood.
func ParseCondition(source string, names Names) (*Condition, error) {
	for _, s := range []string{"{{", "}}", "{%", "%}", "{#", "#}"} {
		if strings.Contains(source, s) {
			return nil, errors.New("a condition is an expression alone, without " + s)
		}
	}
	t, err := Parse("{% if "+source+" %}1{% endif %}", names)
	if err != nil {
		return nil, err
	}
	return &Condition{t}, nil
}

// Holds evaluates the condition; vars as for [Template.Render]. What is not there, and what takes too many steps, is an error.
func (c *Condition) Holds(vars map[string]any) (bool, error) {
	s, err := c.t.Render(vars)
	return s == "1", err
}
