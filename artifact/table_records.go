package artifact

import (
	"bufio"
	"errors"
	"io"
)

// records reads one record after another, and of each no more than a preview may show: a record may be as long as the file. Tab-separated
// files have no quoting; commas follow RFC 4180, leniently, as package csv does with LazyQuotes.
type records struct {
	in        *bufio.Reader
	delimiter byte
	quotes    bool
	more      bool // the file is longer than what may be read
	rec       tableRecord
}

// tableRecord is a record's first cells, each cut, and how many it has.
type tableRecord struct {
	text  []byte
	ends  []int // in text, of each cell
	width int
}

// keptCell is how much of a cell is kept, in bytes: enough to see that it is longer than what is shown.
const keptCell = maxCell + 2048

// errScanned ends a table that is longer than what may be read.
var errScanned = errors.New("enough of the table was read")

func newRecords(r io.Reader, delimiter rune, more bool) *records {
	in := &records{in: bufio.NewReader(r), delimiter: byte(delimiter), quotes: delimiter == ',', more: more}
	if b, _ := in.in.Peek(3); string(b) == "\ufeff" {
		_, _ = in.in.Discard(3)
	}
	return in
}

func (r *tableRecord) cells() []string {
	out := make([]string, len(r.ends))
	from := 0
	for i, end := range r.ends {
		out[i] = string(r.text[from:end])
		from = end
	}
	return out
}

// add adds a byte to the current cell, if it is one of those that are kept.
func (r *tableRecord) add(c byte) {
	from := 0
	if n := len(r.ends); n > 0 {
		from = r.ends[n-1]
	}
	if len(r.ends) < maxColumns && len(r.text)-from < keptCell {
		r.text = append(r.text, c)
	}
}

// end ends the current cell.
func (r *tableRecord) end() {
	if r.width++; len(r.ends) < maxColumns {
		r.ends = append(r.ends, len(r.text))
	}
}

// comments reads the lines that begin with # and returns the cells of the last one.
func (in *records) comments() (cells []string, err error) {
	quotes := in.quotes
	defer func() { in.quotes = quotes }()
	in.quotes = false
	var last tableRecord
	for {
		if b, err := in.in.Peek(1); err != nil || b[0] != '#' {
			return last.cells(), nil // next returns the error
		}
		if _, err := in.next(); err != nil {
			return nil, err
		}
		last, in.rec = in.rec, last
	}
}

// The parts of a record that a byte can be in.
const (
	atStart = iota // of a cell
	inCell
	inQuotes
	afterQuote // a quotation mark in quotes: their end, or the first of two
)

// next reads the next record that is not an empty line. It is valid until the next call.
func (in *records) next() (*tableRecord, error) {
	rec := &in.rec
	*rec = tableRecord{text: rec.text[:0], ends: rec.ends[:0]}
	at, held := atStart, false // held: a carriage return, which belongs to the line's end if a newline follows
	for {
		c, err := in.in.ReadByte()
		switch {
		case err == io.EOF && in.more:
			rec.end()
			return nil, errScanned
		case err == io.EOF && rec.width == 0 && len(rec.text) == 0 && at == atStart:
			return nil, io.EOF
		case err == io.EOF:
			rec.end()
			return rec, nil
		case err != nil:
			return nil, err
		}
		if held && c != '\n' {
			if at == afterQuote {
				rec.add('"')
				at = inQuotes
			}
			rec.add('\r')
			if at == atStart {
				at = inCell
			}
		}
		if held = c == '\r'; held {
			continue
		}
		if at == afterQuote {
			switch c {
			case '"':
				rec.add(c)
				at = inQuotes
				continue
			case in.delimiter, '\n': // the end of the cell
				at = inCell
			default: // a single quotation mark
				rec.add('"')
				at = inQuotes
			}
		}
		switch {
		case at == inQuotes && c == '"':
			at = afterQuote
		case at == inQuotes:
			rec.add(c)
		case at == atStart && in.quotes && c == '"':
			at = inQuotes
		case c == in.delimiter:
			rec.end()
			at = atStart
		case c == '\n' && at == atStart && rec.width == 0:
		case c == '\n':
			rec.end()
			return rec, nil
		default:
			rec.add(c)
			at = inCell
		}
	}
}
