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
	"slurmgate/fault"
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
		Description: "Returns the beginning of an artifact as text, with limits on bytes and lines. Control characters are made visible. Of a " +
			"directory it lists the files, or shows the one at path.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview, Limit: limit,
		Input: object("artifact_id", id, prop("max_lines", `{"type":"integer","minimum":1,"maximum":5000}`),
			prop("max_bytes", `{"type":"integer","minimum":1,"maximum":262144,"description":"policy's limit holds beside it"}`),
			prop("path", `{"type":"string","minLength":1,"maxLength":4096,"description":"of a file in a directory, as its list has it"}`),
			prop("first_file", `{"type":"integer","minimum":0,"maximum":1000000000,"description":"files of a directory to skip"}`)),
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
	Path       string `json:"path,omitzero"`        // of the file in a directory that is shown; then size_bytes is the file's
	FirstFile  int64  `json:"first_file,omitzero"`  // of the list of a directory
	FilesTotal int64  `json:"files_total,omitzero"` // likewise
}

func (g *Gateway) previewText(ctx context.Context, c gate.Call, a ArtifactArgs) (out PreviewAnswer, params any, err error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return out, nil, err
	}
	defer f.Close()
	size, shown := x.SizeBytes, io.ReaderAt(f)
	switch {
	case x.Type == plan.Directory && a.Path != "":
		one, err := g.member(ctx, x, f, a.Path)
		if err != nil {
			return out, nil, err
		}
		defer one.Close()
		size, shown = one.size, one
	case x.Type == plan.Directory:
		text, total, err := listing(f, x, a.FirstFile)
		if err != nil {
			return out, nil, err
		}
		size, shown, out.FirstFile, out.FilesTotal = int64(len(text)), strings.NewReader(text), a.FirstFile, total
	case a.Path != "" || a.FirstFile > 0:
		field := "path"
		if a.Path == "" {
			field = "first_file"
		}
		return out, nil, fault.Invalid("", fault.Problem{Code: "PREVIEW-DIRECTORY", Field: field, Rule: "only of a directory",
			Msg: "the artifact is one file, of type " + x.Type})
	}
	lines := atMost(a.MaxLines, g.Policy.Limits.PreviewLines)
	most, at := int(g.Policy.Limits.PreviewBytes), map[string]any{"artifact_id": x.ID, "max_lines": lines}
	if a.MaxBytes > 0 {
		most = min(a.MaxBytes, most)
		at["max_bytes"] = most
	}
	if a.Path != "" {
		at["path"] = a.Path
	}
	if a.FirstFile > 0 {
		at["first_file"] = a.FirstFile
	}
	p, err := artifact.PreviewText(shown, size, most+secrets.Margin, lines+leadRows)
	if !p.Binary {
		var more bool
		p.Text, more = cutText(g.scanner(), p.Text, most, lines)
		p.Truncated = p.Truncated || more
	}
	out.ArtifactID, out.Type, out.SizeBytes, out.Path = x.ID, x.Type, x.SizeBytes, a.Path
	if a.Path != "" {
		out.SizeBytes = size
	}
	out.Text, out.Truncated, out.Binary = g.Gate.Registry().Hide(c.Caller.Transport, p.Text), p.Truncated, p.Binary
	return out, at, err
}

// member is a file in a directory.
type member struct {
	*os.File
	size int64
}

// member opens a file in a directory, whose list is given.
func (g *Gateway) member(ctx context.Context, x run.Artifact, list io.Reader, path string) (m member, err error) {
	if only, err := g.Ledger.FilesInPlace(ctx, x.SHA256); err != nil || only {
		if only {
			err = fault.New(fault.Validation, "directory_in_place", "the files of this directory lie in place on a site; the gateway has no "+
				"copy to show").WithNext("run a tool on the directory, or import a copy of it")
		}
		return m, err
	}
	var found *tree.File
	if _, err = tree.Each(list, func(f tree.File) error {
		if f.Path == path {
			found = &f
		}
		return ctx.Err()
	}); err != nil {
		return m, err
	}
	if found == nil {
		return m, fault.New(fault.NotFound, "file_not_found", fmt.Sprintf("the directory %s has no file %q", x.ID, fault.Clip(path))).
			WithSteps(fault.Do("artifact.preview.text", "artifact_id", x.ID))
	}
	m.size = found.Size
	m.File, err = g.Store.Open(found.SHA256)
	return m, err
}

// listedFiles is how many files of a directory a preview has at most; policy's limits of lines and bytes come after it.
const listedFiles = 1000

// listing shows what is in a directory: how many files in all, then those after the first ones with their sizes.
func listing(list io.Reader, x run.Artifact, first int64) (text string, files int64, err error) {
	var b strings.Builder
	var at int64
	total, err := tree.Each(list, func(f tree.File) error {
		if at++; at > first && at <= first+listedFiles {
			fmt.Fprintf(&b, "%12d  %s\n", f.Size, f.Path)
		}
		return nil
	})
	if more := at - first - listedFiles; more > 0 {
		fmt.Fprintf(&b, "… and %d more\n", more)
	}
	return fmt.Sprintf("directory %s: %d files, %d bytes\n%s", x.Label, total.Files, total.Bytes, b.String()), int64(total.Files), err
}
