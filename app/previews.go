package app

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"slurmgate/artifact"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
	"slurmgate/secrets"
)

const (
	pictureEdge  = 512      // pixels, when the call gives none
	pictureBytes = 20 << 10 // of a picture in an answer; encoded, it fits into an envelope
)

// previews are the operations that show a part of an artifact.
func (g *Gateway) previews() []Operation {
	id := prop("artifact_id", artifactSchema)
	limit := g.previewTime()
	return []Operation{{
		ID: "artifact.preview.text", Title: "Preview an artifact", Verb: "artifact preview",
		Description: "Returns the beginning of an artifact as text, with limits on bytes and lines. Control characters are made visible.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview, Limit: limit,
		Input: object("artifact_id", id, prop("max_lines", `{"type":"integer","minimum":1,"maximum":5000}`),
			prop("max_bytes", `{"type":"integer","minimum":1,"maximum":262144,"description":"policy's limit holds beside it"}`)),
		Does: look(g, g.previewText),
	}, {
		ID: "artifact.preview.table", Title: "Preview a table", Verb: "artifact preview",
		Description: "Returns rows of a comma- or tab-separated artifact, with column names and types guessed from the rows read. Rows and " +
			"bytes are limited.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview, Limit: limit,
		Input: object("artifact_id", id,
			prop("first_row", `{"type":"integer","minimum":0,"maximum":1000000000,"description":"rows to skip; the header does not count"}`),
			prop("max_rows", `{"type":"integer","minimum":1,"maximum":2000}`),
			prop("delimiter", `{"enum":["comma","tab"],"description":"detected from the type and the first line by default"}`)),
		Does: look(g, g.previewTable),
	}, {
		ID: "artifact.preview.image", Title: "Preview a picture", Verb: "artifact preview",
		Description: "Returns a PNG artifact as a small PNG in base64, without metadata.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview, Limit: limit,
		Input: object("artifact_id", id,
			prop("max_edge", `{"type":"integer","minimum":16,"maximum":2048,"description":"maximum length of the longer side in pixels"}`)),
		Does: look(g, g.previewImage),
	}}
}

// previewTime is how long a preview may take; 0 without a site.
func (g *Gateway) previewTime() time.Duration {
	if g.Site == nil {
		return 0
	}
	return time.Duration(g.Site.Limits.PreviewSeconds) * time.Second
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

// TableArgs are the arguments of artifact.preview.table.
type TableArgs struct {
	ArtifactID string `json:"artifact_id"`
	FirstRow   int64  `json:"first_row,omitzero"`
	MaxRows    int    `json:"max_rows,omitzero"`
	Delimiter  string `json:"delimiter,omitzero"`
}

// TableAnswer is the answer of artifact.preview.table.
type TableAnswer struct {
	CallRunID
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	SizeBytes  int64  `json:"size_bytes"`
	artifact.Table
}

func (g *Gateway) previewTable(ctx context.Context, c gate.Call, a TableArgs) (out TableAnswer, params any, err error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return out, nil, err
	}
	defer f.Close()
	if a.Delimiter == "" {
		a.Delimiter = map[string]string{"CSV": "comma", "TSV": "tab", "VCF": "tab"}[x.Type]
	}
	q := artifact.TableQuery{Delimiter: map[string]rune{"comma": ',', "tab": '\t'}[a.Delimiter], FirstRow: a.FirstRow,
		MaxRows: atMost(a.MaxRows, g.Policy.Limits.PreviewLines), MaxBytes: int(g.Policy.Limits.PreviewBytes)}
	q.Clean = g.cleanCell
	t, err := artifact.PreviewTable(ctx, f, x.SizeBytes, q)
	if err == nil {
		err = g.cleanTable(ctx, f, x.SizeBytes, q, &t)
	}
	for _, row := range t.Rows {
		for i := range row {
			row[i] = g.Gate.Registry().Hide(c.Caller.Transport, row[i])
		}
	}
	return TableAnswer{ArtifactID: x.ID, Type: x.Type, SizeBytes: x.SizeBytes, Table: t}, map[string]any{"artifact_id": x.ID,
		"first_row": q.FirstRow, "max_rows": q.MaxRows, "delimiter": a.Delimiter}, err
}

