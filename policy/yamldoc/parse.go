// Package yamldoc reads one strict YAML document, the form of every file a person writes for the gateway.
//
// YAML that a reviewer would misread is refused, with its line: aliases and anchors, merge keys, tags, duplicate
// keys, several documents, deep nesting, and values whose type depends on their spelling (an unquoted 010 or
// 2026-01-01 is neither a number nor a string here). A [Value] then reads fields one by one and records every broken
// rule instead of stopping at the first, so that an author sees all problems together.
package yamldoc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"slurmgate/fault"
)

// Limits of a document.
const (
	MaxBytes = 1 << 20
	maxDepth = 48  // levels; JSON made from it stays within the limit of plan.Check
	maxSaid  = 500 // problems reported for one file
)

// Case is how the field names of a file format are written.
type Case int

// The cases.
const (
	Snake Case = iota // policies, manifests, locks
	Camel             // toolpacks
)

// Reader collects the problems of one file.
type Reader struct {
	File   string // as messages name it
	Prefix string // of the problem codes: PACK gives PACK-TYPE
	Case   Case

	problems []fault.Problem
	silent   map[*yaml.Node]bool // nodes that were reported already; reading them adds nothing
	root     *yaml.Node
}

// Parse reads data. The root is absent if the text is not YAML at all; see [Reader.Problems].
func (r *Reader) Parse(data []byte) Value {
	r.silent = map[*yaml.Node]bool{}
	nothing := Value{r: r, at: top}
	if len(data) > MaxBytes {
		r.add("SIZE", "", fmt.Sprintf("at most %d bytes", MaxBytes), "the file is too large", "", place{})
		return nothing
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF), err == nil && (doc.Kind != yaml.DocumentNode || len(doc.Content) != 1):
		r.add("YAML", "", "one YAML document", "the file is empty", "", top)
		return nothing
	case err != nil:
		r.syntax(err)
		return nothing
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		r.add("DOCUMENTS", "", "one YAML document", "a second document starts here",
			"remove the line --- and everything after it, or move it to another file", of(&more))
	case !errors.Is(err, io.EOF):
		r.syntax(err)
		return nothing
	}
	r.root = doc.Content[0]
	r.check(r.root, "", 1)
	return Value{r: r, n: r.root, at: of(r.root)}
}

