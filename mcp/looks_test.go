package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/gate"
)

// A table of any shape fits an answer: rows are cut first, then columns, then the ends of long cells, with a note.
//
// proves ARC-01
func TestTablesAreSmall(t *testing.T) {
	for name, c := range map[string]struct{ columns, rows, cell int }{"long": {4, 2000, 12}, "wide": {256, 20, 9}, "fat": {3, 4, 256},
		"wide and fat": {256, 20, 256}, "one fat row": {256, 1, 256}, "small": {3, 4, 5}} {
		var columns []any
		for i := range c.columns {
			columns = append(columns, map[string]any{"name": fmt.Sprint("column ", i), "type": "text"})
		}
		rows := make([][]string, 0, c.rows)
		for range c.rows {
			row := make([]string, c.columns)
			for i := range row {
				row[i] = strings.Repeat("x\"", c.cell/2)
			}
			rows = append(rows, row)
		}
		w := newWorld()
		w.on("artifact.preview.table", map[string]any{"artifact_id": artID, "type": "TSV", "size_bytes": 1, "columns": columns,
			"columns_total": c.columns,
			"header":        true, "first_row": 7, "rows": rows, "rows_read": c.rows + 7,
			"truncated": false, "delimiter": "\t", "warnings": []string{}}, nil)
		res := call(t, w.session(t), "artifact_preview_table", `{}`) // which checks the size
		var got table
		raw, _ := json.Marshal(res.StructuredContent)
		if err := json.Unmarshal(raw, &got); err != nil || len(got.Rows) == 0 || len(got.Columns) == 0 ||
			len(got.Rows[0]) != len(got.Columns) || got.ColumnsTotal != c.columns {
			t.Errorf("%s: %v %.300s", name, err, raw)
		}
		if whole := len(got.Rows) == c.rows && len(got.Columns) == c.columns && len(got.Rows[0][0]) == c.cell/2*2; got.Truncated == whole {
			t.Errorf("%s: truncated %v, whole %v", name, got.Truncated, whole)
		}
		if next := fmt.Sprintf("first_row %d", 7+len(got.Rows)); got.Truncated && !strings.Contains(textOf(res), next) {
			t.Errorf("%s: no %q in %s", name, next, textOf(res))
		}
	}
}

// A list of sites has the sites that can be named, and those that would keep a run waiting; no host and no folder.
//
// proves SITE-07
func TestSitesInChat(t *testing.T) {
	w := newWorld()
	w.on("site.list", map[string]any{"pick": nil, "total": 2, "sites": []any{
		map[string]any{"site": "near", "state": "ready", "allowed": true, "runs": map[string]any{"running": 2, "deferred": 1}},
		map[string]any{"site": "far", "state": "away", "since": "2026-11-22T19:40:52Z", "code": "slurm_unreachable", "allowed": false,
			"runs": map[string]any{}}}}, nil)
	text := textOf(call(t, w.session(t), "site_list", `{}`))
	for _, want := range []string{"2 sites", "near  ready  1 deferred, 2 running\n",
		"far  away since 2026-11-22 19:40, not allowed  none\n", "far: slurm_unreachable: runs wait", "argument site"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// A picture is the protocol's image content, once; the schema of the rest matches that.
//
// proves ARC-01
func TestPictures(t *testing.T) {
	w := newWorld()
	i := slices.IndexFunc(w.tools, func(t gate.Tool) bool { return t.ID == "artifact.preview.image" })
	w.tools[i].Output = gate.SchemaOf[struct {
		ArtifactID string `json:"artifact_id"`
		Width      int    `json:"width"`
		MimeType   string `json:"mime_type,omitzero"`
		Data       []byte `json:"data_base64"`
	}]()
	png := strings.Repeat("\x89PNG", 4000)
	w.on("artifact.preview.image", map[string]any{"artifact_id": artID, "width": 3, "mime_type": "image/png",
		"data_base64": base64.StdEncoding.EncodeToString([]byte(png))}, nil)
	c := w.session(t)
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "artifact_preview_image", Arguments: json.RawMessage(`{}`)})
	if err != nil || len(res.Content) != 2 {
		t.Fatal(res, err)
	}
	if img, ok := res.Content[1].(*sdk.ImageContent); !ok || string(img.Data) != png || img.MIMEType != "image/png" {
		t.Errorf("%T", res.Content[1])
	}
	if doc := res.StructuredContent.(map[string]any); doc["data_base64"] != nil || doc["artifact_id"] != artID {
		t.Error(doc)
	}
	// A list with room has schemas.
	w.hidden = slices.DeleteFunc(operationsOfChats(), func(id string) bool { return id == "artifact.preview.image" })
	l, err := c.ListTools(t.Context(), nil)
	must(t, err)
	for _, x := range l.Tools {
		raw, _ := json.Marshal(x.OutputSchema)
		if x.Name == "artifact_preview_image" && (strings.Contains(string(raw), "data_base64") || !strings.Contains(string(raw), "width")) {
			t.Errorf("%s", raw)
		}
	}
}
