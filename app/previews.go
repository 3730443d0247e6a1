package app

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
	"slurmgate/secrets"
)

const (
	pictureEdge  = 512      // pixels, where the call sets none
	pictureBytes = 20 << 10 // of a picture in an answer; encoded, it fits into an envelope
)

// previews returns the operations that show a part of an artifact.
func (g *Gateway) previews() []Operation {
	limit := g.previewTime()
	return []Operation{{
		ID: "artifact.preview.text", Title: "Preview an artifact", Verb: "artifact preview",
		Description: "Returns the beginning of an artifact as text, with limits on bytes and lines. Control characters are made visible. Of a " +
			"directory it lists the files, or shows the one at path.",
		Chat:   gate.Chat{Has: true, First: true, Bound: "max_lines", Most: 60, Seldom: []string{"max_bytes", "path", "first_file"}},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview, Limit: limit,
		Does: withProvenance(g, g.previewText),
	}, {
		ID: "artifact.preview.table", Title: "Preview a table", Verb: "artifact preview",
		Description: "Returns rows of a comma- or tab-separated artifact, with column names and types guessed from the rows read. Rows and " +
			"bytes are limited.",
		Chat:   gate.Chat{Has: true, First: true, Bound: "max_rows", Most: 20},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview, Limit: limit,
		Does: withProvenance(g, g.previewTable),
	}, {
		ID: "artifact.preview.image", Title: "Preview a picture", Verb: "artifact preview",
		Description: "Returns a PNG artifact as a small PNG in base64, without metadata.",
		Chat:        gate.Chat{Has: true},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Work: gate.Preview, Limit: limit,
		Does: withProvenance(g, g.previewImage),
	}}
}

// previewTime returns how long a preview may take; 0 without a site.
func (g *Gateway) previewTime() time.Duration {
	if g.Site == nil {
		return 0
	}
	return time.Duration(g.Site.Limits.PreviewSeconds) * time.Second
}

// opened returns an artifact and its bytes.
func (g *Gateway) opened(ctx context.Context, id string) (run.Artifact, Bytes, error) {
	x, err := g.Ledger.Artifact(ctx, id)
	if err != nil {
		return x, nil, err
	}
	f, err := g.openBytes(ctx, x)
	return x, f, err
}

// TableArgs are the arguments of artifact.preview.table.
type TableArgs struct {
	ArtifactArgs
	FirstRow  int64  `json:"first_row,omitzero" min:"0" max:"1000000000" about:"rows to skip; the header does not count"`
	MaxRows   int    `json:"max_rows,omitzero" min:"1" max:"2000"`
	Delimiter string `json:"delimiter,omitzero" enum:"comma,tab" about:"detected from the type and the first line by default"`
}

// TableAnswer is the answer of artifact.preview.table.
type TableAnswer struct {
	CallRunID
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	SizeBytes  int64  `json:"size_bytes"`
	artifact.Table
}

func (g *Gateway) previewTable(ctx context.Context, c gate.Call, a TableArgs) (out TableAnswer, err error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return out, err
	}
	defer f.Close()
	if a.Delimiter == "" {
		a.Delimiter = filetype.Of(x.Type).Delimiter
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
	return TableAnswer{ArtifactID: x.ID, Type: x.Type, SizeBytes: x.SizeBytes, Table: t}, err
}

// ImageArgs are the arguments of artifact.preview.image.
type ImageArgs struct {
	ArtifactArgs
	MaxEdge int `json:"max_edge,omitzero" min:"16" max:"2048" about:"maximum length of the longer side in pixels"`
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
	Data       []byte `json:"data_base64"`
}

func (g *Gateway) previewImage(ctx context.Context, _ gate.Call, a ImageArgs) (out ImageAnswer, err error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return out, err
	}
	defer f.Close()
	if a.MaxEdge == 0 {
		a.MaxEdge = pictureEdge
	}
	p, err := g.Pictures.PreviewImage(ctx, f, x.SizeBytes, a.MaxEdge, min(pictureBytes, int(g.Policy.Limits.PreviewBytes)))
	return ImageAnswer{ArtifactID: x.ID, Type: x.Type, SizeBytes: x.SizeBytes, FullWidth: p.FullWidth, FullHeight: p.FullHeight,
		MimeType: "image/png", Width: p.Width, Height: p.Height, Data: p.PNG}, err
}

// atMost returns what a call asks for, up to policy's limit; 0 asks for the limit.
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
	Path       string `json:"path,omitzero"`        // of the shown file of a directory; then size_bytes is the file's
	FirstFile  int64  `json:"first_file,omitzero"`  // the first file listed of a directory
	FilesTotal int64  `json:"files_total,omitzero"` // in the directory
}

func (g *Gateway) previewText(ctx context.Context, c gate.Call, a PreviewTextArgs) (out PreviewAnswer, err error) {
	x, f, err := g.opened(ctx, a.ArtifactID)
	if err != nil {
		return out, err
	}
	defer f.Close()
	size, shown := x.SizeBytes, io.ReaderAt(f)
	switch {
	case x.Type == plan.Directory && a.Path != "":
		one, err := g.member(ctx, x, f, a.Path)
		if err != nil {
			return out, err
		}
		defer one.Close()
		size, shown = one.size, one
	case x.Type == plan.Directory:
		text, total, err := listing(f, x, a.FirstFile)
		if err != nil {
			return out, err
		}
		size, shown, out.FirstFile, out.FilesTotal = int64(len(text)), strings.NewReader(text), a.FirstFile, total
	case a.Path != "" || a.FirstFile > 0:
		field := "path"
		if a.Path == "" {
			field = "first_file"
		}
		return out, fault.Invalid("", fault.Problem{Code: "PREVIEW-DIRECTORY", Field: field, Rule: "only of a directory",
			Msg: "the artifact is one file, of type " + x.Type}).WithSteps(fault.Do("artifact.preview.text", "artifact_id", x.ID))
	}
	lines := atMost(a.MaxLines, g.Policy.Limits.PreviewLines)
	most := atMost(a.MaxBytes, g.Policy.Limits.PreviewBytes)
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
	return out, err
}

// member is an open file of a directory.
type member struct {
	*os.File
	size int64
}

// member opens a file of a directory, given the list of its files.
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

// listedFiles limits the files of a directory in a preview; policy's limits of lines and bytes apply after it.
const listedFiles = 1000

// listing shows the content of a directory: the number of all files, then the files after the first ones with their
// sizes.
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
