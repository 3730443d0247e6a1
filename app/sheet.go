package app

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Bounds of a sheet.
const (
	MaxSheetRows   = 10_000
	MaxSheetBytes  = 16 << 20
	maxArgsBytes   = 4 * MaxSheetBytes
	sheetFactor    = 8 // bytes of memory that a byte of a sheet may need while it is checked
	maxColumns     = 200
	maxSampleBytes = 128
	maxTags        = 20
	maxProblems    = 100 // listed in one answer
)

// Columns of a sheet that describe the row. The tool gets them too, where it has a parameter of that name.
const (
	sampleColumn = "sample"
	tagsColumn   = "tags"
	labelColumn  = "label"
)

// Sheet is a sample sheet: CSV or TSV, its first line names the columns.
type Sheet struct {
	Columns []string
	Line    int // of the columns, in the text
	Rows    []SheetRow
}

// SheetRow is a row with its place in the sheet.
type SheetRow struct {
	Line  int // of the text, from 1
	Cells []string
}

// sheetProblem returns a mistake in a sheet: its field names row and column as a spreadsheet shows them.
func sheetProblem(code string, line int, column, rule, msg string) fault.Problem {
	field := fmt.Sprintf("row %d", line)
	if column != "" {
		field += ", column " + column
	}
	return fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg}
}

// BadSheet returns the error of a sheet with mistakes; it lists as many as one answer holds.
func BadSheet(problems []fault.Problem) error {
	var m mistakes
	m.add(problems...)
	return m.err()
}

// ReadSheet reads a sheet as spreadsheets write it: separated by commas, tabs or the separator in a first line sep=,
// in UTF-8 or UTF-16 with a byte order mark, with any line ends, and with blank lines. It uses memory only within the
// bounds, and stops with ctx.
func ReadSheet(ctx context.Context, text []byte) (s Sheet, err error) {
	text, separator, err := sheetText(text)
	if err != nil {
		return s, err
	}
	head, _, _ := bytes.Cut(bytes.TrimLeft(text, "\r\n"), []byte("\n"))
	r := csv.NewReader(newRowText(ctx, text))
	r.FieldsPerRecord, r.TrimLeadingSpace, r.ReuseRecord = -1, true, true
	switch {
	case separator != 0:
		r.Comma, r.TrimLeadingSpace = separator, separator != '\t'
	case bytes.ContainsRune(head, '\t'):
		r.Comma, r.TrimLeadingSpace = '\t', false
	case !bytes.ContainsRune(head, ',') && bytes.ContainsRune(head, ';'):
		return s, BadSheet([]fault.Problem{{Code: "SHEET-SEPARATOR", Field: "row 1", Rule: "columns separated by commas or tabs",
			Msg:  "the columns are separated by semicolons, which separate the values of a cell here",
			Hint: "save the sheet with commas, or, where values of a cell are in quotes, put the line sep=; before it"}})
	}
	var wrong mistakes
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if x, ok := errors.AsType[*csv.ParseError](err); ok {
			msg := x.Err.Error()
			if x.Line > x.StartLine {
				msg = fmt.Sprintf("up to line %d: %s", x.Line, msg)
			}
			return s, BadSheet([]fault.Problem{sheetProblem("SHEET-QUOTES", x.StartLine, "", "quotes around a whole cell, doubled inside it", msg)})
		}
		if err != nil {
			return s, err
		}
		line, _ := r.FieldPos(0)
		switch cells = trimmed(cells); {
		case len(cells) == 0: // blank
		case s.Columns == nil:
			if len(cells) > maxColumns {
				return s, BadSheet([]fault.Problem{sheetProblem("SHEET-COLUMNS", line, "", fmt.Sprintf("at most %d columns", maxColumns),
					fmt.Sprintf("%d columns are too many", len(cells)))})
			}
			s.Columns, s.Line = slices.Clone(cells), line
			wrong.add(s.badColumns()...)
		case len(s.Rows) == MaxSheetRows:
			return s, BadSheet([]fault.Problem{sheetProblem("SHEET-ROWS", line, "", fmt.Sprintf("at most %d rows", MaxSheetRows),
				"the sheet has more rows; split it into several batches")})
		case len(cells) > len(s.Columns):
			s.Rows = append(s.Rows, SheetRow{Line: line})
			wrong.add(sheetProblem("SHEET-CELLS", line, "", fmt.Sprintf("%d cells, as the first line has", len(s.Columns)),
				fmt.Sprintf("the row has %d cells; put a cell with the separator in it into quotes", len(cells))))
		default:
			s.Rows = append(s.Rows, SheetRow{line, slices.Clone(cells)})
		}
	}
	if len(s.Rows) == 0 {
		wrong.add(fault.Problem{Code: "SHEET-EMPTY", Field: "sheet", Rule: "a line that names the columns, then a line for each sample",
			Msg: "the sheet has no rows"})
	}
	return s, wrong.err()
}

// trimmed returns the cells of a row without surrounding space, and without empty cells at its end: spreadsheets
// still write columns that were cleared.
func trimmed(cells []string) []string {
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	for len(cells) > 0 && cells[len(cells)-1] == "" {
		cells = cells[:len(cells)-1]
	}
	return cells
}

// badColumns returns the mistakes of the line that names the columns.
func (s Sheet) badColumns() (problems []fault.Problem) {
	bad := func(code, column, rule, msg string) {
		problems = append(problems, sheetProblem(code, s.Line, column, rule, msg))
	}
	for i, name := range s.Columns {
		switch {
		case name == "":
			bad("SHEET-COLUMN", fmt.Sprint(i+1), "a name for every column", "the column has no name")
		case len(name) > maxSampleBytes:
			bad("SHEET-COLUMN", fmt.Sprint(i+1), fmt.Sprintf("a name of at most %d bytes", maxSampleBytes),
				fmt.Sprintf("the column's name has %d bytes", len(name)))
		case slices.Index(s.Columns, name) < i:
			bad("SHEET-TWICE", name, "each column once", "the column is there twice")
		}
	}
	return problems
}

