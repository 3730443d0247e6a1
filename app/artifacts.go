package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
)

// ArtifactDoc is an artifact as every face shows it: metadata, no path.
type ArtifactDoc struct {
	ArtifactID     string    `json:"artifact_id"`
	ProjectID      string    `json:"project_id"`
	Type           string    `json:"type"`
	Label          string    `json:"label"`
	SizeBytes      int64     `json:"size_bytes"`
	ChecksumSHA256 string    `json:"checksum_sha256"`
	Source         string    `json:"source"`
	CreatedAt      time.Time `json:"created_at"`
	Role           string    `json:"role,omitempty"`
	Relpath        string    `json:"relpath,omitempty"`
}

func docOf(a run.Artifact) ArtifactDoc {
	return ArtifactDoc{ArtifactID: a.ID, ProjectID: a.ProjectID, Type: a.Type, Label: a.Label, SizeBytes: a.SizeBytes,
		ChecksumSHA256: a.SHA256, Source: a.Source, CreatedAt: a.CreatedAt}
}

func linkedDocs(list []run.Output) []ArtifactDoc {
	out := []ArtifactDoc{}
	for _, o := range list {
		d := docOf(o.Artifact)
		d.Role, d.Relpath = o.Role, o.Relpath
		out = append(out, d)
	}
	return out
}

const artifactIDSchema = `{"type":"string","pattern":"^art_[0-9A-HJKMNP-TV-Z]{26}$","description":"an artifact id, art_…"}`

func (g *Gateway) artifactTools() []gate.Tool {
	typ := `{"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,31}$","description":"artifact type; detected from the content by default"}`
	tools := []gate.Tool{
		builtin("artifact.import", "Import an artifact", "Imports a file (below one of the import roots) or a text as an immutable artifact "+
			"and returns its artifact_id. Importing the same bytes with the same label again returns the same artifact.", gate.Write,
			object("", prop("path", `{"type":"string","minLength":1,"maxLength":4096}`), prop("text", `{"type":"string","maxLength":32768}`),
				prop("upload", `{"const":true,"description":"the content is sent as the body of POST /v1/artifacts"}`),
				prop("label", `{"type":"string","minLength":1,"maxLength":128}`), prop("type", typ), prop("project_id", projectSchema)),
			handler(g.importArtifact)),
		g.artifactListTool(),
		g.artifactVerifyTool(),
		builtin("artifact.get", "Show an artifact", "Returns the metadata of an artifact: type, label, size, checksum.", gate.Read,
			object("artifact_id", prop("artifact_id", artifactIDSchema)), handler(g.getArtifact)),
		builtin("artifact.preview.text", "Preview an artifact",
			"Returns the beginning of an artifact as text, with limits on bytes and lines. Control characters are made visible.", gate.Read,
			object("artifact_id", prop("artifact_id", artifactIDSchema), prop("max_lines", `{"type":"integer","minimum":1,"maximum":2000}`)),
			handler(g.preview)),
	}
	for i := range tools {
		if tools[i].ID == "artifact.import" {
			tools[i].Timeout = 6 * time.Hour // a large file is hashed and copied while the call is open
		}
	}
	return tools
}

type ImportArgs struct {
	Path      *string `json:"path,omitzero"`
	Text      *string `json:"text,omitzero"`
	Upload    bool    `json:"upload,omitzero"`
	Label     string  `json:"label,omitzero"`
	Type      string  `json:"type,omitzero"`
	ProjectID string  `json:"project_id,omitzero"`
}

type ImportAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	ArtifactDoc
	Created bool `json:"created"` // false: it existed already
}

// Unchanged reports whether the artifact existed already.
func (a ImportAnswer) Unchanged() bool { return !a.Created }

// importArtifact imports an artifact and stores it.
func (g *Gateway) importArtifact(ctx context.Context, c gate.Call, a ImportArgs) (any, error) {
	doc, prov, err := g.bringIn(ctx, c, a, g.Importer)
	if err != nil {
		return nil, err
	}
	stored, created, err := g.Ledger.AddArtifact(ctx, doc)
	return ImportAnswer{prov, docOf(stored), created}, err
}

