package filetype

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"regexp"
)

// samHeader is a first header line of the SAM specification, 1.3.
var samHeader = regexp.MustCompile(`^@(HD\tVN:[0-9]+\.[0-9]+|SQ\t[A-Za-z0-9]{2}:|RG\tID:|PG\tID:)`)

func looksSAM(b []byte, _, _ bool) bool { return samHeader.Match(b) }

// looksFASTA checks the first record as far as it is there: >name, then lines of residues.
func looksFASTA(b []byte, _, _ bool) bool {
	lines := bytes.SplitN(b, []byte("\n"), 4)
	if len(lines[0]) < 2 || lines[0][0] != '>' || len(lines) < 2 {
		return false
	}
	residues := bytes.TrimSuffix(lines[1], []byte("\r"))
	for _, c := range residues {
		if !('A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '*' || c == '-' || c == '.') {
			return false
		}
	}
	return len(residues) > 0
}

// logLine is a line that begins with a date and a time of day.
var logLine = regexp.MustCompile(`^\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}`)

const (
	fewestLogLines = 5 // below these a text could be anything
	fewestRows     = 3
)

// looksLOG reports whether a file is called a log, or four lines in five begin with a time.
func looksLOG(head []byte, named, _ bool) bool {
	lines, timed := 0, 0
	for line := range bytes.Lines(wholeLines(head)) {
		if lines++; logLine.Match(line) {
			timed++
		}
	}
	return named || lines >= fewestLogLines && timed*5 >= lines*4
}

func looksHTML(head []byte, _, _ bool) bool {
	start := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	lower := bytes.ToLower(start[:min(len(start), 16)])
	return bytes.HasPrefix(lower, []byte("<!doctype html")) || bytes.HasPrefix(lower, []byte("<html"))
}

// looksJSON reports whether head is one JSON value, or the beginning of one where the head may be cut. A bare number, word or
// string is JSON only in a file that is called so.
func looksJSON(head []byte, named, _ bool) bool {
	body := bytes.TrimLeft(head, " \t\r\n")
	if len(body) == 0 || body[0] != '{' && body[0] != '[' && !named {
		return false
	}
	if len(head) < HeadBytes {
		return json.Valid(head)
	}
	dec := json.NewDecoder(bytes.NewReader(head))
	depth := 0
	for n := 0; ; n++ {
		tok, err := dec.Token()
		if err != nil {
			return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		}
		if depth == 0 && n > 0 { // a second value
			return false
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

// Tables and Markdown whose file is not called so are recognised by content alone, where that leaves little doubt.

func looksTSV(head []byte, named, nameless bool) bool {
	tabs := bytes.IndexByte(head, '\t') >= 0 && bytes.IndexByte(lastLine(head), '\t') >= 0
	return (named || nameless && tabs && hasRows(head)) && evenTabs(head)
}

func looksCSV(head []byte, named, nameless bool) bool {
	first, _, _ := bytes.Cut(head, []byte("\n"))
	commas := bytes.IndexByte(first, ',') > 0 && !bytes.Contains(head, []byte(", "))
	return (named || nameless && commas && hasRows(head)) && evenCSV(head)
}

func looksMD(head []byte, named, nameless bool) bool {
	titles := bytes.HasPrefix(head, []byte("# ")) && bytes.Contains(head, []byte("\n## "))
	return named || nameless && titles && !looksLOG(head, false, true)
}

func looksTEXT([]byte, bool, bool) bool { return true }

// hasRows reports whether there are enough lines for a table, and they are not those of a log.
func hasRows(head []byte) bool {
	return bytes.Count(wholeLines(head), []byte("\n")) >= fewestRows && !looksLOG(head, false, true)
}

// lastLine returns the last whole line of the head, so never a comment in front of a table.
func lastLine(head []byte) []byte {
	b := bytes.TrimRight(wholeLines(head), "\r\n")
	return b[bytes.LastIndexByte(b, '\n')+1:]
}

// wholeLines cuts a line that the head ends within.
func wholeLines(head []byte) []byte {
	if i := bytes.LastIndexByte(head, '\n'); len(head) >= HeadBytes && i >= 0 {
		return head[:i+1]
	}
	return head
}

// evenTabs reports whether all lines but comments have the same number of columns.
func evenTabs(head []byte) bool {
	columns := -1
	for line := range bytes.Lines(wholeLines(head)) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		n := bytes.Count(line, []byte("\t"))
		if columns >= 0 && n != columns {
			return false
		}
		columns = n
	}
	return true
}

func evenCSV(head []byte) bool {
	r := csv.NewReader(bytes.NewReader(wholeLines(head)))
	r.Comment = '#'
	r.ReuseRecord = true
	for {
		_, err := r.Read() // refuses a record with another number of fields than the first
		if err == io.EOF {
			return true
		}
		if err != nil {
			// A quoted field may hold the newline that the head was cut at.
			return len(head) >= HeadBytes && errors.Is(err, csv.ErrQuote) && r.InputOffset() == int64(len(wholeLines(head)))
		}
	}
}
