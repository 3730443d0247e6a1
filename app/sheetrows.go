package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// Row is a row of a batch in the call itself: the tool's arguments by name or by role, and sample, tags and label as in a sheet.
type Row = map[string]json.RawMessage

const rowsSchema = `{"type":"array","minItems":1,"maxItems":10000,"items":{"type":"object"},"description":"in place of sheet: an object for ` +
	`each run, e.g. {\"sample\":\"S1\",\"reads\":\"art_…\"}; up to 32 KiB"}`

// batchRequests makes a request of each row that a call has, and returns every mistake on the way.
func (g *Gateway) batchRequests(ctx context.Context, c gate.Call, a BatchRunArgs, doc ToolDoc) ([]sheetArgs, []fault.Problem, error) {
	if a.Rows != nil && a.Sheet == "" && a.SheetID == "" {
		rows, problems := rowRequests(doc, a.Rows, a.Set)
		return rows, problems, nil
	}
	text, err := g.sheetText(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	sheet, err := ReadSheet(text)
	if err != nil {
		return nil, nil, err
	}
	rows, problems := sheet.requests(doc, a.Set)
	return rows, problems, nil
}

// rowRequests is [Sheet.requests] of rows whose values are JSON already. The first row is number 1.
func rowRequests(t ToolDoc, rows []Row, set Row) (out []sheetArgs, problems []fault.Problem) {
	places := map[string]ColumnPlace{}
	for i, r := range rows {
		for _, column := range slices.Sorted(maps.Keys(r)) {
			if _, seen := places[column]; seen {
				continue
			}
			p, problem := t.Place(column)
			if places[column] = p; problem != nil { // once, however many rows have it
				problem.Field = sheetProblem("", i+1, column, "", "").Field
				problems = append(problems, *problem)
			}
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	for i, r := range rows {
		before := len(problems)
		row, values := sheetArgs{line: i + 1, sample: fmt.Sprintf("row-%d", i+1)}, map[string]any{}
		for name, v := range set {
			values[name] = v
		}
		for _, column := range slices.Sorted(maps.Keys(r)) {
			p, raw := places[column], r[column]
			if string(raw) == "null" {
				continue
			}
			if p.Name == "" {
				text, ok := words(raw)
				if !ok {
					problems = append(problems, sheetProblem("SHEET-"+strings.ToUpper(column), row.line, column, "a text", "got another kind of value"))
				} else if text != "" {
					problems = append(problems, row.own(column, text)...)
				}
				continue
			}
			v, wrong := p.element(sheetProblem("", row.line, column, "", "").Field, raw)
			values[p.Name], problems = v, append(problems, wrong...)
		}
		args, err := plan.Marshal(values)
		if err != nil {
			problems = append(problems, sheetProblem("SHEET-CELL", row.line, "", "values that JSON holds", err.Error()))
		}
		if row.args = args; len(problems) == before { // of one with a mistake no more can be said
			out = append(out, row)
		}
	}
	return out, problems
}

// words is a text, or a list of texts as a cell of a sheet has them.
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

// element is a value of a row: JSON as the tool takes it. Where the tool takes a list, a text is read as a cell of a sheet. What is wrong
// with other values the tool's schema says.
func (p ColumnPlace) element(field string, raw json.RawMessage) (any, []fault.Problem) {
	var text string
	if json.Unmarshal(raw, &text) != nil || !p.List && !p.Artifact {
		return raw, nil
	}
	if strings.TrimSpace(text) == "" {
		return nil, []fault.Problem{{Code: "SHEET-INPUT", Field: field, Rule: "an artifact id (art_…), or ref: and a name",
			Msg: "got an empty text"}}
	}
	v, err := p.value(field, strings.TrimSpace(text))
	return v, fault.ProblemsOf(err)
}
