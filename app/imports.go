package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/site"
)

// ImportArgs are the arguments of artifact.import.
type ImportArgs struct {
	Path      *string       `json:"path,omitzero" kind:"path"`
	Text      *string       `json:"text,omitzero" max:"32768"`
	Upload    bool          `json:"upload,omitzero" const:"true" about:"the content is sent as the body of POST /v1/artifacts"`
	Label     string        `json:"label,omitzero" min:"1" max:"256"`
	Type      string        `json:"type,omitzero" kind:"artifact_type" about:"artifact type; detected from the content by default"`
	ProjectID string        `json:"project_id,omitzero" kind:"project"`
	Source    *ImportSource `json:"source,omitzero" about:"in place of path or text"`
	TypeHint  string        `json:"type_hint,omitzero" kind:"artifact_type" about:"same as type"`
	FileID    string        `json:"file_id,omitzero" kind:"file"`
	InPlace   bool          `json:"in_place,omitzero" about:"register the file of path by its SHA-256 and leave it where it is; only below a folder that the site lists in storage.in_place"`
	Site      string        `json:"site,omitzero" max:"64" about:"with in_place: the site whose folder it is; default: the first that has it"`
}

// ImportSource is the source of an import in HelixMCP's form.
type ImportSource struct {
	Kind string  `json:"kind" enum:"local_path,inline_text"`
	Path *string `json:"path,omitzero" kind:"path"`
	Text *string `json:"text,omitzero" max:"32768"`
}

// Plain returns the arguments with path, text and type in place of source and type_hint.
func (a ImportArgs) Plain() (ImportArgs, error) {
	invalid := func(field, rule, msg string) (ImportArgs, error) {
		return a, fault.Invalid("", fault.Problem{Code: "IMPORT-SOURCE", Field: field, Rule: rule, Msg: msg})
	}
	if a.TypeHint != "" {
		if a.Type != "" && a.Type != a.TypeHint {
			return invalid("type_hint", "the same as type", "type and type_hint name different types")
		}
		a.Type, a.TypeHint = a.TypeHint, ""
	}
	s := a.Source
	if s == nil {
		return a, nil
	}
	isPath := s.Kind == "local_path"
	switch {
	case a.Path != nil || a.Text != nil || a.Upload:
		return invalid("source", "exactly one of path, text, upload and source", "source is given with another of them")
	case isPath && (s.Path == nil || s.Text != nil):
		return invalid("source", "path alone, for the kind local_path", "path is missing, or text is given too")
	case !isPath && (s.Text == nil || s.Path != nil):
		return invalid("source", "text alone, for the kind inline_text", "text is missing, or path is given too")
	}
	a.Path, a.Text, a.Source = s.Path, s.Text, nil
	return a, nil
}

// ImportAnswer is the answer of artifact.import.
type ImportAnswer struct {
	CallRunID
	ArtifactDoc
	Created bool `json:"created"` // false: it existed already
}

// Unchanged reports whether the artifact existed already.
func (a ImportAnswer) Unchanged() bool { return !a.Created }

// importArtifact imports an artifact and stores it. If there is no room for more, it still finds an artifact that
// exists already, and has then read none of its bytes.
func (g *Gateway) importArtifact(ctx context.Context, c gate.Call, a ImportArgs) (out ImportAnswer, err error) {
	if a.FileID != "" {
		err = g.importFound(ctx, c, a, func(a ImportArgs) (err error) {
			out, err = g.importArtifact(ctx, c, a)
			return err
		})
		return out, err
	}
	if a.InPlace {
		doc, err := g.register(ctx, c, a, false)
		if err == nil {
			doc, out.Created, err = g.Ledger.ImportArtifact(ctx, doc, g.asking(ctx, c))
		}
		out.ArtifactDoc = docOf(doc)
		out.Params = map[string]any{"artifact_id": doc.ID}
		return out, err
	}
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return out, err
	}
	quota, end := g.Quotas().importing(run.Share{Project: project, Caller: g.countsAs(c.Caller.Principal)})
	defer end()
	ctx, end = g.transfers.begin(ctx, c, "importing")
	defer end()
	body := &countingReader{Reader: c.Caller.Body}
	if c.Caller.Body != nil {
		c.Caller.Body = body
	}
	doc, err := g.bringIn(ctx, c, a, g.Importer.Within(quota))
	if code := fault.CodeOf(err); err != nil && c.Caller.Upload == nil && (code == "quota_exceeded" || code == "disk_full") && body.n == 0 {
		if known, rerr := g.bringIn(ctx, c, a, g.Importer.Rehearsal()); rerr == nil {
			if _, lerr := g.Ledger.Artifact(ctx, known.ID); lerr == nil {
				doc, err = known, nil
			}
		}
	}
	if err == nil {
		doc, out.Created, err = g.Ledger.ImportArtifact(ctx, doc, g.asking(ctx, c))
	}
	out.ArtifactDoc = docOf(doc)
	out.Params = map[string]any{"artifact_id": doc.ID}
	return out, err
}

// countingReader counts the bytes read.
type countingReader struct {
	io.Reader
	n int64
}

// Read implements io.Reader.
func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.n += int64(n)
	return n, err
}

// directoryBounds returns policy's limits of an imported directory.
func (g *Gateway) directoryBounds() (b artifact.Bounds) {
	if l := g.Policy.Import.Directory; l != nil {
		b = artifact.Bounds{Files: l.MaxFiles, Depth: l.MaxDepth, Bytes: l.MaxBytes}
	}
	return b
}

