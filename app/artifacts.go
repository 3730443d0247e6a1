package app

import (
	"context"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
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
	ExecutedAs     string    `json:"executed_as,omitempty"` // the user whose run made it, and who could have forged it
	CreatedAt      time.Time `json:"created_at"`
	Role           string    `json:"role,omitempty"`
	Relpath        string    `json:"relpath,omitempty"`
	Reference      string    `json:"reference,omitempty"` // of a run's input: the site's name for these bytes, now or earlier
	// of a run's input: how the latest attempt gets it, once it is staged
	Strength run.Strength `json:"strength,omitempty"`
	// of an output: the file name that the caller's newest request for its run gives it
	DownloadName string `json:"download_name,omitempty"`
	Erased       string `json:"erased,omitempty"` // the erasure that removed its bytes, which held a secret
}

func docOf(a run.Artifact) ArtifactDoc {
	return ArtifactDoc{ArtifactID: a.ID, ProjectID: a.ProjectID, Type: a.Type, Label: a.Label, SizeBytes: a.SizeBytes,
		ChecksumSHA256: a.SHA256, Source: a.Source, ExecutedAs: a.ExecutedAs, CreatedAt: a.CreatedAt, Erased: a.Erased}
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

// artifacts are the operations on artifacts, but for the previews of tables and pictures.
func (g *Gateway) artifacts() []Operation {
	typ := `{"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,31}$","description":"artifact type; detected from the content by default"}`
	return []Operation{{
		ID: "artifact.import", Title: "Import an artifact", Verb: "artifact import",
		Description: "Imports a file or a text as an immutable artifact and returns its artifact_id. path names a file on the gateway's " +
			"host that you can read: as its user, as your Unix user where jobs run as their callers, else below an import root of the project. " +
			"Other files are uploaded. The same bytes with the same label are the same artifact.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapImport, Needs: Ledger, Faces: everywhere,
		Limit: 6 * time.Hour, // a large file is hashed and copied while the call is open
		Input: object("", prop("path", pathSchema), prop("text", `{"type":"string","maxLength":32768}`),
			prop("upload", `{"const":true,"description":"the content is sent as the body of POST /v1/artifacts"}`),
			prop("label", `{"type":"string","minLength":1,"maxLength":256}`), prop("type", typ), prop("project_id", projectSchema),
			prop("file_id", fileIDSchema), prop("source", sourceSchema), prop("in_place", `{"type":"boolean","description":"register the file of path by its SHA-256 and leave it where it is; `+
				`only below a folder that the site lists in storage.in_place"}`),
			prop("site", `{"type":"string","maxLength":64,"description":"with in_place: the site whose folder it is; default: the first that has it"}`),
			prop("type_hint", `{"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,31}$","description":"same as type"}`)),
		Does: look(g, g.importArtifact), DryRun: look(g, g.rehearseImport),
	}, {
		ID: "artifact.list", Title: "List artifacts", Verb: "artifact list",
		Description: "Lists artifacts, newest first, from one snapshot: those created up to as_of_created_at (default: now). Pages fetched " +
			"with cursor are from the same snapshot; artifact_count is the number on all pages.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("", prop("project_id", projectSchema), prop("type", `{"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,31}$"}`),
			prop("id_prefix", idPrefixSchema("art_")),
			prop("checksum_sha256", `{"type":"string","pattern":"^[0-9a-f]{64}$","description":"only artifacts with these bytes"}`),
			prop("as_of_created_at", asOfSchema), prop("cursor", cursorSchema), prop("limit", limitSchema)),
		Does: look(g, g.listArtifacts),
	}, {
		ID: "artifact.verify", Title: "Verify artifacts", Verb: "artifact verify",
		Description: "Hashes the stored bytes of one artifact, or of all you can see, and compares them with their checksums. Reads every byte.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Limit: 24 * time.Hour, Work: gate.Hash,
		Input: object("", prop("artifact_id", artifactSchema), prop("all", yesNo), prop("project_id", projectSchema)), Does: look(g, g.verify),
	}, {
		ID: "artifact.get", Title: "Show an artifact", Verb: "artifact get",
		Description: "Returns the metadata of an artifact: type, label, size, checksum.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("artifact_id", prop("artifact_id", artifactSchema)), Does: look(g, g.getArtifact),
	}}
}

