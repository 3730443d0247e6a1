package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Row is a row of a batch in the call itself: the tool's arguments by name or by role, and sample, tags and label as
// in a sheet.
type Row = map[string]json.RawMessage

// batchRequests returns a request for each row of a call, and all mistakes.
func (g *Gateway) batchRequests(ctx context.Context, a BatchRunArgs, doc ToolDoc) ([]sheetArgs, mistakes, error) {
	if a.Rows != nil && a.Sheet == "" && a.SheetID == "" {
		rows, wrong := rowRequests(doc, a.Rows, a.Set)
		return rows, wrong, nil
	}
	sheet, err := g.sheet(ctx, a)
	if err != nil {
		return nil, mistakes{}, err
	}
	rows, wrong := sheet.requests(doc.Place, a.Set)
	return rows, wrong, nil
}

// rowRequests is [Sheet.requests] for rows whose values are JSON already. The first row is number 1.
func rowRequests(t ToolDoc, rows []Row, set Row) (out []sheetArgs, wrong mistakes) {
	places := map[string]ColumnPlace{}
	for i, r := range rows {
		for _, column := range slices.Sorted(maps.Keys(r)) {
			if _, seen := places[column]; seen {
				continue
			}
			if len(places) == maxColumns {
				wrong.add(sheetProblem("SHEET-COLUMNS", i+1, "", fmt.Sprintf("at most %d different keys in all rows", maxColumns),
					"the rows up to this one have too many different keys"))
				return nil, wrong
			}
			p, problem := t.Place(column)
			if places[column] = p; problem != nil { // only once, even if many rows have it
				problem.Field = sheetProblem("", i+1, column, "", "").Field
				wrong.add(*problem)
			}
		}
	}
	if wrong.n > 0 {
		return nil, wrong
	}
	total := 0
	for i, r := range rows {
		before := wrong.n
		row, values := sheetArgs{line: i + 1, sample: fmt.Sprintf("row-%d", i+1)}, map[string]any{}
		for name, v := range set {
			values[name] = v
		}
		for _, column := range slices.Sorted(maps.Keys(r)) {
			p, raw := places[column], r[column]
			if string(raw) == "null" {
				continue
			}
			if p.Own != "" {
				wrong.add(row.describeJSON(p, raw)...)
			}
			if p.Name != "" {
				v, problems := p.element(sheetProblem("", row.line, column, "", "").Field, raw)
				values[p.Name] = v
				wrong.add(problems...)
			}
		}
		args, err := plan.Marshal(values)
		if err != nil {
			wrong.add(sheetProblem("SHEET-CELL", row.line, "", "values that JSON holds", err.Error()))
		}
		if row.args = args; wrong.n == before { // a row with a mistake gives no request
			out = append(out, row)
		}
		if total += len(args); wrong.tooMuch(row.line, total) {
			break
		}
	}
	return out, wrong
}

// describeJSON is [sheetArgs.describe] for a JSON value. Where the tool has a parameter of that name, a number
// describes the row as it is written, and a value of another kind is only the parameter's.
func (r *sheetArgs) describeJSON(p ColumnPlace, raw json.RawMessage) []fault.Problem {
	text, ok := words(raw)
	var number json.Number
	switch {
	case !ok && p.Name == "":
		return []fault.Problem{sheetProblem("SHEET-"+strings.ToUpper(p.Own), r.line, p.Own, "a text", "the value is not a text")}
	case !ok && json.Unmarshal(raw, &number) == nil:
		text = number.String()
	}
	if text == "" {
		return nil
	}
	return r.describe(p.Own, text)
}

// words returns a text, or the texts of a list in the form of a sheet's cell.
func words(raw json.RawMessage) (text string, ok bool) {
	var list []string
	if json.Unmarshal(raw, &text) == nil {
		return strings.TrimSpace(text), true
	}
	if json.Unmarshal(raw, &list) != nil {
		return "", false
	}
	return strings.Join(list, ";"), true
}

// element returns a value of a row as JSON for the tool. Where the tool takes a list, a text is read like a cell of a
// sheet. The tool's schema checks other values.
func (p ColumnPlace) element(field string, raw json.RawMessage) (any, []fault.Problem) {
	var text string
	if json.Unmarshal(raw, &text) != nil || !p.List && !p.Artifact {
		return raw, nil
	}
	if strings.TrimSpace(text) == "" {
		return nil, []fault.Problem{{Code: "SHEET-INPUT", Field: field, Rule: "an artifact id (art_…), or ref: and a name",
			Msg: "the text is empty"}}
	}
	v, err := p.value(field, strings.TrimSpace(text))
	return v, fault.ProblemsOf(err)
}
