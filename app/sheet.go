package app

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Bounds of a sheet.
const (
	MaxSheetRows   = 10_000
	maxSheetBytes  = 16 << 20
	maxColumns     = 200
	maxSampleBytes = 128
	maxTags        = 20
	maxProblems    = 100 // that one answer lists
)

// columns of a sheet that belong to the row and not to the tool, unless the tool has a parameter of that name.
const (
	sampleColumn = "sample"
	tagsColumn   = "tags"
	labelColumn  = "label"
)

// Sheet is a sample sheet: CSV or TSV, its first line names the columns.
type Sheet struct {
	Columns []string
	Rows    []SheetRow
}

// SheetRow is a row with its place in the sheet.
type SheetRow struct {
	Line  int // of the text, from 1; the header is on line 1 where nothing is before it
	Cells []string
}

// sheetProblem is a mistake in a sheet: its field names row and column as a spreadsheet shows them.
func sheetProblem(code string, line int, column, rule, msg string) fault.Problem {
	field := fmt.Sprintf("row %d", line)
	if column != "" {
		field += ", column " + column
	}
	return fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg}
}

// BadSheet is the error of a sheet with mistakes: all of them, as far as one answer holds them.
func BadSheet(problems []fault.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	n := len(problems)
	what := fmt.Sprintf("the sheet has %d mistakes; nothing was started", n)
	if n == 1 {
		what = "the sheet has a mistake; nothing was started"
	}
	if n > maxProblems {
		what += fmt.Sprintf(" (the first %d are listed)", maxProblems)
		problems = problems[:maxProblems]
	}
	return fault.Invalid(what, problems...).WithNext("correct the sheet and send it again")
}

// ReadSheet reads a sheet as spreadsheets write it: with commas or tabs, with a byte order mark or without, any end of line, blank lines.
func ReadSheet(text []byte) (s Sheet, err error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(text) {
		return s, BadSheet([]fault.Problem{{Code: "SHEET-TEXT", Field: "sheet", Rule: "UTF-8", Msg: "the sheet is not valid UTF-8"}})
	}
	head, _, _ := bytes.Cut(bytes.TrimLeft(text, "\r\n"), []byte("\n"))
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	switch {
	case bytes.ContainsRune(head, '\t'):
		r.Comma, r.TrimLeadingSpace = '\t', false
	case !bytes.ContainsRune(head, ',') && bytes.ContainsRune(head, ';'):
		return s, BadSheet([]fault.Problem{{Code: "SHEET-SEPARATOR", Field: "row 1", Rule: "columns separated by commas or tabs",
			Msg: "the columns are separated by semicolons"}})
	}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
			msg := wrong.Err.Error()
			if wrong.Line > wrong.StartLine {
				msg = fmt.Sprintf("up to line %d: %s", wrong.Line, msg)
			}
			return s, BadSheet([]fault.Problem{sheetProblem("SHEET-QUOTES", wrong.StartLine, "",
				"quotes around a whole cell, doubled inside it", msg)})
		}
		if err != nil {
			return s, err
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		line, _ := r.FieldPos(0)
		for len(cells) > 0 && cells[len(cells)-1] == "" { // spreadsheets write columns that once had something
			cells = cells[:len(cells)-1]
		}
		switch {
		case len(cells) == 0: // blank
		case s.Columns == nil:
			s.Columns = cells
		case len(s.Rows) == MaxSheetRows:
			return s, BadSheet([]fault.Problem{sheetProblem("SHEET-ROWS", line, "", fmt.Sprintf("at most %d rows", MaxSheetRows),
				"the sheet goes on; split it into several batches")})
		default:
			s.Rows = append(s.Rows, SheetRow{line, cells})
		}
	}
	return s, BadSheet(s.misshapen())
}

