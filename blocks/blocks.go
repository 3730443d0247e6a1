// Package blocks describes an answer before a face shows it: the shell on lines, a chat in few bytes.
//
// Nouns: a document is a list of blocks, in the order in which they are read; a block is a sentence, advice, facts, a table, a schema,
// a quote, a picture, artifacts, warnings, next steps, or how a list continues; a value is an argument of a sentence, of a fact or of a
// cell.
//
// Values are strings and numbers of ours, and what a face has its own form for: [Data], [Reason], [Bytes], [time.Time], [Verb], [Next] and
// [Sentence]. nil, an empty string and a pointer to nothing are values that are missing; another pointer is the value that it points to.
package blocks

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"slurmgate/fault"
)

// Document is an answer as blocks.
type Document []Block

// Answer is an answer that can say what it means.
type Answer interface {
	// Says describes the answer. It never fails, and reads only the answer.
	Says() Document
}

// Reader returns the function that reads an answer of type A from its JSON and describes it; nil if A is no [Answer].
func Reader[A any]() func(result json.RawMessage) (Document, error) {
	if _, ok := any(*new(A)).(Answer); !ok {
		return nil
	}
	return func(result json.RawMessage) (Document, error) {
		var a A
		if err := json.Unmarshal(result, &a); err != nil {
			return nil, err
		}
		return any(a).(Answer).Says(), nil
	}
}

// Block is a part of a document.
type Block interface{ block() }

// Data is text of others: a file's name, what a program wrote. It is never an instruction.
type Data string

// Reason is why a run waits or ended: a word of ours, or that, a colon, and data.
type Reason string

// Bytes is a size.
type Bytes int64

// Verb is a verb of a step ([fault.Step]) without arguments.
type Verb string

// Value returns what a face shows of a value; nil: it is missing.
func Value(v any) any {
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Pointer && !r.IsNil() {
		r = r.Elem()
	}
	if !r.IsValid() || r.Kind() == reflect.Pointer || r.Kind() == reflect.String && r.Len() == 0 {
		return nil
	}
	return r.Interface()
}

// Sentence is a format of package fmt with %v for each value.
type Sentence struct {
	Format string
	Values []any
}

// Say makes a sentence.
func Say(format string, values ...any) Sentence { return Sentence{format, values} }

// Advice is a sentence for readers who know nothing else of the gateway, such as a model. The shell, which has a manual, shows the steps in
// its place, and without any leaves it out.
type Advice struct {
	Sentence
	Steps Next
}

// Advise makes advice.
func Advise(format string, values ...any) Advice { return Advice{Sentence: Say(format, values...)} }

// Facts are names with values.
type Facts struct {
	Brief  Sentence // replaces the facts where there is no room for all of them; empty: every face shows the facts
	Detail bool     // left out where there is no room for them
	Facts  []Fact
}

// Fact is a name with its value, which is not missing.
type Fact struct {
	Name  string
	Value any
}

// List makes facts of pairs of a name and a value; a fact whose value is missing is left out.
func List(pairs ...any) (f Facts) {
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Add(fmt.Sprint(pairs[i]), pairs[i+1])
	}
	return f
}

// Add adds a fact, unless its value is missing.
func (f *Facts) Add(name string, value any) {
	if v := Value(value); v != nil {
		f.Facts = append(f.Facts, Fact{name, v})
	}
}

// Details makes facts that are left out where there is no room for them.
func Details(pairs ...any) Facts {
	f := List(pairs...)
	f.Detail = true
	return f
}

// Lines are sentences of a line each.
type Lines []Sentence

// Add adds a line.
func (l *Lines) Add(format string, values ...any) { *l = append(*l, Say(format, values...)) }

// Table is a table: a list has a noun, other tables have none.
type Table struct {
	Noun    string // what the rows are, in the plural; empty: the rows are not counted
	Of      string // of a list, what it is about, e.g. "batch b1"; may be empty
	Quoted  bool   // all of it is data, from one file
	Order   string // of a list, e.g. "newest first"; may be empty
	Total   int64  // rows of all pages
	AtLeast bool   // there may be more than Total
	Columns []Column
	Rows    [][]any // values, one for each column
}

// Count returns how many rows of a list are shown, of how many.
func (t Table) Count() string {
	noun := t.Noun
	if t.Total == 1 && !t.AtLeast {
		noun = singular(noun)
	}
	if t.Of != "" {
		noun += " of " + t.Of
	}
	n := int64(len(t.Rows))
	switch {
	case t.AtLeast:
		return fmt.Sprintf("%d of at least %d %s", n, max(t.Total, n), noun)
	case t.Total == n:
		return fmt.Sprintf("%d %s", n, noun)
	}
	return fmt.Sprintf("%d of %d %s", n, t.Total, noun)
}

// singular returns the singular of a noun of ours, such as runs, batches or runs that wait.
func singular(noun string) string {
	word, rest, more := strings.Cut(noun, " ")
	if root, ok := strings.CutSuffix(word, "ches"); ok {
		word = root + "ch"
	} else {
		word = strings.TrimSuffix(word, "s")
	}
	if more {
		return word + " " + rest
	}
	return word
}

// Column is a column of a table.
type Column struct {
	Name   string
	Data   bool // the name is data
	Width  int  // of its data, at most, in characters; 0: a face's own limit
	Detail bool // left out where there is no room for all columns
}

// Columns makes columns of names. One that ends with an asterisk is a detail.
func Columns(names ...string) (out []Column) {
	for _, name := range names {
		c := Column{Name: name}
		if end := len(name) - 1; name[end] == '*' {
			c = Column{Name: name[:end], Detail: true}
		}
		out = append(out, c)
	}
	return out
}

// Schema is the JSON Schema of a tool's arguments.
type Schema json.RawMessage

// Quote is text of others as they wrote it, over lines.
type Quote struct {
	Text string
	Key  string // of the text in the answer
	End  bool   // it is the end of a text: where it is too long the beginning is left out
	List bool   // its lines are whole or left out
}

// Picture is a picture made of a file of others. The shell leaves it out.
type Picture struct {
	Media string // its media type, e.g. image/png
	Data  []byte
	Key   string // of the data in the answer
}

// Artifacts are the artifacts that an answer names by id, so that a reader can open them.
type Artifacts []Artifact

// Artifact is one of them.
type Artifact struct {
	ID     string
	Name   string // its role, or its label
	Type   string // may be empty
	File   string // the caller's own name of the file; may be empty
	Hidden bool   // another one has all of it
}

// Links are artifacts that are named in other blocks, for faces that can open one.
type Links []Artifact

// Warnings are facts that the caller should know though the call succeeded. They may contain data.
type Warnings []string

// Next lists the next steps; they are alternatives.
type Next []fault.Step

// More continues a list: the same call again, with another value of an argument, returns the next part.
type More struct {
	Verb     string // of the operation that answers
	Argument string
	Value    any
}

func (Sentence) block()  {}
func (Advice) block()    {}
func (Facts) block()     {}
func (Lines) block()     {}
func (Table) block()     {}
func (Schema) block()    {}
func (Quote) block()     {}
func (Picture) block()   {}
func (Artifacts) block() {}
func (Links) block()     {}
func (Warnings) block()  {}
func (Next) block()      {}
func (More) block()      {}
