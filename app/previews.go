package app

import (
	"context"
	"encoding/base64"
	"os"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/run"
)

const (
	pictureEdge  = 512      // pixels, when the call gives none
	pictureBytes = 20 << 10 // of a picture in an answer; encoded, it fits into an envelope
)

// previewTools are the previews of tables and pictures.
func (g *Gateway) previewTools() []gate.Tool {
	return []gate.Tool{
		builtin("artifact.preview.table", "Preview a table", "Returns rows of a comma- or tab-separated artifact, with column names and types "+
			"guessed from the rows read. Rows and bytes are limited.", gate.Read,
			object("artifact_id", prop("artifact_id", artifactIDSchema),
				prop("first_row", `{"type":"integer","minimum":0,"maximum":1000000000,"description":"rows to skip; the header does not count"}`),
				prop("max_rows", `{"type":"integer","minimum":1,"maximum":2000}`),
				prop("delimiter", `{"enum":["comma","tab"],"description":"detected from the type and the first line by default"}`)),
			handler(g.previewTable)),
		builtin("artifact.preview.image", "Preview a picture", "Returns a PNG artifact as a small PNG in base64, without metadata.", gate.Read,
			object("artifact_id", prop("artifact_id", artifactIDSchema),
				prop("max_edge", `{"type":"integer","minimum":16,"maximum":2048,"description":"maximum length of the longer side in pixels"}`)),
			handler(g.previewImage)),
	}
}

// opened returns an artifact and its bytes.
func (g *Gateway) opened(ctx context.Context, id string) (run.Artifact, *os.File, error) {
	x, err := g.Ledger.Artifact(ctx, id)
	if err != nil {
		return x, nil, err
	}
	f, err := g.Store.Open(x.SHA256)
	return x, f, err
}

type TableArgs struct {
	ArtifactID string `json:"artifact_id"`
	FirstRow   int64  `json:"first_row,omitzero"`
	MaxRows    int    `json:"max_rows,omitzero"`
	Delimiter  string `json:"delimiter,omitzero"`
}

type TableAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	ArtifactID      string `json:"artifact_id"`
	Type            string `json:"type"`
	SizeBytes       int64  `json:"size_bytes"`
	artifact.Table
}

func (g *Gateway) previewTable(ctx context.Context, c gate.Call, a TableArgs) (any, error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if a.Delimiter == "" {
		a.Delimiter = map[string]string{"CSV": "comma", "TSV": "tab", "VCF": "tab"}[x.Type]
	}
	q := artifact.TableQuery{Delimiter: map[string]rune{"comma": ',', "tab": '\t'}[a.Delimiter], FirstRow: a.FirstRow,
		MaxRows: int(g.Policy.Limits.PreviewLines), MaxBytes: int(g.Policy.Limits.PreviewBytes)}
	if a.MaxRows > 0 {
		q.MaxRows = min(q.MaxRows, a.MaxRows)
	}
	prov, err := g.provenance(ctx, "artifact.preview.table", map[string]any{"artifact_id": x.ID, "first_row": q.FirstRow,
		"max_rows": q.MaxRows, "delimiter": a.Delimiter})
	if err != nil {
		return nil, err
	}
	t, err := artifact.PreviewTable(f, x.SizeBytes, q)
	for _, row := range t.Rows {
		for i := range row {
			row[i] = g.Gate.Registry().Hide(c.Caller.Transport, row[i])
		}
	}
	return TableAnswer{prov, x.ID, x.Type, x.SizeBytes, t}, err
}

type ImageArgs struct {
	ArtifactID string `json:"artifact_id"`
	MaxEdge    int    `json:"max_edge,omitzero"`
}

type ImageAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	ArtifactID      string `json:"artifact_id"`
	Type            string `json:"type"`
	SizeBytes       int64  `json:"size_bytes"`
	FullWidth       int    `json:"full_width"`
	FullHeight      int    `json:"full_height"`
	MimeType        string `json:"mime_type"` // of data_base64
	Width           int    `json:"width"`
	Height          int    `json:"height"`
	Data            string `json:"data_base64"`
}

func (g *Gateway) previewImage(ctx context.Context, _ gate.Call, a ImageArgs) (any, error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if a.MaxEdge == 0 {
		a.MaxEdge = pictureEdge
	}
	prov, err := g.provenance(ctx, "artifact.preview.image", map[string]any{"artifact_id": x.ID, "max_edge": a.MaxEdge})
	if err != nil {
		return nil, err
	}
	p, err := g.Pictures.PreviewImage(ctx, f, x.SizeBytes, a.MaxEdge, min(pictureBytes, int(g.Policy.Limits.PreviewBytes)))
	if err != nil {
		return nil, err
	}
	return ImageAnswer{ProvenanceRunID: prov, ArtifactID: x.ID, Type: x.Type, SizeBytes: x.SizeBytes, FullWidth: p.FullWidth,
		FullHeight: p.FullHeight,
		MimeType:   "image/png", Width: p.Width, Height: p.Height, Data: base64.StdEncoding.EncodeToString(p.PNG)}, nil
}
