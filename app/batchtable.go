package app

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

const (
	maxTableFile  = 256 << 10 // bytes of one output
	maxTableAll   = 64 << 20  // of all
	maxFields     = 200       // of one output
	shownFields   = 12
	maxTableValue = 80 // bytes of a cell
	tableReaders  = 4  // outputs that are read at a time
)

// BatchTableAnswer is a table across the samples of a batch.
type BatchTableAnswer struct {
	CallRunID
	BatchID  string          `json:"batch_id"`
	Name     string          `json:"name"`
	Role     string          `json:"role"`
	Roles    []string        `json:"roles"`  // the outputs that can be read like this
	Fields   []string        `json:"fields"` // of the rows' values, in this order
	Others   []string        `json:"other_fields"`
	Total    int             `json:"total"` // samples with this output
	Rows     []BatchTableRow `json:"rows"`
	Unread   int             `json:"unread"` // samples whose output is too large or has another form
	Pending  int64           `json:"pending"`
	Failed   int64           `json:"failed"`
	Warnings []string        `json:"warnings"`
}

// BatchTableRow is one sample. A value that its output does not have is empty.
type BatchTableRow struct {
	Sample string   `json:"sample"`
	RunID  string   `json:"run_id"`
	Values []string `json:"values"`
}

// field is a value of an output by its name.
type tableField struct{ name, value string }

func (g *Gateway) batchTable(ctx context.Context, c gate.Call, a BatchArgs) (out BatchTableAnswer, params any, err error) {
	b, err := g.batchOf(ctx, c, a)
	if err != nil {
		return out, nil, err
	}
	n := b.Counts
	out = BatchTableAnswer{BatchID: b.ID, Name: b.Name, Role: a.Role, Roles: []string{}, Fields: []string{}, Others: []string{},
		Rows: []BatchTableRow{}, Warnings: []string{}, Pending: n["waiting"] + n["queued"] + n["running"] + n["blocked"],
		Failed: n["failed"] + n["refused"] + n["cancelled"]}
	t := tableOf{out: &out, g: g}
	if err := t.read(ctx, b); err != nil {
		return out, nil, err
	}
	if n["succeeded"] > 0 && !slices.Contains(out.Roles, out.Role) {
		return out, nil, t.noRole(b.Name)
	}
	if err := t.shape(a); err != nil {
		return out, nil, err
	}
	seq, err := g.Ledger.Newest(ctx)
	return out, map[string]any{"batch_id": b.ID, "role": out.Role, "fields": out.Fields, "sort_by": a.SortBy, "descending": a.Descending,
		"limit": a.Limit, "ledger_seq": seq, "counts": b.Counts}, err
}

// noRole is the error about a batch without the output that is asked for.
func (t *tableOf) noRole(batch string) error {
	if len(t.out.Roles) == 0 {
		return fault.New(fault.Validation, "batch_without_table", "no output of "+batch+" is JSON, TSV or CSV, so there is nothing to compare").
			WithSteps(fault.Do("batch.rows", "batch", batch, "outputs", true))
	}
	return fault.Invalid("", fault.Problem{Code: "BATCH-ROLE", Field: "role", Rule: "one of " + strings.Join(t.out.Roles, ", "),
		Msg: fmt.Sprintf("no output of %s that is JSON, TSV or CSV has the role %q", batch, t.out.Role)})
}

// tableOf is a table while it is made.
type tableOf struct {
	g      *Gateway
	out    *BatchTableAnswer
	rows   []BatchTableRow
	values [][]string     // of each row, by column; one that is shorter has none of the rest
	names  []string       // fields in the order in which they were first seen
	column map[string]int // of each name
	bytes  int64
}

// read reads the outputs of all samples that succeeded.
func (t *tableOf) read(ctx context.Context, b ledger.Batch) error {
	t.column = map[string]int{}
	after := 0
	for {
		rows, err := t.g.Ledger.BatchRows(ctx, b.ID, ledger.RowFilter{State: "succeeded", After: after, Limit: 500})
		if err != nil || len(rows) == 0 {
			return err
		}
		outputs, err := t.g.outputsOf(ctx, rows)
		if err != nil {
			return err
		}
		after = rows[len(rows)-1].N
		if err := t.page(ctx, rows, outputs); err != nil {
			return err
		}
	}
}

// page reads the outputs of some rows, several at a time: each is a small file, and most of the time goes by with opening it.
func (t *tableOf) page(ctx context.Context, rows []ledger.BatchRow, outputs map[string][]run.Output) error {
	var of []BatchTableRow
	var files []run.Artifact
	for _, r := range rows {
		for _, o := range outputs[r.RunID] {
			if t.takes(o) {
				of, files = append(of, BatchTableRow{Sample: r.Sample, RunID: r.RunID}), append(files, o.Artifact)
			}
		}
	}
	fields, errs := make([][]tableField, len(files)), make([]error, len(files))
	var next atomic.Int64
	var readers sync.WaitGroup
	for range min(tableReaders, len(files)) {
		readers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(files) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				fields[i], errs[i] = t.g.tableFields(files[i])
			}
		})
	}
	readers.Wait()
	if err := cmp.Or(ctx.Err(), errors.Join(errs...)); err != nil {
		return err
	}
	for i, row := range of {
		if len(fields[i]) == 0 {
			t.out.Unread++
			continue
		}
		values := make([]string, len(t.names), len(t.names)+len(fields[i]))
		for _, x := range fields[i] {
			at, known := t.column[x.name]
			if !known && len(t.names) < maxFields {
				at, known = len(t.names), true
				t.names, t.column[x.name], values = append(t.names, x.name), at, append(values, "")
			}
			if known {
				values[at] = x.value
			}
		}
		t.rows, t.values = append(t.rows, row), append(t.values, values)
	}
	return nil
}