// bringIn reads the source of an import within policy's limits, through an importer that stores the bytes or does not.
func (g *Gateway) bringIn(ctx context.Context, c gate.Call, a ImportArgs, importer *artifact.Importer) (doc run.Artifact, prov string,
	err error) {
	invalid := func(code, field, rule, msg string) error {
		return fault.Invalid("artifact.import", "", fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
	}
	var given []string
	for name, is := range map[string]bool{"path": a.Path != nil, "text": a.Text != nil, "upload": a.Upload,
		"bytes beside the call": c.Caller.Body != nil && !a.Upload} {
		if is {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	switch {
	case len(given) == 0:
		return doc, "", invalid("IMPORT-SOURCE", "args", "exactly one of path, text and upload", "none is given")
	case len(given) > 1:
		return doc, "", invalid("IMPORT-SOURCE", "args", "exactly one of path, text and upload", strings.Join(given, " and ")+" are given")
	case a.Upload != (c.Caller.Body != nil):
		return doc, "", invalid("IMPORT-SOURCE", "args", "upload and a request body, both or neither", strings.Join(given, "")+" is given alone")
	}
	if msg := plan.CheckWord(a.Label); a.Label != "" && msg != "" {
		return doc, "", invalid("IMPORT-LABEL", "label", "no leading, trailing or repeated spaces, no control characters, at most 128 bytes", msg)
	}
	if a.Type != "" && !contains(g.Domain.Types(), a.Type) {
		return doc, "", invalid("IMPORT-TYPE", "type", "one of "+strings.Join(g.Domain.Types(), " "), fmt.Sprintf("got %.64q", a.Type))
	}
	way := policy.ImportText
	switch {
	case a.Path != nil:
		way = policy.ImportPath
	case a.Upload:
		way = policy.ImportUpload
	}
	if err := g.Policy.AllowImport(way, a.Type, -1); err != nil {
		return doc, "", err
	}
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return doc, "", err
	}
	var in artifact.Imported
	importer = importer.As(a.Type)
	switch {
	case a.Path != nil:
		in, err = importer.ImportFile(ctx, *a.Path)
	case a.Text != nil:
		in, err = importer.ImportText(ctx, *a.Text)
	default:
		in, err = importer.ImportStream(ctx, c.Caller.Body, a.Label)
	}
	if err != nil {
		return doc, "", err
	}
	if a.Label == "" {
		a.Label = in.Label
	}
	if a.Type == "" {
		a.Type = in.Type
	}
	if err := g.Policy.AllowImport(way, a.Type, in.SizeBytes); err != nil {
		return doc, "", err
	}
	doc = run.Artifact{ProjectID: project, SHA256: in.SHA256, Type: a.Type, Label: a.Label, SizeBytes: in.SizeBytes, Source: "import"}
	if doc.ID, err = plan.ArtifactID(doc.ProjectID, doc.SHA256, doc.Type, doc.Label); err != nil {
		return doc, "", err
	}
	prov, err = g.provenance(ctx, "artifact.import", map[string]any{"artifact_id": doc.ID})
	return doc, prov, err
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

type ArtifactArgs struct {
	ArtifactID string `json:"artifact_id,omitzero"`
	MaxLines   int    `json:"max_lines,omitzero"`
}

type PreviewAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	ArtifactID      string `json:"artifact_id"`
	Type            string `json:"type"`
	SizeBytes       int64  `json:"size_bytes"`
	Text            string `json:"text,omitzero"`
	Truncated       bool   `json:"truncated"`
	Binary          bool   `json:"binary"`
}

func (g *Gateway) preview(ctx context.Context, c gate.Call, a ArtifactArgs) (any, error) {
	x, err := g.Ledger.Artifact(ctx, a.ArtifactID)
	if err != nil {
		return nil, err
	}
	f, err := g.Store.Open(x.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := int(g.Policy.Limits.PreviewLines)
	if a.MaxLines > 0 {
		lines = min(lines, a.MaxLines)
	}
	prov, err := g.provenance(ctx, "artifact.preview.text", map[string]any{"artifact_id": x.ID, "max_lines": lines})
	if err != nil {
		return nil, err
	}
	p, err := artifact.PreviewText(f, x.SizeBytes, int(g.Policy.Limits.PreviewBytes), lines)
	return PreviewAnswer{prov, x.ID, x.Type, x.SizeBytes, g.Gate.Registry().Hide(c.Caller.Transport, p.Text), p.Truncated, p.Binary}, err
}
