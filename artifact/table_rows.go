package artifact

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"slurmgate/visible"
)

// tableReader builds one preview.
type tableReader struct {
	q      TableQuery
	in     *records
	table  Table
	kinds  []string // of the columns
	width  int      // of the widest row read
	left   int      // bytes that may still be shown
	ended  bool
	uneven bool
}

func (t *tableReader) read() error {
	comment, err := t.in.comments()
	if err != nil {
		return t.stopped(err)
	}
	rec, err := t.in.next()
	if err != nil {
		return t.stopped(err)
	}
	first := rec.cells()
	if len(comment) > 0 {
		comment[0] = strings.TrimPrefix(comment[0], "#")
	}
	switch {
	case len(comment) == len(first) && len(comment) > 1:
		t.header(comment, rec.width)
		t.row(rec)
	case isHeader(first):
		t.header(first, rec.width)
	default:
		t.width = rec.width
		t.row(rec)
	}
	for len(t.table.Rows) < t.q.MaxRows && !t.table.Truncated || t.table.RowsRead < typedRows {
		rec, err := t.in.next()
		if err != nil {
			return t.stopped(err)
		}
		t.row(rec)
	}
	_, err = t.in.in.Peek(1)
	t.ended = err == io.EOF && !t.in.more
	return nil
}

// stopped ends the table at its end, or where no more may be read; another error is of the file or of the caller.
func (t *tableReader) stopped(err error) error {
	switch err {
	case io.EOF:
		t.ended = true
		return nil
	case errScanned:
		if len(t.table.Columns) == 0 && t.table.RowsRead == 0 { // a line longer than what may be read: its beginning
			t.row(&t.in.rec)
		}
		t.table.Warnings = append(t.table.Warnings, fmt.Sprintf("only the first %d bytes were read", int64(maxTableScan)))
		return nil
	}
	return fsFault("the artifact cannot be read", err)
}

func (t *tableReader) header(names []string, width int) {
	t.table.Header, t.width = true, width
	for _, n := range names {
		t.table.Columns = append(t.table.Columns, Column{Name: t.show(strings.TrimSpace(n))})
	}
}

// row counts a row, records the kinds of its cells if it is one of the first or is shown, and shows it if it was requested.
func (t *tableReader) row(rec *tableRecord) {
	n := t.table.RowsRead
	t.table.RowsRead++
	t.uneven = t.uneven || t.width > 0 && rec.width != t.width
	t.width = max(t.width, rec.width)
	wanted := n >= t.q.FirstRow && !t.table.Truncated
	if !wanted && n >= typedRows {
		return
	}
	cells := rec.cells()
	for i, cell := range cells {
		if i == len(t.kinds) {
			t.kinds = append(t.kinds, "empty")
		}
		if t.kinds[i] != "text" {
			t.kinds[i] = both(t.kinds[i], kindOf(cell))
		}
	}
	if !wanted {
		return
	}
	if len(t.table.Rows) >= t.q.MaxRows {
		t.table.Truncated = true
		return
	}
	need := 0
	for _, cell := range cells {
		need += min(len(cell), maxCell) + 1
	}
	if need > t.left {
		t.table.Truncated = true
		return
	}
	row := make([]string, 0, len(cells))
	for _, cell := range cells {
		row = append(row, t.show(cell))
	}
	t.table.Rows = append(t.table.Rows, row)
}

// show makes a cell printable, shortens it, and counts its bytes.
func (t *tableReader) show(cell string) string {
	var b strings.Builder
	for rest := []byte(t.q.Clean(cell)); len(rest) > 0; {
		text, n := next(rest)
		if text == "\n" || text == "\t" {
			text = " "
		}
		b.WriteString(text)
		if b.Len() > maxCell {
			break
		}
		rest = rest[n:]
	}
	shown := visible.Clip(b.String(), min(maxCell, t.left))
	t.left = max(0, t.left-len(shown)-1)
	return shown
}

func (t *tableReader) finish() Table {
	for i := len(t.table.Columns); i < min(t.width, maxColumns); i++ {
		t.table.Columns = append(t.table.Columns, Column{Name: fmt.Sprintf("column_%d", i+1)})
	}
	for i := range t.table.Columns {
		t.table.Columns[i].Type = "empty"
		if i < len(t.kinds) {
			t.table.Columns[i].Type = t.kinds[i]
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

// kindOf returns the type of a cell: empty also for a missing value. A number with a leading zero is an identifier,
// and an integer has at most 15 digits, so that reading it as a float loses none.
func kindOf(cell string) string {
	cell = strings.TrimSpace(cell)
	switch strings.ToLower(cell) {
	case "", ".", "-", "na", "n/a", "nan", "null", "none":
		return "empty"
	case "true", "false":
		return "boolean"
	}
	digits := strings.TrimLeft(cell, "+-")
	padded := len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'
	if _, err := strconv.ParseFloat(cell, 64); err == nil && !padded && !strings.ContainsAny(digits, "xXiI_") {
		if len(digits) <= 15 && strings.Trim(digits, "0123456789") == "" {
			return "integer"
		}
		return "number"
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339, time.DateTime, "2006-01-02T15:04:05"} {
		if _, err := time.Parse(layout, cell); err == nil {
			return "date"
		}
	}
	return "text"
}

// both returns the type of a column with cells of two types.
func both(a, b string) string {
	switch {
	case a == b, b == "empty":
		return a
	case a == "empty":
		return b
	case a+b == "integernumber", a+b == "numberinteger":
		return "number"
	}
	return "text"
}

// isHeader reports whether a first row contains column names: distinct words, none of them a value.
func isHeader(rec []string) bool {
	seen := map[string]bool{}
	for _, cell := range rec {
		cell = strings.TrimSpace(cell)
		if cell == "" || seen[cell] || kindOf(cell) != "text" || len(cell) > maxCell || strings.ContainsAny(cell, "\n\r") {
			return false
		}
		seen[cell] = true
	}
	return len(rec) > 0
}
