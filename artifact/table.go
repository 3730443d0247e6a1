package artifact

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"slurmgate/fault"
)

// Limits of a table preview, whatever the request.
const (
	maxTableScan = 32 << 20 // bytes of the file read to reach the first requested row
	maxTableLine = 1 << 20  // bytes of one record
	maxColumns   = 256      // columns shown
	maxCell      = 256      // bytes shown of one cell
	typedRows    = 1000     // rows from which column types are guessed, at most
)

// TableQuery selects a part of a table.
type TableQuery struct {
	Delimiter rune  // ',' or '\t'; 0: detected from the first line
	FirstRow  int64 // rows to skip; the header does not count as a row
	MaxRows   int   // most rows to show
	MaxBytes  int   // most bytes of cells and names to show, in total
}

// Column is one column of a table.
type Column struct {
	Name string `json:"name"`
	Type string `json:"type"` // integer, number, boolean, date, text, or empty; guessed from the rows read
}

// Table is a part of a table.
type Table struct {
	Columns      []Column   `json:"columns"`
	ColumnsTotal int        `json:"columns_total"` // columns of the header or of the widest row read; may exceed those shown
	Header       bool       `json:"header"`        // the column names come from the file; otherwise they are generated
	FirstRow     int64      `json:"first_row"`     // number of the first row shown, from 0
	Rows         [][]string `json:"rows"`
	RowsRead     int64      `json:"rows_read"` // rows read, skipped ones included; the types are guessed from them
	Truncated    bool       `json:"truncated"` // not the whole file was read or shown
	Delimiter    string     `json:"delimiter"`
	Warnings     []string   `json:"warnings"`
}

// PreviewTable shows rows of a CSV or tab-separated file of size bytes. Lines that begin with # before the header are comments; the last of
// them is the header if it has as many columns as the first row, as in VCF. Control characters in cells are made visible. A binary file, or
// a text without the delimiter, is a Validation fault.
func PreviewTable(f io.ReaderAt, size int64, q TableQuery) (Table, error) {
	const op = "artifact.PreviewTable"
	head := make([]byte, min(size, HeadBytes))
	if n, err := f.ReadAt(head, 0); err != nil && err != io.EOF || int64(n) < int64(len(head)) {
		return Table{}, fsFault(op, "the artifact cannot be read", orEOF(err))
	}
	if isBinary(head) {
		return Table{}, notTable("it is a binary file")
	}
	if q.Delimiter == 0 {
		q.Delimiter = delimiterOf(head)
	}
	if q.Delimiter != ',' && q.Delimiter != '\t' {
		return Table{}, notTable("its lines contain neither tabs nor commas")
	}
	q.FirstRow, q.MaxRows, q.MaxBytes = max(q.FirstRow, 0), max(q.MaxRows, 0), max(q.MaxBytes, 0)
	t := &tableReader{q: q, table: Table{Rows: [][]string{}, Columns: []Column{}, Warnings: []string{}, Delimiter: string(q.Delimiter),
		FirstRow: q.FirstRow}, left: q.MaxBytes}
	t.in = newRecords(io.NewSectionReader(f, 0, min(size, maxTableScan)), q.Delimiter)
	if err := t.read(); err != nil {
		return Table{}, err
	}
	if !t.ended && size > maxTableScan && t.table.RowsRead <= q.FirstRow {
		t.table.Warnings = append(t.table.Warnings, fmt.Sprintf("only the first %d bytes were read", int64(maxTableScan)))
	}
	t.table.Truncated = t.table.Truncated || !t.ended || size > maxTableScan
	return t.finish(), nil
}

func orEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func notTable(msg string) error {
	return fault.Invalid("artifact.PreviewTable", "", fault.Problem{Code: "PREVIEW-TABLE", Field: "artifact_id",
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

// records reads one record after another. Tab-separated files have no quoting; commas follow RFC 4180, leniently.
type records struct {
	lines *bufio.Reader
	csv   *csv.Reader
}

func newRecords(r io.Reader, delimiter rune) *records {
	in := &records{lines: bufio.NewReaderSize(r, maxTableLine)}
	if b, _ := in.lines.Peek(3); bytes.Equal(b, []byte("\ufeff")) {
		_, _ = in.lines.Discard(3)
	}
	if delimiter == ',' {
		in.csv = csv.NewReader(in.lines)
		in.csv.FieldsPerRecord, in.csv.LazyQuotes, in.csv.ReuseRecord = -1, true, true
	}
	return in
}

// comment consumes a line that begins with #, if one is next.
func (in *records) comment() (string, bool) {
	if b, err := in.lines.Peek(1); err != nil || b[0] != '#' {
		return "", false
	}
	line, err := in.line()
	return line, err == nil
}

// line reads a line without its line end; a line longer than the reader's buffer is an error.
func (in *records) line() (string, error) {
	b, err := in.lines.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errLongLine
	case err != nil && len(b) == 0:
		return "", err
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

var errLongLine = errors.New("a line is longer than 1 MiB")

// next returns the next record that is not an empty line. The slice may be reused.
func (in *records) next() ([]string, error) {
	if in.csv != nil {
		return in.csv.Read()
	}
	for {
		line, err := in.line()
		if err != nil || line != "" {
			return strings.Split(line, "\t"), err
		}
	}
}
