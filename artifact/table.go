package artifact

import (
	"bytes"
	"context"
	"io"

	"slurmgate/fault"
	"slurmgate/filetype"
)

// Limits of a table preview, whatever the request.
const (
	maxTableScan = 32 << 20 // bytes of the file read to reach the first requested row
	maxColumns   = 256      // columns shown
	maxCell      = 256      // bytes shown of one cell
	typedRows    = 1000     // rows from which column types are guessed, in addition to those shown
)

// TableQuery selects a part of a table.
type TableQuery struct {
	Delimiter rune                     // ',' or '\t'; 0: detected from the first line
	FirstRow  int64                    // rows to skip; the header does not count as a row
	MaxRows   int                      // most rows to show
	Clean     func(cell string) string // removes hidden texts from a cell before it is shortened; nil: none
	MaxBytes  int                      // most bytes of cells and names to show, in total
}

// Column is one column of a table.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type" help:"integer, number, boolean, date, text, or empty; guessed from the rows read"`
}

// Table is a part of a table.
type Table struct {
	Columns      []Column   `json:"columns"`
	ColumnsTotal int        `json:"columns_total" help:"may be larger than the number of columns listed"`
	Header       bool       `json:"header" help:"whether the column names come from the file"`
	FirstRow     int64      `json:"first_row"` // number of the first row shown, from 0
	Rows         [][]string `json:"rows"`
	RowsRead     int64      `json:"rows_read"` // rows read, skipped ones included
	Truncated    bool       `json:"truncated"` // not the whole file was read or shown
	Delimiter    string     `json:"delimiter"`
	Warnings     []string   `json:"warnings"`
}

// PreviewTable shows rows of a CSV or tab-separated file of size bytes, in constant memory, until ctx ends. Lines that begin with # before
// the header are comments; the last of them is the header if it has as many columns as the first row, as in VCF. Control characters in
// cells are made visible. A binary file, or a text without the delimiter, is a Validation fault.
func PreviewTable(ctx context.Context, f io.ReaderAt, size int64, q TableQuery) (Table, error) {
	head := make([]byte, min(size, filetype.HeadBytes))
	if n, err := f.ReadAt(head, 0); err != nil && err != io.EOF || int64(n) < int64(len(head)) {
		return Table{}, fsFault("the artifact cannot be read", orEOF(err))
	}
	if filetype.IsBinary(head) {
		return Table{}, notTable("it is a binary file")
	}
	if q.Delimiter == 0 {
		q.Delimiter = delimiterOf(head)
	}
	if q.Delimiter != ',' && q.Delimiter != '\t' {
		return Table{}, notTable("its lines contain neither tabs nor commas")
	}
	if q.Clean == nil {
		q.Clean = func(cell string) string { return cell }
	}
	q.FirstRow, q.MaxRows, q.MaxBytes = max(q.FirstRow, 0), max(q.MaxRows, 0), max(q.MaxBytes, 0)
	t := &tableReader{q: q, table: Table{Rows: [][]string{}, Columns: []Column{}, Warnings: []string{}, Delimiter: string(q.Delimiter),
		FirstRow: q.FirstRow}, left: q.MaxBytes}
	t.in = newRecords(io.NewSectionReader(during(ctx, f), 0, min(size, maxTableScan)), q.Delimiter, size > maxTableScan)
	if err := t.read(); err != nil {
		return Table{}, err
	}
	t.table.Truncated = t.table.Truncated || !t.ended
	return t.finish(), nil
}

func orEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func notTable(msg string) error {
	return fault.Invalid("", fault.Problem{Code: "PREVIEW-TABLE", Field: "artifact_id",
		Rule: "comma- or tab-separated text", Msg: msg, Hint: "preview it as text", Next: []fault.Step{fault.Do("artifact.preview.text")}})
}

// delimiterOf returns the delimiter that occurs more often in the first line that is not a comment.
func delimiterOf(head []byte) rune {
	for line := range bytes.Lines(head) {
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		tabs, commas := bytes.Count(line, []byte("\t")), bytes.Count(line, []byte(","))
		switch {
		case tabs > 0:
			return '\t'
		case commas > 0:
			return ','
		}
		return 0
	}
	return 0
}
