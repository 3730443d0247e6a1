package mcp

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/blocks"
	"slurmgate/gate"
	"slurmgate/visible"
)

// Previews other than text: a table, which is cut to what fits an answer, and a picture, for which the protocol has a content type.

// table is the part of a table preview that can be cut.
type table struct {
	Columns []struct {
		Name string `json:"name"`
		Type string `json:"type"`
	} `json:"columns"`
	ColumnsTotal int        `json:"columns_total"`
	FirstRow     int64      `json:"first_row"`
	Rows         [][]string `json:"rows"`
	RowsRead     int64      `json:"rows_read"`
	Truncated    bool       `json:"truncated"`

	cell int // bytes of a cell that may remain, when cells are cut
}

// smaller removes rows while there are more than a few, then columns, then the ends of long cells; false when nothing can be removed.
func (t *table) smaller() bool {
	switch rows, columns := len(t.Rows), len(t.Columns); {
	case rows > 5:
		t.Rows = t.Rows[:rows*3/4]
	case columns > 6:
		t.cut(columns*3/4, math.MaxInt)
	case rows > 1:
		t.Rows = t.Rows[:rows-1]
	case t.cell < 16:
		return false
	default:
		t.cut(columns, t.cell)
		t.cell = t.cell * 2 / 3
	}
	t.Truncated = true
	return true
}

// cut leaves so many columns, and so many bytes of each cell.
func (t *table) cut(columns, cell int) {
	t.Columns = t.Columns[:columns]
	for i := range t.Columns {
		t.Columns[i].Name = visible.Cell(t.Columns[i].Name, cell)
	}
	for i, row := range t.Rows {
		row = row[:min(len(row), columns)]
		for j := range row {
			row[j] = visible.Cell(row[j], cell)
		}
		t.Rows[i] = row
	}
}

// shortTable removes something from the table in the structured content; false: nothing can be removed.
func (c *cutter) shortTable(structured json.RawMessage) (json.RawMessage, bool) {
	t := table{cell: c.cell}
	if json.Unmarshal(structured, &t) != nil || !t.smaller() {
		return nil, false
	}
	c.cell = t.cell
	return edited(structured, func(doc map[string]any) {
		doc["columns"], doc["rows"], doc["truncated"] = t.Columns, t.Rows, t.Truncated
	}), true
}

// edited changes a JSON object; anything else is returned unchanged.
func edited(raw json.RawMessage, change func(doc map[string]any)) json.RawMessage {
	var doc map[string]any
	if json.Unmarshal(raw, &doc) != nil || doc == nil {
		return raw
	}
	change(doc)
	if b, err := json.Marshal(doc); err == nil {
		return b
	}
	return raw
}

// pictures returns the pictures of a document as the protocol's image content, which a client shows, and the structured content without
// their data, which no model can read as a text.
func pictures(d blocks.Document, structured json.RawMessage) (out []sdk.Content, rest json.RawMessage) {
	for _, b := range d {
		if p, ok := b.(blocks.Picture); ok {
			out = append(out, &sdk.ImageContent{Data: p.Data, MIMEType: p.Media})
			structured = edited(structured, func(doc map[string]any) { delete(doc, p.Key) })
		}
	}
	return out, structured
}

// outputSchema returns the schema of a chat's structured content: the registry's schema without the bytes that are sent separately.
func outputSchema(t gate.Tool) json.RawMessage {
	if t.OfService() || !bytes.Contains(t.Output, []byte("contentEncoding")) {
		return t.Output
	}
	return edited(t.Output, func(doc map[string]any) {
		properties, _ := doc["properties"].(map[string]any)
		required, _ := doc["required"].([]any)
		for name, schema := range properties {
			if s, ok := schema.(map[string]any); ok && s["contentEncoding"] != nil {
				delete(properties, name)
				required = slices.DeleteFunc(required, func(other any) bool { return other == name })
			}
		}
		doc["required"] = required
	})
}