// Text returns the sheet as CSV, each row on its original line.
func (s Sheet) Text() string {
	var b strings.Builder
	line := 1
	write := func(cells []string) {
		w := csv.NewWriter(&b)
		w.Write(cells) // never fails: it writes to memory
		w.Flush()
		line += 1 + strings.Count(strings.Join(cells, ""), "\n")
	}
	for _, r := range append([]SheetRow{{s.Line, s.Columns}}, s.Rows...) {
		for ; line < r.Line; line++ {
			b.WriteString("\n")
		}
		write(r.Cells)
	}
	return b.String()
}

// ColumnPlace describes how a tool uses a column of a sheet.
type ColumnPlace struct {
	Name     string // the tool's parameter; empty where it has none
	Own      string // sample, tags or label: its cells describe the row
	Schema   ArgSchema
	Artifact bool   // its cells have ids of artifacts
	List     bool   // a cell may have several, separated by semicolons
	Type     string // of the files of an input; empty: several types are accepted
}

// Place finds how a tool uses a column: as one of its parameters, as an input by its role, as a description of the
// row, or both. An input named sample, tags or label is a file and does not describe the row. If the tool does not
// use the column it returns a problem.
func (t ToolDoc) Place(column string) (p ColumnPlace, problem *fault.Problem) {
	root := SchemaOfArgs(t.InputSchema)
	name := column
	i := slices.IndexFunc(t.Inputs, func(in PackInput) bool { return in.Param == column || in.Role == column })
	if i >= 0 {
		name = t.Inputs[i].Param
	}
	if describesRow(column) {
		p.Own = column
	}
	schema, ok := root.Property(name)
	switch {
	case ok:
	case p.Own != "":
		return p, nil
	default:
		known := append(root.Names(), sampleColumn, tagsColumn, labelColumn)
		msg := fmt.Sprintf("%s has no parameter %q", t.ToolID, column) + plan.Suggestion(plan.Nearest(column, known))
		x := sheetProblem("SHEET-COLUMN", 1, column, "one of "+strings.Join(known, ", "), msg)
		return p, &x
	}
	types := schema.Types()
	p.Name, p.Schema, p.List = name, schema, slices.Contains(types, "array") && !slices.Contains(types, "string")
	element := schema
	if p.List {
		element, _ = schema.Items()
	}
	if p.Artifact = element.IsArtifact() || i >= 0; p.Artifact {
		p.Own = ""
	}
	if i >= 0 && len(t.Inputs[i].Types) == 1 {
		p.Type = t.Inputs[i].Types[0]
	}
	return p, nil
}

// describesRow reports whether a column describes the row.
func describesRow(column string) bool {
	return column == sampleColumn || column == tagsColumn || column == labelColumn
}

// Elements returns the values of a cell.
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

// value converts a cell to the type in the tool's schema.
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
				Msg:  fmt.Sprintf("%q is not an id", fault.Clip(text)), Hint: "find its id",
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

// Places finds how a tool uses each column, and returns the problems of those that it does not use.
func (s Sheet) Places(place func(column string) (ColumnPlace, *fault.Problem)) (places []ColumnPlace, problems []fault.Problem) {
	for _, column := range s.Columns {
		p, problem := place(column)
		if places = append(places, p); problem != nil {
			problem.Field = sheetProblem("", s.Line, column, "", "").Field
			problems = append(problems, *problem)
		}
	}
	return places, problems
}

// requests returns a request for each row, and all mistakes. place finds how the tool uses a column. set has
// arguments for all rows; a cell takes precedence.
func (s Sheet) requests(place func(column string) (ColumnPlace, *fault.Problem), set map[string]json.RawMessage) (out []sheetArgs,
	wrong mistakes) {
	places, problems := s.Places(place)
	if wrong.add(problems...); wrong.n > 0 {
		return nil, wrong
	}
	total := 0
	for _, r := range s.Rows {
		before := wrong.n
		row, values := sheetArgs{line: r.Line, sample: fmt.Sprintf("row-%d", r.Line)}, map[string]any{}
		for name, v := range set {
			values[name] = v
		}
		for i, cell := range r.Cells {
			if cell == "" {
				continue
			}
			p := places[i]
			if p.Own != "" {
				wrong.add(row.describe(p.Own, cell)...)
			}
			if p.Name != "" {
				v, err := p.value(sheetProblem("", r.Line, s.Columns[i], "", "").Field, cell)
				if values[p.Name] = v; err != nil {
					wrong.add(fault.ProblemsOf(err)...)
				}
			}
		}
		args, err := plan.Marshal(values)
		if err != nil {
			wrong.add(sheetProblem("SHEET-CELL", r.Line, "", "values that JSON holds", err.Error()))
		}
		if row.args = args; wrong.n == before { // a row with a mistake gives no request
			out = append(out, row)
		}
		if total += len(args); wrong.tooMuch(r.Line, total) {
			break
		}
	}
	return out, wrong
}

// describe stores a cell that describes the row.
func (r *sheetArgs) describe(column, cell string) []fault.Problem {
	bad := func(rule string) []fault.Problem {
		return []fault.Problem{sheetProblem("SHEET-"+strings.ToUpper(column), r.line, column, rule,
			fmt.Sprintf("%q is not allowed here", fault.Clip(cell)))}
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
			if len(r.tags) > maxTags {
				break
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