const asOfSchema = `{"type":"string","pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?Z$","description":"only artifacts created up to this time (UTC); use the value of an earlier answer to get the same list again"}`

// ArtifactArgs are the arguments of operations on one artifact.
type ArtifactArgs struct {
	ArtifactID string `json:"artifact_id,omitzero"`
	MaxLines   int    `json:"max_lines,omitzero"`
	MaxBytes   int    `json:"max_bytes,omitzero"`
	Path       string `json:"path,omitzero"`       // of a file in a directory
	FirstFile  int64  `json:"first_file,omitzero"` // of a directory's list
}

// ArtifactListArgs are the arguments of artifact.list.
type ArtifactListArgs struct {
	ProjectID string     `json:"project_id,omitzero"`
	Type      string     `json:"type,omitzero"`
	IDPrefix  string     `json:"id_prefix,omitzero"`       // what the artifact's id begins with
	Checksum  string     `json:"checksum_sha256,omitzero"` // of the bytes
	AsOf      *time.Time `json:"as_of_created_at,omitzero"`
	Cursor    string     `json:"cursor,omitzero"`
	Limit     int        `json:"limit,omitzero"`
}

// ArtifactList is one page of a snapshot (ARC-05).
type ArtifactList struct {
	CallRunID
	AsOf          *time.Time `json:"as_of_created_at"` // null when there are no artifacts
	ArtifactCount int64      `json:"artifact_count"`   // of all pages
	Listed
	Artifacts []ArtifactDoc `json:"artifacts"`
	Cursor    *string       `json:"cursor"`
}

// listParams are the canonical params of a list: the filter, the snapshot, and the page.
type listParams struct {
	Projects []string   `json:"project_ids"` // null: every one
	Type     string     `json:"type"`
	IDPrefix string     `json:"id_prefix,omitzero"`
	Checksum string     `json:"checksum_sha256,omitzero"`
	AsOf     *time.Time `json:"as_of_created_at"`
	Count    int64      `json:"artifact_count"`
	Cursor   string     `json:"cursor"`
	Limit    int        `json:"limit"`
}

const listLimit = 50 // page size when the call gives none

func (g *Gateway) listArtifacts(ctx context.Context, c gate.Call, a ArtifactListArgs) (out ArtifactList, params any, err error) {
	f := ledger.ArtifactFilter{Type: a.Type, IDPrefix: a.IDPrefix, SHA256: a.Checksum, Cursor: a.Cursor, Limit: a.Limit}
	if f.Limit == 0 {
		f.Limit = listLimit
	}
	if a.AsOf != nil {
		if a.Cursor != "" {
			return out, nil, fault.Invalid("", fault.Problem{Code: "LIST-CURSOR", Field: "as_of_created_at",
				Rule: "not together with a cursor, which has its own", Msg: "cursor and as_of_created_at are both given"})
		}
		f.AsOf = *a.AsOf
	}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return out, nil, err
	}
	page, err := g.Ledger.Artifacts(ctx, f)
	if err != nil {
		return out, nil, err
	}
	out = ArtifactList{ArtifactCount: page.Snapshot.Count, Listed: Listed{page.Snapshot.Count, true}, Artifacts: []ArtifactDoc{},
		Cursor: cursorOf(page.Cursor)}
	if at := page.Snapshot.AsOf; !at.IsZero() {
		out.AsOf = &at
	}
	for _, x := range page.Artifacts {
		out.Artifacts = append(out.Artifacts, docOf(x))
	}
	return out, listParams{f.Projects, f.Type, f.IDPrefix, f.SHA256, out.AsOf, out.ArtifactCount, f.Cursor, f.Limit}, nil
}

// ArtifactLook is an artifact's metadata as the answer to a call.
type ArtifactLook struct {
	CallRunID
	ArtifactDoc
}

func (g *Gateway) getArtifact(ctx context.Context, c gate.Call, a ArtifactArgs) (out ArtifactLook, params any, err error) {
	x, err := g.Ledger.Artifact(ctx, a.ArtifactID)
	if out.ArtifactDoc = docOf(x); err != nil {
		return out, nil, err
	}
	about := map[string]any{"artifact_id": x.ID}
	if out.DownloadName, err = g.Ledger.OutputName(ctx, x.ID, askerOf(c)); out.DownloadName != "" {
		about["download_name"] = out.DownloadName // the caller's own
	}
	return out, about, err
}