// bringIn reads the source of an import within policy's limits. The importer decides whether the bytes are stored.
func (g *Gateway) bringIn(ctx context.Context, c gate.Call, a ImportArgs, importer *artifact.Importer) (doc run.Artifact, err error) {
	if a, err = a.Plain(); err != nil {
		return doc, err
	}
	invalid := func(code, field, rule, msg string) error {
		return fault.Invalid("", fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg})
	}
	if a.Site != "" {
		return doc, invalid("IMPORT-SITE", "site", "only with in_place", "a copy is stored by the gateway, not on a site")
	}
	var given []string
	for name, is := range map[string]bool{"path": a.Path != nil, "text": a.Text != nil, "upload": a.Upload,
		"bytes with the call": c.Caller.Body != nil && !a.Upload} {
		if is {
			given = append(given, name)
		}
	}
	slices.Sort(given)
	switch {
	case len(given) == 0:
		return doc, invalid("IMPORT-SOURCE", "args", "exactly one of path, text and upload", "none is given")
	case len(given) > 1:
		return doc, invalid("IMPORT-SOURCE", "args", "exactly one of path, text and upload", strings.Join(given, " and ")+" are given")
	case a.Upload != (c.Caller.Body != nil):
		return doc, invalid("IMPORT-SOURCE", "args", "upload and a request body, both or neither", strings.Join(given, "")+" is given alone")
	}
	if msg := plan.CheckLabel(a.Label); a.Label != "" && msg != "" {
		return doc, invalid("IMPORT-LABEL", "label", "no leading, trailing or repeated spaces, no control characters, at most 256 characters",
			msg)
	}
	if a.Type != "" && !slices.Contains(g.Domain.Types(), a.Type) {
		return doc, invalid("IMPORT-TYPE", "type", "one of "+strings.Join(g.Domain.Types(), " "),
			"there is no artifact type "+fault.Quote(a.Type, 64))
	}
	if a.Type == plan.Directory && !a.Upload && a.Path == nil {
		return doc, invalid("IMPORT-TYPE", "type", "with a path, or an upload of a tar file", "a text cannot be a directory")
	}
	var o opener
	way := policy.ImportText
	switch {
	case a.Path != nil:
		if o, err = g.opensPath(ctx, c, nil, false); err != nil {
			return doc, err
		}
		way = o.way()
	case a.Upload:
		way = policy.ImportUpload
	}
	if err := g.Policy.AllowImport(way, a.Type, -1); err != nil {
		return doc, err
	}
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return doc, err
	}
	scope := artifact.Scope{Project: project, Every: c.Projects() == nil}
	var in artifact.Imported
	typed := importer.As(a.Type)
	if a.Type == plan.Directory {
		typed = importer
	}
	importer = typed.Bounded(g.directoryBounds()).Accepting(func(in artifact.Imported) error {
		return g.Policy.AllowImport(way, cmp.Or(a.Type, in.Type), in.SizeBytes)
	})
	switch {
	case a.Type == plan.Directory && way == policy.ImportHanded:
		return doc, invalid("IMPORT-TYPE", "type", "absent, or the type of a file", "the gateway cannot read a directory with the rights of "+
			"another user; let slurmgate's own command send the directory")
	case a.Upload && a.Type == plan.Directory && c.Caller.Upload != nil:
		return doc, invalid("IMPORT-UPLOAD", "upload_key", "absent for a directory", "a directory is sent in one request")
	case a.Upload && a.Type == plan.Directory:
		in, err = importer.ImportTar(ctx, c.Caller.Body)
	case way == policy.ImportPath && (a.Type == plan.Directory || a.Type == "" && importer.IsFolder(*a.Path, scope)):
		in, err = importer.ImportFolder(ctx, *a.Path, scope)
	case o.file != nil:
		in, err = importer.ImportHanded(ctx, o.file, *a.Path, g.Site.Import.Local == site.LocalRoots, scope)
	case o.user != "":
		err = g.ReadAs(ctx, o.site, o.user, func(open artifact.OpenAs) error {
			in, err = importer.ImportAs(ctx, *a.Path, scope, open)
			return err
		})
	case a.Path != nil:
		in, err = importer.ImportFile(ctx, *a.Path, scope)
	case a.Text != nil:
		in, err = importer.ImportText(ctx, *a.Text)
	default:
		in, err = importer.ImportStream(ctx, c.Caller.Body, c.Caller.BodyBytes, a.Label, g.partOf(c, project))
	}
	if at, ok := errors.AsType[*artifact.OffsetError](err); ok {
		c.Caller.Upload.Stored, c.Caller.Upload.SHA256 = at.Stored, at.SHA256
	}
	if err != nil {
		return doc, err
	}
	if a.Label == "" {
		a.Label = in.Label
	}
	if a.Type == "" {
		a.Type = in.Type
	}
	doc = run.Artifact{ProjectID: project, SHA256: in.SHA256, Type: a.Type, Label: a.Label, SizeBytes: in.SizeBytes, Source: "import",
		Caller: g.countsAs(c.Caller.Principal)}
	if in.List != nil {
		if err := g.Ledger.AddDirectory(ctx, run.Directory{SHA256: in.SHA256, ListBytes: in.List.Bytes, Files: in.List.Files}); err != nil {
			return doc, err
		}
	}
	doc.ID, err = plan.ArtifactID(doc.ProjectID, doc.SHA256, doc.Type, doc.Label)
	return doc, err
}

// partOf returns which part of an upload the body of the call is; nil: all of it.
func (g *Gateway) partOf(c gate.Call, project string) *artifact.Part {
	up := c.Caller.Upload
	if up == nil {
		return nil
	}
	return &artifact.Part{Owner: project + " " + g.countsAs(c.Caller.Principal), Key: up.Key, Offset: up.Offset}
}
