package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"slurmgate/app"
	"slurmgate/blocks"
	"slurmgate/fault"
)

// The shell shows a document on lines: facts and tables aligned, sizes in units, times of this host.

// callAndPrint calls an operation and prints its answer: as JSON, or as its document.
func callAndPrint[A blocks.Answer](ctx context.Context, a *Shell, id string, args any) error {
	return ask(ctx, a, id, args, func(w io.Writer, r A) { printDocument(w, r.Says(), args) })
}

// Call is a verb that takes the arguments of the operation with that verb, calls it and prints its answer.
type Call[Args any, Answer blocks.Answer] struct {
	Args Args `embed:""`
}

// Run calls the operation.
func (c Call[Args, Answer]) Run(ctx context.Context, a *Shell, k *kong.Context) error {
	_, verb, _ := strings.Cut(k.Selected().FullPath(), " ")
	i := slices.IndexFunc(operations(), func(o app.Operation) bool { return o.Verb == verb })
	return callAndPrint[Answer](ctx, a, operations()[i].ID, c.Args)
}

// printDocument prints a document; of a list that continues, args are those of its call.
func printDocument(w io.Writer, d blocks.Document, args any) {
	for _, b := range d {
		switch b := b.(type) {
		case blocks.Sentence:
			fmt.Fprintln(w, sentenceText(b))
		case blocks.Facts:
			printFacts(w, b.Facts)
		case blocks.Lines:
			for _, s := range b {
				fmt.Fprintln(w, sentenceText(s))
			}
		case blocks.Table:
			printRows(w, b)
		case blocks.Artifacts:
			for _, x := range b {
				fmt.Fprintf(w, "output  %s  %s\n", x.ID, x.Name)
			}
		case blocks.Quote:
			io.WriteString(w, b.Text)
		case blocks.Schema:
			var pretty bytes.Buffer
			if json.Indent(&pretty, b, "", "  ") == nil {
				fmt.Fprintf(w, "Arguments, as JSON Schema:\n%s\n", &pretty)
			}
		case blocks.Warnings:
			printLines(w, "warning: ", b)
		case blocks.Next:
			printNext(w, b...)
		case blocks.Advice:
			printNext(w, b.Steps...)
		case blocks.More:
			step := fault.Step{Verb: b.Verb, Args: map[string]any{}}
			if raw, err := json.Marshal(args); err == nil {
				_ = json.Unmarshal(raw, &step.Args) // what is no object has no arguments
			}
			step.Args[b.Argument] = b.Value
			printNext(w, step)
		}
	}
}

func sentenceText(s blocks.Sentence) string {
	var values []any
	for _, v := range s.Values {
		text := ""
		if v = blocks.Value(v); v != nil {
			text = shownText(v, 200)
		}
		values = append(values, text)
	}
	return fmt.Sprintf(s.Format, values...)
}

// shownText returns a value; of data at most so many characters.
func shownText(v any, width int) string {
	v = blocks.Value(v)
	switch v := v.(type) {
	case nil:
		return "-"
	case blocks.Data:
		return cellText(string(v), width)
	case blocks.Reason:
		return clipLine(string(v), width)
	case blocks.Bytes:
		return bytesText(int64(v))
	case time.Time:
		return dateTime(v)
	case blocks.Verb:
		return Words([]fault.Step{{Verb: string(v)}})
	case blocks.Next:
		return Words(v)
	case blocks.Artifacts:
		var list []string
		for _, a := range v {
			list = append(list, a.Name+" "+a.ID)
		}
		return strings.Join(list, "; ")
	case blocks.Sentence:
		return sentenceText(v)
	}
	return fmt.Sprint(v)
}

// printFacts prints a line for each fact.
func printFacts(w io.Writer, facts []blocks.Fact) {
	name := 6
	for _, f := range facts {
		name = max(name, len(f.Name))
	}
	for _, f := range facts {
		fmt.Fprintf(w, "%-*s  %s\n", name, f.Name, shownText(f.Value, 4096))
	}
}

// printRows prints a table, and below a list how many there are.
func printRows(w io.Writer, t blocks.Table) {
	var head []string
	for _, c := range t.Columns {
		head = append(head, clipLine(strings.ReplaceAll(c.Name, "|", "/"), cmp.Or(c.Width, 60)))
	}
	var rows [][]string
	for _, r := range t.Rows {
		var row []string
		for i, v := range r[:min(len(r), len(t.Columns))] {
			row = append(row, shownText(v, cmp.Or(t.Columns[i].Width, 60)))
		}
		rows = append(rows, row)
	}
	table(w, strings.Join(head, "|"), rows)
	if t.Noun != "" {
		fmt.Fprintln(w, t.Count())
	}
}