// takes reports whether an output is to be read, and counts it.
func (t *tableOf) takes(o run.Output) bool {
	if !inTable(o) {
		return false
	}
	if !slices.Contains(t.out.Roles, o.Role) {
		t.out.Roles = append(t.out.Roles, o.Role)
	}
	if t.out.Role == "" {
		t.out.Role = o.Role
	}
	if o.Role != t.out.Role {
		return false
	}
	t.out.Total++
	t.bytes += o.Artifact.SizeBytes
	if o.Artifact.SizeBytes > maxTableFile || t.bytes > maxTableAll || o.Artifact.Removed+o.Artifact.Erased != "" {
		t.out.Unread++
		return false
	}
	return true
}

// inTable reports whether an output has a type that is read.
func inTable(o run.Output) bool {
	return slices.Contains([]string{"JSON", "TSV", "CSV"}, o.Artifact.Type)
}

// tableFields reads the fields of an output.
func (g *Gateway) tableFields(a run.Artifact) ([]tableField, error) {
	f, err := g.Store.Open(a.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, min(a.SizeBytes, maxTableFile))
	n, err := io.ReadFull(f, text)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	return fieldsOf(a.Type, text[:n]), nil
}

// value is a field of a row; empty: it has none.
func (t *tableOf) value(row int, name string) string {
	if at, known := t.column[name]; known && at < len(t.values[row]) {
		return t.values[row][at]
	}
	return ""
}

// shape sorts, and takes the fields and rows that are asked for.
func (t *tableOf) shape(a BatchArgs) error {
	known := func(name, field string) error {
		if slices.Contains(t.names, name) || len(t.rows) == 0 {
			return nil
		}
		msg := fmt.Sprintf("the outputs have no field %q", name)
		if near := plan.Nearest(name, t.names); near != "" {
			msg += "; did you mean " + near + "?"
		}
		return fault.Invalid("", fault.Problem{Code: "BATCH-FIELD", Field: field,
			Rule: "one of " + strings.Join(t.names[:min(len(t.names), 40)], ", "),
			Msg:  msg})
	}
	for _, name := range a.Fields {
		if err := known(name, "fields"); err != nil {
			return err
		}
	}
	order := make([]int, len(t.rows))
	for i := range order {
		order[i] = i
	}
	if a.SortBy != "" {
		if err := known(a.SortBy, "sort_by"); err != nil {
			return err
		}
		slices.SortStableFunc(order, func(i, j int) int {
			n := compareValues(t.value(i, a.SortBy), t.value(j, a.SortBy))
			if a.Descending {
				n = -n
			}
			return n
		})
	}
	fields := a.Fields
	if len(fields) == 0 {
		fields = slices.Clone(t.names[:min(len(t.names), shownFields)])
		if a.SortBy != "" && !slices.Contains(fields, a.SortBy) {
			fields = append([]string{a.SortBy}, fields...)
		}
	}
	t.out.Fields = append(t.out.Fields, fields...)
	for _, name := range t.names {
		if !slices.Contains(fields, name) && len(t.out.Others) < 40 {
			t.out.Others = append(t.out.Others, name)
		}
	}
	for _, i := range order[:min(len(order), cmp.Or(a.Limit, 20))] {
		r := t.rows[i]
		for _, name := range fields {
			r.Values = append(r.Values, t.value(i, name))
		}
		t.out.Rows = append(t.out.Rows, r)
	}
	if n := t.out.Unread; n > 0 {
		t.out.Warnings = append(t.out.Warnings, fmt.Sprintf(
			"the output %s of %d samples was removed, is too large, or is no table of one row and no JSON object", t.out.Role, n))
	}
	return nil
}

// compareValues compares numbers as numbers; what is no number comes behind them, what is missing last.
func compareValues(a, b string) int {
	x, errX := strconv.ParseFloat(strings.TrimSuffix(a, "%"), 64)
	y, errY := strconv.ParseFloat(strings.TrimSuffix(b, "%"), 64)
	switch {
	case errX == nil && errY == nil:
		return cmp.Compare(x, y)
	case (errX == nil) != (errY == nil):
		return cmp.Compare(btoi(errX != nil), btoi(errY != nil))
	case (a == "") != (b == ""):
		return cmp.Compare(btoi(a == ""), btoi(b == ""))
	}
	return cmp.Compare(a, b)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// fieldsOf are the fields of an output: the leaves of a JSON object, a table of one row, or a table of names and values.
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
		if name != "" && len(out) < maxFields {
			out = append(out, tableField{fault.ClipTo(name, 200), fault.ClipTo(value, maxTableValue)})
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

// leaves adds the numbers, texts and truth values of the JSON value that comes next, in its order, by their path. A list of several has
// none.
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
		if at != "" && len(out) < maxFields {
			out = append(out, tableField{fault.ClipTo(at, 200), fault.ClipTo(tok.String(), maxTableValue)})
		}
	}
	return out, err
}