// Problems returns the problems recorded so far, by line.
func (r *Reader) Problems() []fault.Problem {
	slices.SortStableFunc(r.problems, func(a, b fault.Problem) int { return a.Line - b.Line })
	return r.problems
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?line (\d+): `)

func (r *Reader) syntax(err error) {
	msg, line := err.Error(), 1 // a message without a line is about the first one
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	r.add("YAML", "", "well-formed YAML", clip(strings.TrimPrefix(msg, "yaml: ")), yamlHint(msg), place{line, 0})
}

// check walks the tree once and refuses anything that can be read in more than one way.
func (r *Reader) check(n *yaml.Node, path string, depth int) {
	if len(r.problems) > maxSaid {
		return // the document is refused anyway
	}
	if n.Anchor != "" {
		r.add("ANCHOR", path, "no anchors", "the anchor &"+clip(n.Anchor)+" is not supported", "write the value out where it is used", of(n))
	}
	switch {
	case n.Kind == yaml.AliasNode:
		r.add("ALIAS", path, "no aliases", "the alias *"+clip(n.Value)+" is not supported", "write the value out", of(n))
	case n.Style&yaml.TaggedStyle != 0:
		r.add("TAG", path, "no tags", "the tag "+clip(n.Tag)+" is not supported", "remove it; put a string in quotes", of(n))
	case depth > maxDepth:
		r.add("DEPTH", path, fmt.Sprintf("at most %d levels", maxDepth), "the value is nested too deep", "", of(n))
	case n.Kind == yaml.SequenceNode:
		for i, c := range n.Content {
			r.check(c, fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
		return
	case n.Kind == yaml.MappingNode:
		r.checkKeys(n, path)
		for i := 0; i+1 < len(n.Content); i += 2 {
			r.check(n.Content[i+1], join(path, n.Content[i].Value), depth+1)
		}
		return
	default:
		return
	}
	r.silent[n] = true
}

func (r *Reader) checkKeys(n *yaml.Node, path string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		at := join(path, k.Value)
		switch {
		case k.Anchor != "":
			r.add("ANCHOR", at, "no anchors", "the anchor &"+clip(k.Anchor)+" is not supported", "remove it", of(k))
		case k.Kind != yaml.ScalarNode:
			r.add("KEY", path, "plain strings as keys", "a key is not a string",
				`put a text that begins with { in quotes: "{{ … }}"`, of(k))
			r.silent[k] = true
		case k.ShortTag() == "!!merge":
			r.add("MERGE-KEY", path, "no merge keys", "the merge key << is not supported", "write the fields out", of(k))
			r.silent[k] = true
		case k.Style&yaml.TaggedStyle != 0:
			r.add("TAG", at, "no tags", "the tag "+clip(k.Tag)+" is not supported", "remove it", of(k))
		case k.ShortTag() != "!!str":
			r.add("KEY", path, "strings as keys", "the key "+clip(k.Value)+" reads as another type", "put it in quotes", of(k))
			r.silent[k] = true
		case seen[k.Value] > 0:
			r.add("DUPLICATE-KEY", at, "each key once", fmt.Sprintf("the key %q is already in line %d", clip(k.Value), seen[k.Value]),
				"remove one of the two", of(k))
			r.silent[k] = true
		default:
			seen[k.Value] = k.Line
		}
	}
}

func (r *Reader) add(code, field, rule, msg, hint string, at place) {
	switch {
	case len(r.problems) > maxSaid:
		return
	case len(r.problems) == maxSaid:
		code, field, rule, hint = "MORE", "", "", "correct these first"
		msg = fmt.Sprintf("the file has more than %d problems; the rest are not listed", maxSaid)
	}
	r.problems = append(r.problems, fault.Problem{Code: r.Prefix + "-" + code, Field: field, Rule: rule, Msg: msg, Hint: hint,
		File: r.File, Line: at.line, Column: at.column})
}

// Add records a problem about a field; its place is looked up by its path.
func (r *Reader) Add(code, field, rule, msg, hint string) {
	at, _ := r.find(field)
	r.add(code, field, rule, msg, hint, at)
}

// Place returns the line and column of a field such as execution.cmd[2], or of the nearest existing section around
// it.
func (r *Reader) Place(field string) (line, column int) {
	at, _ := r.find(field)
	return at.line, at.column
}

// Has reports whether the document has the field.
func (r *Reader) Has(field string) bool {
	_, ok := r.find(field)
	return ok
}

// place is a line and a column, both from 1; 0 when unknown.
type place struct{ line, column int }

var top = place{1, 1}

func of(n *yaml.Node) place { return place{n.Line, n.Column} }

func (r *Reader) find(field string) (place, bool) {
	if r.root == nil {
		return place{}, false
	}
	n, at := r.root, of(r.root)
	for part := range strings.FieldsFuncSeq(field, func(c rune) bool { return c == '.' || c == '[' || c == ']' }) {
		next := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
				at = of(next)
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content) && next == nil; i += 2 {
				if n.Content[i].Value == part {
					next, at = n.Content[i+1], of(n.Content[i])
				}
			}
		}
		if next == nil {
			return at, false
		}
		n = next
	}
	return at, true
}

func join(path, key string) string {
	if path == "" {
		return clip(key)
	}
	return path + "." + clip(key)
}

func clip(s string) string { return fault.Clip(s) }

// yamlHint returns advice for the most likely cause of a message of the YAML library.
func yamlHint(msg string) string {
	switch {
	case strings.Contains(msg, "expected key"), strings.Contains(msg, "not allowed in this context"),
		strings.Contains(msg, "expected '-' indicator"):
		return "the keys of one block begin in the same column; compare the indent of this line with that of the lines around it"
	case strings.Contains(msg, "cannot start any token"):
		return "indent with blanks, not with tabs, and put a text that begins with @, % or ` in quotes"
	case strings.Contains(msg, "expected ',' or"):
		return "a bracket or a comma is missing, or a text with { } [ ] is not in quotes"
	}
	return ""
}
