package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

const (
	maxTableFile  = 256 << 10 // bytes of one output
	maxTableAll   = 64 << 20  // bytes of all outputs
	maxFields     = 200       // of one output
	shownFields   = 12
	maxTableValue = 80 // bytes of a cell
	tableReaders  = 4  // outputs that are read in parallel
)

// BatchTableAnswer is a table across the samples of a batch.
type BatchTableAnswer struct {
	CallRunID
	BatchID  string          `json:"batch_id"`
	Name     string          `json:"name"`
	Role     string          `json:"role"`
	Roles    []string        `json:"roles"`  // the outputs that can be shown as a table
	Fields   []string        `json:"fields"` // of the rows' values, in this order
	Others   []string        `json:"other_fields"`
	AllOf    int             `json:"fields_total"` // fields of the outputs, including those not shown
	Total    int             `json:"total"`        // samples with this output
	Rows     []BatchTableRow `json:"rows"`
	Unread   int             `json:"unread"` // samples whose output is too large or has another form
	Pending  int64           `json:"pending"`
	Failed   int64           `json:"failed"`
	Warnings []string        `json:"warnings"`
}

// BatchTableRow is the row of one sample. A value that its output does not have is empty.
type BatchTableRow struct {
	Sample string   `json:"sample"`
	RunID  string   `json:"run_id"`
	Values []string `json:"values"`
}

// tableField is a named value of an output.
type tableField struct{ name, value string }

// BatchTableArgs are the arguments of batch.table.
type BatchTableArgs struct {
	BatchArgs
	Role       string   `json:"role,omitzero" max:"64" about:"the output to read; by default the first that is JSON, TSV or CSV" help:"The output to read. Default: the first that is JSON, TSV or CSV." placeholder:"ROLE"`
	Fields     []string `json:"fields,omitzero" count:"-20" max:"200" about:"the fields to show; by default the first 12" name:"field" help:"A field to show; may be given again." placeholder:"NAME"`
	SortBy     string   `json:"sort_by,omitzero" max:"200" about:"a field; smallest first" name:"sort" help:"Sort by this field, smallest first." placeholder:"NAME"`
	Descending bool     `json:"descending,omitzero" help:"With --sort: largest first."`
	Limit      int      `json:"limit,omitzero" min:"1" max:"200" about:"rows to show, 20 by default" default:"20" help:"Maximum number of samples (1 to 200)."`
}

func (g *Gateway) batchTable(ctx context.Context, c gate.Call, a BatchTableArgs) (out BatchTableAnswer, err error) {
	b, err := g.batchOf(ctx, c, a.BatchArgs)
	if err != nil {
		return out, err
	}
	n := b.Counts
	out = BatchTableAnswer{BatchID: b.ID, Name: b.Name, Role: a.Role, Roles: []string{}, Fields: []string{}, Others: []string{},
		Rows: []BatchTableRow{}, Warnings: []string{}, Pending: n["waiting"] + n["queued"] + n["running"] + n["blocked"],
		Failed: n["failed"] + n["refused"] + n["cancelled"]}
	t := tableOf{out: &out, g: g}
	if err := t.read(ctx, b); err != nil {
		return out, err
	}
	if n["succeeded"] > 0 && !slices.Contains(out.Roles, out.Role) {
		return out, t.noRole(b.Name)
	}
	return out, t.shape(a)
}

// noRole returns the error about a batch without the requested output.
func (t *tableOf) noRole(batch string) error {
	if len(t.out.Roles) == 0 {
		return fault.New(fault.Validation, "batch_without_table", "no output of "+batch+" is JSON, TSV or CSV, so there is nothing to compare").
			WithSteps(fault.Do("batch.rows", "batch", batch, "outputs", true))
	}
	return fault.Invalid("", fault.Problem{Code: "BATCH-ROLE", Field: "role", Rule: "one of " + strings.Join(t.out.Roles, ", "),
		Msg: fmt.Sprintf("no output of %s that is JSON, TSV or CSV has the role %q", batch, t.out.Role)})
}

// tableOf builds a table.
type tableOf struct {
	g      *Gateway
	out    *BatchTableAnswer
	rows   []BatchTableRow
	values [][]string     // of each row, by column; a short row has no values in the remaining columns
	names  []string       // fields in the order of first appearance
	column map[string]int // of each name
	bytes  int64
	more   bool // there are fields beyond maxFields
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

// page reads the outputs of some rows in parallel: each is a small file, and opening it takes most of the time.
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
	fields, more := make([][]tableField, len(files)), make([]bool, len(files))
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(tableReaders)
	for i, f := range files {
		readers.Go(func() (err error) {
			if err = ctx.Err(); err == nil {
				fields[i], more[i], err = t.g.tableFields(f)
			}
			return err
		})
	}
	if err := readers.Wait(); err != nil {
		return err
	}
	for i, row := range of {
		if len(fields[i]) == 0 {
			t.out.Unread++
			continue
		}
		t.more = t.more || more[i]
		values := make([]string, len(t.names), len(t.names)+len(fields[i]))
		for _, x := range fields[i] {
			at, known := t.column[x.name]
			if !known && len(t.names) < maxFields {
				at, known = len(t.names), true
				t.names, t.column[x.name], values = append(t.names, x.name), at, append(values, "")
			}
			if t.more = t.more || !known; known {
				values[at] = x.value
			}
		}
		t.rows, t.values = append(t.rows, row), append(t.values, values)
	}
	return nil
}

// takes reports whether to read an output, and counts it.
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

// inTable reports whether an output has a type that tables can show.
func inTable(o run.Output) bool {
	return slices.Contains([]string{"JSON", "TSV", "CSV"}, o.Artifact.Type)
}

// tableFields reads the fields of an output. more reports that it has others.
func (g *Gateway) tableFields(a run.Artifact) (list []tableField, more bool, err error) {
	f, err := g.Store.Open(a.SHA256)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text := make([]byte, min(a.SizeBytes, maxTableFile))
	n, err := io.ReadFull(f, text)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, false, err
	}
	if list = fieldsOf(a.Type, text[:n]); len(list) > maxFields {
		return list[:maxFields], true, nil
	}
	return list, false, nil
}

// value returns a field of a row; empty: the row does not have it.
func (t *tableOf) value(row int, name string) string {
	if at, known := t.column[name]; known && at < len(t.values[row]) {
		return t.values[row][at]
	}
	return ""
}

// shape sorts the rows, and selects the requested fields and rows.
func (t *tableOf) shape(a BatchTableArgs) error {
	known := func(name, field string) error {
		if slices.Contains(t.names, name) || len(t.rows) == 0 {
			return nil
		}
		return fault.Invalid("", fault.Problem{Code: "BATCH-FIELD", Field: field, Rule: "one of " + someOf(t.names),
			Msg: fmt.Sprintf("the outputs have no field %q", name) + plan.Suggestion(plan.Nearest(name, t.names))})
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
	t.out.Fields, t.out.AllOf = append(t.out.Fields, fields...), len(t.names)
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
	if t.more {
		t.out.Warnings = append(t.out.Warnings, fmt.Sprintf("the outputs have more than %d fields; the others are left out", maxFields))
	}
	if n := t.out.Unread; n > 0 {
		t.out.Warnings = append(t.out.Warnings, fmt.Sprintf(
			"the output %s of %d samples was removed, is too large, or is no table of one row and no JSON object", t.out.Role, n))
	}
	return nil
}

// compareValues compares numbers as numbers, sorts other texts after them, and missing values last.
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
