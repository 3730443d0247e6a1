package artifact

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// tableReader builds one preview.
type tableReader struct {
	q      TableQuery
	in     *records
	table  Table
	kinds  []kind
	width  int // of the widest row read
	left   int // bytes that may still be shown
	ended  bool
	uneven bool
}

func (t *tableReader) read() error {
	var comment string
	for {
		line, ok := t.in.comment()
		if !ok {
			break
		}
		comment = line
	}
	first, err := t.in.next()
	if err == io.EOF {
		t.ended = true
		return nil
	}
	if err != nil {
		return notTable(err.Error())
	}
	first = append([]string(nil), first...)
	names := strings.Split(strings.TrimPrefix(comment, "#"), string(t.q.Delimiter))
	switch {
	case comment != "" && len(names) == len(first) && len(names) > 1:
		t.header(names)
		t.row(first)
	case isHeader(first):
		t.header(first)
	default:
		t.width = len(first)
		t.row(first)
	}
	for t.wants() {
		rec, err := t.in.next()
		switch {
		case err == io.EOF:
			t.ended = true
			return nil
		case err != nil:
			t.table.Warnings = append(t.table.Warnings, fmt.Sprintf("row %d cannot be read: %v", t.table.RowsRead, err))
			return nil
		}
		t.row(rec)
	}
	_, err = t.in.lines.Peek(1)
	t.ended = err == io.EOF
	return nil
}

// wants reports whether another row must be read, to be shown or to guess types.
func (t *tableReader) wants() bool {
	shown := int64(len(t.table.Rows)) >= int64(t.q.MaxRows) || t.table.Truncated
	return !shown || t.table.RowsRead < typedRows
}

func (t *tableReader) header(names []string) {
	t.table.Header, t.width = true, len(names)
	for _, n := range names[:min(len(names), maxColumns)] {
		t.table.Columns = append(t.table.Columns, Column{Name: t.show(strings.TrimSpace(n))})
	}
}

// row counts a row, records the kinds of its cells, and shows it if it was requested.
func (t *tableReader) row(rec []string) {
	n := t.table.RowsRead
	t.table.RowsRead++
	t.uneven = t.uneven || t.width > 0 && len(rec) != t.width
	t.width = max(t.width, len(rec))
	for len(t.kinds) < min(len(rec), maxColumns) {
		t.kinds = append(t.kinds, 0)
	}
	for i, cell := range rec[:min(len(rec), maxColumns)] {
		t.kinds[i] |= kindOf(cell)
	}
	if n < t.q.FirstRow || t.table.Truncated {
		return
	}
	if len(t.table.Rows) >= t.q.MaxRows {
		t.table.Truncated = true
		return
	}
	need := 0
	for _, cell := range rec[:min(len(rec), maxColumns)] {
		need += min(len(cell), maxCell) + 1
	}
	if need > t.left {
		t.table.Truncated = true
		return
	}
	row := make([]string, 0, min(len(rec), maxColumns))
	for _, cell := range rec[:min(len(rec), maxColumns)] {
		row = append(row, t.show(cell))
	}
	t.table.Rows = append(t.table.Rows, row)
}

// show makes a cell printable, shortens it, and counts its bytes.
func (t *tableReader) show(cell string) string {
	var b strings.Builder
	for rest := []byte(cell); len(rest) > 0; {
		text, n := next(rest)
		if text == "\n" || text == "\t" {
			text = " "
		}
		if b.Len()+len(text) > maxCell || b.Len()+len(text) > t.left {
			b.WriteString("…")
			break
		}
		b.WriteString(text)
		rest = rest[n:]
	}
	t.left = max(0, t.left-b.Len()-1)
	return b.String()
}

func (t *tableReader) finish() Table {
	for i := len(t.table.Columns); i < min(t.width, maxColumns); i++ {
		t.table.Columns = append(t.table.Columns, Column{Name: fmt.Sprintf("column_%d", i+1)})
	}
	for i := range t.table.Columns {
		t.table.Columns[i].Type = "empty"
		if i < len(t.kinds) {
			t.table.Columns[i].Type = t.kinds[i].name()
		}
	}
	t.table.ColumnsTotal = t.width
	if t.uneven {
		t.table.Warnings = append(t.table.Warnings, "not all rows have the same number of columns")
	}
	if t.width > maxColumns {
		t.table.Warnings = append(t.table.Warnings, fmt.Sprintf("only the first %d of %d columns are shown", maxColumns, t.width))
	}
	return t.table
}

// kind is the set of kinds seen in the cells of a column.
type kind uint8

const (
	isInteger kind = 1 << iota
	isNumber
	isBoolean
	isDate
	isWords
)

var (
	// An integer of at most 15 digits, so that reading it as a float loses no digit. A leading zero makes it an identifier.
	integer = regexp.MustCompile(`^[+-]?(0|[1-9][0-9]{0,14})$`)
	number  = regexp.MustCompile(`^[+-]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][+-]?[0-9]{1,3})?$`)
	padded  = regexp.MustCompile(`^[+-]?0[0-9]`)
	date    = regexp.MustCompile(`^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])([T ][0-2][0-9]:[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?)?$`)
)

// kindOf returns the kind of a cell, 0 if the cell is empty or a missing value.
func kindOf(cell string) kind {
	if len(cell) > 64 {
		return isWords
	}
	cell = strings.TrimSpace(cell)
	switch strings.ToLower(cell) {
	case "", ".", "-", "na", "n/a", "nan", "null", "none":
		return 0
	case "true", "false":
		return isBoolean
	}
	switch {
	case integer.MatchString(cell):
		return isInteger
	case number.MatchString(cell) && !padded.MatchString(cell):
		if f, err := strconv.ParseFloat(cell, 64); err == nil && !math.IsInf(f, 0) {
			return isNumber
		}
	case date.MatchString(cell):
		return isDate
	}
	return isWords
}

func (k kind) name() string {
	switch k {
	case 0:
		return "empty"
	case isInteger:
		return "integer"
	case isNumber, isNumber | isInteger:
		return "number"
	case isBoolean:
		return "boolean"
	case isDate:
		return "date"
	}
	return "text"
}

// isHeader reports whether a first row contains column names: distinct words, none of them a value.
func isHeader(rec []string) bool {
	seen := map[string]bool{}
	for _, cell := range rec {
		cell = strings.TrimSpace(cell)
		if cell == "" || seen[cell] || kindOf(cell) != isWords || len(cell) > maxCell || bytes.ContainsAny([]byte(cell), "\n\r") {
			return false
		}
		seen[cell] = true
	}
	return len(rec) > 0
}
