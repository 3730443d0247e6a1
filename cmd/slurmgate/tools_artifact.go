package main

import (
	"context"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
)

// artifactDoc is an artifact as every face shows it: metadata, no path.
type artifactDoc struct {
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

func docOf(a run.Artifact) artifactDoc {
	return artifactDoc{ArtifactID: a.ID, ProjectID: a.ProjectID, Type: a.Type, Label: a.Label, SizeBytes: a.SizeBytes, ChecksumSHA256: a.SHA256, Source: a.Source, CreatedAt: a.CreatedAt}
}

func linkedDocs(list []run.Output) []artifactDoc {
	out := []artifactDoc{}
	for _, o := range list {
		d := docOf(o.Artifact)
		d.Role, d.Relpath = o.Role, o.Relpath
		out = append(out, d)
	}
	return out
}

const artifactIDSchema = `{"type":"string","pattern":"^art_[0-9A-HJKMNP-TV-Z]{26}$","description":"an artifact id, art_…"}`

func (g *gateway) artifactTools() []gate.Tool {
	typ := `{"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,31}$","description":"artifact type; found from the content when absent"}`
	tools := []gate.Tool{
		builtin("artifact.import", "Import an artifact", "Import a file (below one of the policy's import roots) or a text as an immutable artifact. The same bytes under one label are the same artifact.", gate.Write,
			object("", prop("path", `{"type":"string","minLength":1,"maxLength":4096}`), prop("text", `{"type":"string","maxLength":32768}`), prop("upload", `{"const":true,"description":"the bytes are sent beside the call, as the body of POST /v1/artifacts"}`),
				prop("label", `{"type":"string","minLength":1,"maxLength":128}`), prop("type", typ), prop("project_id", projectSchema)), handler(g.importArtifact)),
		builtin("artifact.list", "List artifacts", "Artifacts, newest first.", gate.Read, object("", prop("project_id", projectSchema), prop("type", typ),
			prop("cursor", `{"type":"string","maxLength":256}`), prop("limit", `{"type":"integer","minimum":1,"maximum":200}`)), handler(g.listArtifacts)),
		builtin("artifact.get", "Look at an artifact", "Metadata of an artifact.", gate.Read, object("artifact_id", prop("artifact_id", artifactIDSchema)), handler(g.getArtifact)),
		builtin("artifact.preview.text", "Preview an artifact", "The beginning of an artifact as text, bounded in bytes and lines, control characters made visible.", gate.Read,
			object("artifact_id", prop("artifact_id", artifactIDSchema), prop("max_lines", `{"type":"integer","minimum":1,"maximum":2000}`)), handler(g.preview)),
	}
	for i := range tools {
		if tools[i].ID == "artifact.import" {
			tools[i].Timeout = 6 * time.Hour // a large file is hashed and copied while the call is open
		}
	}
	return tools
}

type importArgs struct {
	Path      *string `json:"path,omitzero"`
	Text      *string `json:"text,omitzero"`
	Upload    bool    `json:"upload,omitzero"`
	Label     string  `json:"label,omitzero"`
	Type      string  `json:"type,omitzero"`
	ProjectID string  `json:"project_id,omitzero"`
}

type importAnswer struct {
	artifactDoc
	Created bool `json:"created"` // false: it was there already
}

func (g *gateway) importArtifact(ctx context.Context, c gate.Call, a importArgs) (any, error) {
	invalid := func(code, field, rule, msg string) error {
		return fault.Invalid("artifact.import", "", fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
	}
	sources := 0
	for _, given := range []bool{a.Path != nil, a.Text != nil, a.Upload} {
		if given {
			sources++
		}
	}
	if sources != 1 || a.Upload != (c.Caller.Body != nil) {
		return nil, invalid("IMPORT-SOURCE", "args", "exactly one of path, text and upload, and bytes beside the call just for upload", "it is not so")
	}
	if msg := plan.CheckWord(a.Label); a.Label != "" && msg != "" {
		return nil, invalid("IMPORT-LABEL", "label", "whitespace-strict, at most 128 bytes", msg)
	}
	if a.Type != "" && !contains(g.domain.Types(), a.Type) {
		return nil, invalid("IMPORT-TYPE", "type", "a type this domain knows", "got "+a.Type)
	}
	way := policy.ImportText
	switch {
	case a.Path != nil:
		way = policy.ImportPath
	case a.Upload:
		way = policy.ImportUpload
	}
	if err := g.policy.AllowImport(way, a.Type, -1); err != nil {
		return nil, err
	}
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return nil, err
	}
	var in artifact.Imported
	switch {
	case a.Path != nil:
		in, err = g.importer.ImportFile(ctx, *a.Path)
	case a.Text != nil:
		in, err = g.importer.ImportText(ctx, *a.Text)
	default:
		in, err = g.importer.ImportStream(ctx, c.Caller.Body, a.Label)
	}
	if err != nil {
		return nil, err
	}
	if a.Label == "" {
		a.Label = in.Label
	}
	if a.Type == "" {
		a.Type = in.Type
	}
	if err := g.policy.AllowImport(way, a.Type, in.SizeBytes); err != nil {
		return nil, err
	}
	doc := run.Artifact{ProjectID: project, SHA256: in.SHA256, Type: a.Type, Label: a.Label, SizeBytes: in.SizeBytes, Source: "import"}
	if doc.ID, err = plan.ArtifactID(doc.ProjectID, doc.SHA256, doc.Type, doc.Label); err != nil {
		return nil, err
	}
	stored, created, err := g.ledger.AddArtifact(ctx, doc)
	return importAnswer{docOf(stored), created}, err
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

type artifactArgs struct {
	ArtifactID string `json:"artifact_id,omitzero"`
	MaxLines   int    `json:"max_lines,omitzero"`
	ProjectID  string `json:"project_id,omitzero"`
	Type       string `json:"type,omitzero"`
	Cursor     string `json:"cursor,omitzero"`
	Limit      int    `json:"limit,omitzero"`
}

type artifactList struct {
	Artifacts []artifactDoc `json:"artifacts"`
	Cursor    *string       `json:"cursor"`
}

func (g *gateway) listArtifacts(ctx context.Context, c gate.Call, a artifactArgs) (_ any, err error) {
	f := ledger.ArtifactFilter{Type: a.Type, Cursor: a.Cursor, Limit: a.Limit}
	if f.Projects, err = g.listed(c, a.ProjectID); err != nil {
		return nil, err
	}
	list, cursor, err := g.ledger.Artifacts(ctx, f)
	if err != nil {
		return nil, err
	}
	out := artifactList{Artifacts: []artifactDoc{}}
	if cursor != "" {
		out.Cursor = &cursor
	}
	for _, x := range list {
		out.Artifacts = append(out.Artifacts, docOf(x))
	}
	return out, nil
}

func (g *gateway) getArtifact(ctx context.Context, _ gate.Call, a artifactArgs) (any, error) {
	x, err := g.ledger.Artifact(ctx, a.ArtifactID)
	return docOf(x), err
}

type previewAnswer struct {
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	SizeBytes  int64  `json:"size_bytes"`
	Text       string `json:"text,omitzero"`
	Truncated  bool   `json:"truncated"`
	Binary     bool   `json:"binary"`
}

func (g *gateway) preview(ctx context.Context, _ gate.Call, a artifactArgs) (any, error) {
	x, err := g.ledger.Artifact(ctx, a.ArtifactID)
	if err != nil {
		return nil, err
	}
	f, err := g.store.Open(x.SHA256)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := int(g.policy.Limits.PreviewLines)
	if a.MaxLines > 0 {
		lines = min(lines, a.MaxLines)
	}
	p, err := artifact.PreviewText(f, x.SizeBytes, int(g.policy.Limits.PreviewBytes), lines)
	return previewAnswer{x.ID, x.Type, x.SizeBytes, p.Text, p.Truncated, p.Binary}, err
}