// misshapen are the mistakes of a sheet's form.
func (s Sheet) misshapen() (problems []fault.Problem) {
	if len(s.Rows) == 0 {
		problems = append(problems, fault.Problem{Code: "SHEET-EMPTY", Field: "sheet",
			Rule: "a line that names the columns, then a line for each sample",
			Msg:  "the sheet has no rows"})
	}
	if len(s.Columns) > maxColumns {
		problems = append(problems, sheetProblem("SHEET-COLUMNS", 1, "", fmt.Sprintf("at most %d columns", maxColumns),
			fmt.Sprintf("there are %d", len(s.Columns))))
	}
	for i, name := range s.Columns {
		switch {
		case name == "":
			problems = append(problems, sheetProblem("SHEET-COLUMN", 1, fmt.Sprint(i+1), "a name for every column", "the column has no name"))
		case slices.Index(s.Columns, name) < i:
			problems = append(problems, sheetProblem("SHEET-TWICE", 1, name, "each column once", "the column is there twice"))
		}
	}
	for _, r := range s.Rows {
		if len(r.Cells) > len(s.Columns) {
			problems = append(problems, sheetProblem("SHEET-CELLS", r.Line, "", fmt.Sprintf("%d cells, as the first line has", len(s.Columns)),
				fmt.Sprintf("there are %d; put a cell with the separator in it into quotes", len(r.Cells))))
		}
	}
	return problems
}

// Text writes the sheet as CSV, each row on the line where it was.
func (s Sheet) Text() string {
	var b strings.Builder
	line := 1
	write := func(cells []string) {
		w := csv.NewWriter(&b)
		w.Write(cells) // never fails: it writes to memory
		w.Flush()
		line += 1 + strings.Count(strings.Join(cells, ""), "\n")
	}
	write(s.Columns)
	for _, r := range s.Rows {
		for ; line < r.Line; line++ {
			b.WriteString("\n")
		}
		write(r.Cells)
	}
	return b.String()
}

// ColumnPlace is what a column of a sheet is to a tool.
type ColumnPlace struct {
	Name     string // the tool's parameter; empty for sample, tags and label
	Schema   ArgSchema
	Artifact bool // its cells name artifacts
	List     bool // a cell has several, separated by semicolons
}

// Place finds what a column is to a tool: one of its parameters, an input by its role, or the row's own. It returns the problem of one
// that is neither.
func (t ToolDoc) Place(column string) (p ColumnPlace, problem *fault.Problem) {
	root := SchemaOfArgs(t.InputSchema)
	name := column
	i := slices.IndexFunc(t.Inputs, func(in PackInput) bool { return in.Param == column || in.Role == column })
	if i >= 0 {
		name = t.Inputs[i].Param
	}
	schema, ok := root.Property(name)
	switch {
	case ok:
	case column == sampleColumn || column == tagsColumn || column == labelColumn:
		return p, nil
	default:
		known := append(root.Names(), sampleColumn, tagsColumn, labelColumn)
		msg := fmt.Sprintf("%s has no parameter %q", t.ToolID, column)
		if near := plan.Nearest(column, known); near != "" {
			msg += "; did you mean " + near + "?"
		}
		x := sheetProblem("SHEET-COLUMN", 1, column, "one of "+strings.Join(known, ", "), msg)
		return p, &x
	}
	types := schema.Types()
	p = ColumnPlace{Name: name, Schema: schema, List: slices.Contains(types, "array") && !slices.Contains(types, "string")}
	element := schema
	if p.List {
		element, _ = schema.Items()
	}
	p.Artifact = element.IsArtifact() || i >= 0
	return p, nil
}

// Elements are the values of a cell.
func (p ColumnPlace) Elements(cell string) []string {
	if !p.List {
		return []string{cell}
	}
	var out []string
	for x := range strings.SplitSeq(cell, ";") {
		if x = strings.TrimSpace(x); x != "" {
			out = append(out, x)
		}
	}
	return out
}

