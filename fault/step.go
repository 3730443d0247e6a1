package fault

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Step is one thing to do next, as data: each face renders it in its own words. Verb is the id of a tool, as slurm.job.get,
// with the arguments of its schema; or a command only the shell has, as doctor or "image add".
type Step struct {
	Verb string         `json:"verb" help:"the id of a tool, or a command of the shell; the most useful step is the first"`
	Args map[string]any `json:"args" help:"arguments of the tool's input schema"`
}

// Do makes a step of a verb and pairs of an argument's name and its value.
func Do(verb string, pairs ...any) Step {
	s := Step{Verb: verb, Args: map[string]any{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		s.Args[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return s
}

// String returns the step for logs.
func (s Step) String() string {
	parts := []string{s.Verb}
	for _, k := range slices.Sorted(maps.Keys(s.Args)) {
		parts = append(parts, fmt.Sprintf("%s=%v", k, s.Args[k]))
	}
	return strings.Join(parts, " ")
}

func (s Step) equal(t Step) bool { return s.String() == t.String() }

// JSON returns the arguments as JSON, in the order of their names.
func (s Step) JSON() string {
	raw, err := json.Marshal(s.Args)
	if err != nil || s.Args == nil {
		return "{}"
	}
	return string(raw)
}

// WithSteps adds next steps and returns the error. Advice that names no command belongs in [Error.WithNext].
func (e *Error) WithSteps(steps ...Step) *Error {
	e.Steps = append(e.Steps, steps...)
	return e
}

// Words returns what renders a list of steps: alternatives, each once. word renders one of them.
func Words(word func(Step) string) func([]Step) string {
	return func(steps []Step) string {
		var out []string
		for _, s := range steps {
			if w := word(s); !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
		return strings.Join(out, ", or ")
	}
}

// StepsOf returns the steps of the whole chain, each once: the outermost error's first, then those of its problems.
func StepsOf(err error) (out []Step) {
	add := func(steps []Step) {
		for _, s := range steps {
			if !slices.ContainsFunc(out, s.equal) {
				out = append(out, s)
			}
		}
	}
	var problems []Problem
	for e := range chain(err) {
		add(e.Steps)
		problems = append(problems, e.Problems...)
	}
	for _, p := range problems {
		add(p.Next)
	}
	return out
}

// Text returns an error's whole text: messages and causes, problems on separate lines, and the next steps. words
// renders a list of steps; it is never called without one.
func Text(err error, words func([]Step) string) string {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err.Error()
	}
	if err != error(e) { // wrapped by something that has written its text into its own
		return strings.Replace(err.Error(), e.Error(), Text(e, words), 1)
	}
	body, next := e.parts(words)
	if len(next) == 0 {
		return body
	}
	if !strings.HasSuffix(body, "?") {
		body = strings.TrimSuffix(body, ".") + "."
	}
	return body + " Next: " + strings.Join(next, "; ")
}

// parts returns the text without what to do next, and what to do next, the outermost error's first.
func (e *Error) parts(words func([]Step) string) (body string, next []string) {
	if advice := Advice(e.Next, e.Steps, words); advice != "" {
		next = append(next, advice)
	}
	var parts []string
	if e.Msg != "" {
		parts = append(parts, e.Msg)
	}
	if cause, ok := e.Err.(*Error); ok && cause != nil {
		s, more := cause.parts(words)
		parts = append(parts, s)
		for _, m := range more {
			if !slices.Contains(next, m) {
				next = append(next, m)
			}
		}
	} else if e.Err != nil {
		parts = append(parts, Text(e.Err, words))
	}
	body = strings.Join(parts, ": ")
	switch {
	case len(e.Problems) == 1 && body == "":
		body = e.Problems[0].Text(words)
	case len(e.Problems) > 0:
		for _, p := range e.Problems {
			body += "\n  " + p.Text(words)
		}
	}
	if body == "" {
		body = string(e.Kind)
	}
	return body, next
}

// Advice joins plain advice and rendered steps; empty when there is neither.
func Advice(plain string, steps []Step, words func([]Step) string) string {
	switch {
	case len(steps) == 0:
		return plain
	case plain == "":
		return words(steps)
	}
	if s := words(steps); s != "" {
		return plain + ": " + s
	}
	return plain
}

// Prose returns an error's whole text without steps: a record outlives the commands of today.
func Prose(err error) string { return Text(err, func([]Step) string { return "" }) }

// Said returns the text of an error without its next steps.
func Said(err error) string {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err.Error()
	}
	body, _ := e.parts(forLogs)
	return body
}

// forLogs renders steps as they are.
func forLogs(steps []Step) string { return Words(Step.String)(steps) }
