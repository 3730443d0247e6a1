// Package jinja renders the templates of toolpacks: Jinja2's expressions, if and for, on data that was checked
// before, into one bounded text.
//
// The lexer and the parser are gonja's. This package evaluates the parsed template itself, because a rendering must end
// soon and touch nothing: gonja's own evaluator builds 'x' * 10**9 before any writer can object, calls Go methods by
// reflection, panics on a division by zero and takes an undefined name for an empty string. Only the nodes this package
// knows are accepted, and that is checked when the template is read; no statement reads another template, defines a macro,
// assigns or calls anything. Each step of a rendering is charged to a budget, and an undefined name is an error.
//
// Nouns: template, use (a reference such as params.threads), budget.
package jinja

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// Bounds of a template and of one rendering.
const (
	MaxSource = 8 << 10  // bytes of a template
	MaxText   = 64 << 10 // bytes of a rendering, and of any intermediate string
	maxSteps  = 200_000  // operations, loop rounds, and 64 bytes of text each; a rendering ends within milliseconds
	maxDepth  = 64       // brackets and blocks within each other
)

// Template is a parsed template. It is immutable and safe for concurrent use.
type Template struct {
	source string
	run    step // nil for a text without any template syntax
	uses   []Use
	begins bool
	first  *Use
	list   expr // of [ParseList]; nil elsewhere
}

// Use is a reference to a member of one of the [Names.Objects], e.g. params.threads.
type Use struct {
	Object, Name string
	Bare         bool // it is printed unchanged: {{ params.threads }}
	Guarded      bool // the template handles its absence: by a default filter or a test for defined
}

// Names lists what a template may refer to.
type Names struct {
	Objects []string // only their members can be used, each named in the template: params.x or params["x"]
	Values  []string // can be used in any way
}

// Parse reads a template. The error is one line with the reason.
func Parse(source string, names Names) (*Template, error) {
	if !HasSyntax(source) {
		return &Template{source: source}, nil
	}
	return parse(source, names)
}

func parse(source string, names Names) (t *Template, err error) {
	t = &Template{source: source}
	if len(source) > MaxSource {
		return nil, fmt.Errorf("the template is longer than %d bytes", MaxSource)
	}
	if tooDeep(source) {
		return nil, fmt.Errorf("the template is nested deeper than %d levels", maxDepth)
	}
	defer func() {
		// The parser is a library's and may panic on arbitrary text.
		if r := recover(); r != nil {
			t, err = nil, errors.New("the text is not a valid template")
		}
	}()
	tree, err := read(source)
	if err != nil {
		return nil, plain(err)
	}
	c := compiler{names: names, known: slices.Concat(names.Objects, names.Values)}
	t.run = c.nodes(tree)
	t.list = c.last
	if t.uses = c.uses; len(tree) > 0 {
		switch n := tree[0].(type) {
		case *nodes.Data:
			t.begins = strings.TrimSpace(n.Data.Val) != ""
		case *nodes.Output:
			if u, ok := c.member(n.Expression); ok && n.Condition == nil {
				u.Bare = true
				t.first = &u
			}
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	return t, nil
}

// HasSyntax reports whether a text contains anything a template would replace.
func HasSyntax(s string) bool {
	return strings.Contains(s, "{{") || strings.Contains(s, "{%") || strings.Contains(s, "{#")
}

// tooDeep bounds the recursion of parser and compiler by what opens a level.
func tooDeep(source string) bool {
	depth, blocks := 0, strings.Count(source, "{%")
	for _, c := range source {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
		if depth > maxDepth {
			return true
		}
	}
	return blocks > 4*maxDepth
}

// brokenNumber is a number, a dot and a character beyond ASCII, after the begin of an expression and outside its strings.
var brokenNumber = regexp.MustCompile(`\{[{%](?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^'"])*?\p{Nd}\.[^\x00-\x7f]`)

func read(source string) ([]nodes.Node, error) {
	cfg := config.New()
	cfg.KeepTrailingNewline = true
	// The lexer turns \r into \n; an argument is what its author wrote.
	if strings.Contains(source, "\r") {
		return nil, errors.New("the template contains a carriage return")
	}
	// The lexer steps back by the width of that character, and may read the same text without end.
	if brokenNumber.MatchString(source) {
		return nil, errors.New("in a template a number is followed by a dot and a character beyond ASCII; write the text in quotes: {{ '…' }}")
	}
	p := parser.NewParser("template", tokens.LexAll(source, cfg), cfg, nothing{}, statements{})
	tree, err := p.Parse()
	switch {
	case err != nil:
		return nil, err
	case p.Stream().IsError():
		return nil, errors.New(p.Current().Val) // the parser takes unreadable text for the end of the template
	}
	return tree.Nodes, nil
}

// plain turns the parser's error into one short line.
func plain(err error) error {
	if e, ok := errors.AsType[*parser.SyntaxError](err); ok && e.Raw != "" {
		return fmt.Errorf("%s near %q", strings.TrimRight(strings.ReplaceAll(e.Message, "ControlStructure", "statement"), "."), e.Raw)
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(line)
}

// Literal reports whether the template is plain text.
func (t *Template) Literal() bool { return t.run == nil }

// Begins reports whether a rendering always begins with text of the template itself.
func (t *Template) Begins() bool { return t.Literal() || t.begins }

// First returns the reference a rendering begins with, if the template begins with {{ OBJECT.NAME }}; else nil.
func (t *Template) First() *Use { return t.first }

// Uses lists the references to members of objects, once for each way a member is used.
func (t *Template) Uses() []Use { return slices.Clone(t.uses) }

// nothing is a loader that has no templates.
type nothing struct{}

var errNothing = errors.New("a template cannot read another template")

func (nothing) Read(string) (io.Reader, error)         { return nil, errNothing }
func (nothing) Resolve(string) (string, error)         { return "", errNothing }
func (nothing) Inherit(string) (loaders.Loader, error) { return nil, errNothing }