// value reads a cell as the tool's schema has it.
func (p ColumnPlace) value(field, cell string) (any, error) {
	if p.List && strings.HasPrefix(cell, "[") {
		return TypedAs([]string{"array"}, field, cell)
	}
	schema := p.Schema
	if p.List {
		schema, _ = p.Schema.Items()
	}
	var list []any
	for _, text := range p.Elements(cell) {
		var v any = text
		var err error
		switch {
		case p.Artifact && !IsInput(text):
			err = fault.Invalid("", fault.Problem{Code: "SHEET-INPUT", Field: field,
				Rule: "an artifact id (art_…), ref: and a name, or an output of a run (run_…:role) or of a batch (batch_…:role)",
				Msg:  fmt.Sprintf("got %q, which is no id", text), Hint: "find its id",
				Next: []fault.Step{fault.Do("artifact.find", "name", fault.ClipTo(path.Base(text), maxSampleBytes))}})
		case !p.Artifact && !schema.Unsaid():
			v, err = TypedAs(schema.Types(), field, text)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	if p.List {
		return list, nil
	}
	return list[0], nil
}

// sheetArgs is a row of a sheet as a request.
type sheetArgs struct {
	line          int
	sample, label string
	tags          []string
	args          json.RawMessage // canonical
}

// requests makes a request of each row, and returns every mistake on the way. set are arguments of all rows; a cell comes before them.
func (s Sheet) requests(t ToolDoc, set map[string]json.RawMessage) (out []sheetArgs, problems []fault.Problem) {
	places := make([]ColumnPlace, len(s.Columns))
	for i, column := range s.Columns {
		var problem *fault.Problem
		if places[i], problem = t.Place(column); problem != nil {
			problems = append(problems, *problem)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	for _, r := range s.Rows {
		row, values := sheetArgs{line: r.Line, sample: fmt.Sprintf("row-%d", r.Line)}, map[string]any{}
		for name, v := range set {
			values[name] = v
		}
		var wrong []fault.Problem
		for i, cell := range r.Cells {
			if cell == "" {
				continue
			}
			switch p, column := places[i], s.Columns[i]; {
			case p.Name == "":
				wrong = append(wrong, row.own(column, cell)...)
			default:
				v, err := p.value(sheetProblem("", r.Line, column, "", "").Field, cell)
				if values[p.Name] = v; err != nil {
					wrong = append(wrong, fault.ProblemsOf(err)...)
				}
			}
		}
		args, err := plan.Marshal(values)
		if err != nil {
			wrong = append(wrong, sheetProblem("SHEET-CELL", r.Line, "", "values that JSON holds", err.Error()))
		}
		row.args = args
		if problems = append(problems, wrong...); len(wrong) == 0 { // of one with a mistake no more can be said
			out = append(out, row)
		}
	}
	return out, problems
}

// own takes a cell that belongs to the row itself.
func (r *sheetArgs) own(column, cell string) []fault.Problem {
	bad := func(rule string) []fault.Problem {
		return []fault.Problem{sheetProblem("SHEET-"+strings.ToUpper(column), r.line, column, rule, fmt.Sprintf("got %q", cell))}
	}
	plain := func(s string) bool {
		return len(s) <= maxSampleBytes && s != "." && s != ".." && !strings.ContainsFunc(s, func(c rune) bool {
			return c == '/' || c == '\\' || !unicode.IsPrint(c)
		})
	}
	switch column {
	case tagsColumn:
		for tag := range strings.SplitSeq(cell, ";") {
			if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(r.tags, tag) {
				r.tags = append(r.tags, tag)
			}
		}
		if len(r.tags) > maxTags || slices.ContainsFunc(r.tags, func(t string) bool { return !plain(t) }) {
			return bad(fmt.Sprintf("at most %d tags separated by semicolons, each at most %d printable characters without slashes", maxTags,
				maxSampleBytes))
		}
		return nil
	case sampleColumn:
		r.sample = cell
	default:
		r.label = cell
	}
	if !plain(cell) {
		return bad(fmt.Sprintf("at most %d printable characters without slashes: it names a folder", maxSampleBytes))
	}
	return nil
}
