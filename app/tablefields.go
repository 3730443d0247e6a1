package app

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/visible"
)

// valueText returns a value as a table shows it: numbers are not cut.
func valueText(s string) string {
	if cell := visible.Cell(s, maxTableValue); cell == s {
		return fault.ClipTo(s, len(s))
	}
	return fault.ClipTo(s, maxTableValue)
}

// someOf lists at most 40 names and the number of others.
func someOf(names []string) string {
	const most = 40
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// fieldsOf returns the fields of an output: the leaves of a JSON object, a table of one row, or a table of names and
// values. If there are more than maxFields it returns one more than that.
func fieldsOf(typ string, text []byte) (out []tableField) {
	if typ == "JSON" {
		d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		out, err := leaves("", d, nil)
		if err != nil {
			return nil
		}
		return out
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord, r.LazyQuotes = -1, true
	if typ == "TSV" {
		r.Comma = '\t'
	}
	rows, err := r.ReadAll()
	if err != nil || len(rows) < 2 {
		return nil
	}
	add := func(name, value string) {
		if name != "" && len(out) <= maxFields {
			out = append(out, tableField{fault.ClipTo(name, 200), valueText(value)})
		}
	}
	switch {
	case len(rows) == 2:
		for i, name := range rows[0] {
			if i < len(rows[1]) {
				add(name, rows[1][i])
			}
		}
	case len(rows[0]) == 2:
		for _, r := range rows {
			if len(r) == 2 {
				add(r[0], r[1])
			}
		}
	}
	return out
}

// leaves adds the numbers, texts and truth values of the next JSON value, in its order, by their path. It skips lists
// with several elements.
func leaves(at string, d *jsontext.Decoder, out []tableField) ([]tableField, error) {
	tok, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case '{':
		for d.PeekKind() != '}' {
			key, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			if out, err = leaves(strings.TrimPrefix(at+"."+key.String(), "."), d, out); err != nil {
				return nil, err
			}
		}
		_, err = d.ReadToken()
	case '[':
		before, n := len(out), 0
		for ; d.PeekKind() != ']'; n++ {
			if out, err = leaves(at, d, out); err != nil {
				return nil, err
			}
		}
		if n > 1 {
			out = out[:before]
		}
		_, err = d.ReadToken()
	case 'n':
	default:
		if at != "" && len(out) <= maxFields {
			out = append(out, tableField{fault.ClipTo(at, 200), valueText(tok.String())})
		}
	}
	return out, err
}