// ImageArgs are the arguments of artifact.preview.image.
type ImageArgs struct {
	ArtifactID string `json:"artifact_id"`
	MaxEdge    int    `json:"max_edge,omitzero"`
}

// ImageAnswer is the answer of artifact.preview.image.
type ImageAnswer struct {
	CallRunID
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	SizeBytes  int64  `json:"size_bytes"`
	FullWidth  int    `json:"full_width"`
	FullHeight int    `json:"full_height"`
	MimeType   string `json:"mime_type"` // of data_base64
	Width      int    `json:"width"`
	Height     int    `json:"height"`
	Data       string `json:"data_base64"`
}

func (g *Gateway) previewImage(ctx context.Context, _ gate.Call, a ImageArgs) (out ImageAnswer, params any, err error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return out, nil, err
	}
	defer f.Close()
	if a.MaxEdge == 0 {
		a.MaxEdge = pictureEdge
	}
	p, err := g.Pictures.PreviewImage(ctx, f, x.SizeBytes, a.MaxEdge, min(pictureBytes, int(g.Policy.Limits.PreviewBytes)))
	return ImageAnswer{ArtifactID: x.ID, Type: x.Type, SizeBytes: x.SizeBytes, FullWidth: p.FullWidth, FullHeight: p.FullHeight,
			MimeType: "image/png", Width: p.Width, Height: p.Height, Data: base64.StdEncoding.EncodeToString(p.PNG)},
		map[string]any{"artifact_id": x.ID, "max_edge": a.MaxEdge}, err
}

// atMost is what a call asks for, within policy's limit; 0 asks for as much as that.
func atMost(asked int, limit int64) int {
	if asked > 0 {
		return min(asked, int(limit))
	}
	return int(limit)
}

// PreviewAnswer is the answer of artifact.preview.text.
type PreviewAnswer struct {
	CallRunID
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	SizeBytes  int64  `json:"size_bytes"`
	Text       string `json:"text,omitzero"`
	Truncated  bool   `json:"truncated"`
	Binary     bool   `json:"binary"`
}

func (g *Gateway) previewText(ctx context.Context, c gate.Call, a ArtifactArgs) (out PreviewAnswer, params any, err error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return out, nil, err
	}
	defer f.Close()
	size, shown := x.SizeBytes, io.ReaderAt(f)
	if x.Type == plan.Directory {
		text, err := listing(f, x)
		if err != nil {
			return out, nil, err
		}
		size, shown = int64(len(text)), strings.NewReader(text)
	}
	lines := atMost(a.MaxLines, g.Policy.Limits.PreviewLines)
	most, at := int(g.Policy.Limits.PreviewBytes), map[string]any{"artifact_id": x.ID, "max_lines": lines}
	if a.MaxBytes > 0 {
		most = min(a.MaxBytes, most)
		at["max_bytes"] = most
	}
	p, err := artifact.PreviewText(shown, size, most+secrets.Margin, lines+leadRows)
	if !p.Binary {
		var more bool
		p.Text, more = cutText(g.scanner(), p.Text, most, lines)
		p.Truncated = p.Truncated || more
	}
	return PreviewAnswer{ArtifactID: x.ID, Type: x.Type, SizeBytes: x.SizeBytes, Text: g.Gate.Registry().Hide(c.Caller.Transport, p.Text),
		Truncated: p.Truncated, Binary: p.Binary}, at, err
}

// listedFiles is how many files of a directory a preview has at most; policy's limits of lines and bytes come after it.
const listedFiles = 1000

// listing shows what is in a directory: how many files in all, then the first of them with their sizes.
func listing(list io.Reader, x run.Artifact) (string, error) {
	var b strings.Builder
	more := 0
	total, err := tree.Each(list, func(f tree.File) error {
		if more++; more <= listedFiles {
			fmt.Fprintf(&b, "%12d  %s\n", f.Size, f.Path)
		}
		return nil
	})
	if more > listedFiles {
		fmt.Fprintf(&b, "… and %d more\n", more-listedFiles)
	}
	return fmt.Sprintf("directory %s: %d files, %d bytes\n%s", x.Label, total.Files, total.Bytes, b.String()), err
}
