package app

import (
	"context"
	"fmt"
	"io"

	"slurmgate/fault"
)

// maxRowBytes bounds the text of a sheet's row. The arguments of a run are shorter.
const maxRowBytes = 64 << 10

// rowText passes a sheet's text to a reader of rows, and fails as soon as one row is longer than maxRowBytes. That
// bounds the memory beyond the text itself, whatever quotes and separators the sheet has.
type rowText struct {
	ctx    context.Context
	text   []byte
	quoted bool // inside quotes, where a line end is part of the cell
	length int  // of the row so far
	line   int  // current line of the text, from 1
	first  int  // first line of the row
}

func newRowText(ctx context.Context, text []byte) *rowText {
	return &rowText{ctx: ctx, text: text, line: 1, first: 1}
}

// Read implements [io.Reader].
func (r *rowText) Read(p []byte) (n int, err error) {
	if len(r.text) == 0 {
		return 0, io.EOF
	}
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n = copy(p, r.text)
	for _, c := range r.text[:n] {
		switch r.length++; c {
		case '"':
			r.quoted = !r.quoted
		case '\n':
			r.line++
			if !r.quoted {
				r.length, r.first = 0, r.line
			}
		}
		if r.length > maxRowBytes {
			return 0, r.tooLong()
		}
	}
	r.text = r.text[n:]
	return n, nil
}

func (r *rowText) tooLong() error {
	msg := "the row is longer"
	if r.line > r.first {
		msg = fmt.Sprintf("the row continues to line %d and is longer; a quote may be missing", r.line)
	}
	return BadSheet([]fault.Problem{sheetProblem("SHEET-ROW", r.first, "", fmt.Sprintf("at most %d bytes a row", maxRowBytes), msg)})
}

// mistakes counts the mistakes of a sheet, and stores as many as one answer lists.
type mistakes struct {
	n         int
	list      []fault.Problem
	unchecked int // rows that were not checked
}

func (m *mistakes) add(list ...fault.Problem) {
	m.n += len(list)
	if room := maxProblems - len(m.list); room > 0 {
		m.list = append(m.list, list[:min(room, len(list))]...)
	}
}

// tooMuch adds a mistake if the arguments of all rows so far have more bytes than allowed, and reports that. They are
// stored with each row, including arguments common to all rows.
func (m *mistakes) tooMuch(line, bytes int) bool {
	if bytes <= maxArgsBytes {
		return false
	}
	m.add(sheetProblem("SHEET-ARGS", line, "", fmt.Sprintf("at most %d MiB of arguments in all rows together, those for all rows counted "+
		"with each", maxArgsBytes>>20), "the rows up to this one have more"))
	return true
}

// err returns the error of a sheet with these mistakes, or nil.
func (m *mistakes) err() error {
	if m.n == 0 {
		return nil
	}
	what := fmt.Sprintf("the sheet has %d mistakes; nothing was started", m.n)
	if m.n == 1 {
		what = "the sheet has a mistake; nothing was started"
	}
	if m.n > len(m.list) {
		what += fmt.Sprintf(" (the first %d are listed)", len(m.list))
	}
	if m.unchecked > 0 {
		what += fmt.Sprintf("; %d further rows were not checked", m.unchecked)
	}
	return fault.Invalid(what, m.list...).WithNext("correct the sheet and send it again")
}
