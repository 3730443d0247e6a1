package app

import (
	"context"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/run"
)

// ArtifactDoc is an artifact as every face shows it: metadata without a path.
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
	// of a run's input that is read in place: what its bytes rest on
	InPlace *run.Rests `json:"in_place,omitempty"`
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

// artifacts returns the operations on artifacts, except the previews of tables and pictures.
func (g *Gateway) artifacts() []Operation {
	return []Operation{{
		ID: "artifact.import", Title: "Import an artifact", Verb: "artifact import",
		Description: "Imports a file or a text as an immutable artifact and returns its artifact_id. path names a file on the gateway's " +
			"host that your Unix user can read, or one below an import root of the project. Other files are uploaded. The same bytes with the " +
			"same label are the same artifact.",
		Chat: gate.Chat{Has: true, First: true, Seldom: []string{"source", "type_hint", "upload", "in_place", "site"}}, Moves: true,
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapImport, Needs: Ledger, Faces: everywhere,
		Acts:  ActsAsCaller,
		Limit: 6 * time.Hour, // a large file is hashed and copied while the call is open
		Does:  withProvenance(g, g.importArtifact), DryRun: withProvenance(g, g.rehearseImport),
	}, {
		ID: "artifact.list", Title: "List artifacts", Verb: "artifact list",
		Description: "Lists artifacts, newest first, from one snapshot: those created up to as_of_created_at (default: now). Pages fetched " +
			"with cursor are from the same snapshot; artifact_count is the number on all pages.",
		Chat:   gate.Chat{Has: true, Bound: "limit", Most: 6},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.listArtifacts),
	}, {
		ID: "artifact.verify", Title: "Verify artifacts", Verb: "artifact verify",
		Description: "Hashes the stored bytes of one artifact, or of all you can see, and compares them with their checksums. Reads every byte.",
		Moves:       true,
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Limit: 24 * time.Hour, Work: gate.Hash,
		Does: withProvenance(g, g.verify),
	}, {
		ID: "artifact.get", Title: "Show an artifact", Verb: "artifact get",
		Description: "Returns the metadata of an artifact: type, label, size, checksum.",
		Chat:        gate.Chat{Has: true},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.getArtifact),
	}}
}

// ArtifactArgs are the arguments of operations on one artifact.
type ArtifactArgs struct {
	ArtifactID string `json:"artifact_id" arg:"" name:"artifact" ids:"artifact,file" help:"Artifact id, the beginning of one, or a file with its bytes."`
}

// PreviewTextArgs are the arguments of artifact.preview.text.
type PreviewTextArgs struct {
	ArtifactArgs
	MaxLines  int    `json:"max_lines,omitzero" min:"1" max:"5000"`
	MaxBytes  int    `json:"max_bytes,omitzero" min:"1" max:"262144" about:"policy's limit applies too"`
	Path      string `json:"path,omitzero" kind:"path" about:"of a file in a directory, as its list has it"`
	FirstFile int64  `json:"first_file,omitzero" min:"0" max:"1000000000" about:"files of a directory to skip"`
}

// ArtifactListArgs are the arguments of artifact.list.
type ArtifactListArgs struct {
	Type      string `json:"type,omitzero" kind:"artifact_type" help:"Only this type." placeholder:"TYPE"`
	ProjectID string `json:"project_id,omitzero" kind:"project" name:"project" help:"Only this project (name or id)." placeholder:"NAME"`
	IDPrefix  string `json:"id_prefix,omitzero" kind:"artifact_prefix" kong:"-"`
	Checksum  string `json:"checksum_sha256,omitzero" pattern:"^[0-9a-f]{64}$" about:"only artifacts with these bytes" kong:"-"`
	Page
	AsOf *time.Time `json:"as_of_created_at,omitzero" kind:"as_of" help:"Only artifacts created up to this time, as printed by an earlier list (RFC 3339)." placeholder:"TIME"`
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

// listParams is the canonical form of a list's params: the filter, the snapshot and the page.
type listParams struct {
	Projects []string   `json:"project_ids"` // null: all
	Type     string     `json:"type"`
	IDPrefix string     `json:"id_prefix,omitzero"`
	Checksum string     `json:"checksum_sha256,omitzero"`
	AsOf     *time.Time `json:"as_of_created_at"`
	Count    int64      `json:"artifact_count"`
	Cursor   string     `json:"cursor"`
	Limit    int        `json:"limit"`
}

const listLimit = 50 // page size where the call sets none

func (g *Gateway) listArtifacts(ctx context.Context, c gate.Call, a ArtifactListArgs) (out ArtifactList, err error) {
	f := ledger.ArtifactFilter{Type: a.Type, IDPrefix: a.IDPrefix, SHA256: a.Checksum, Cursor: a.Cursor, Limit: a.Limit}
	if f.Limit == 0 {
		f.Limit = listLimit
	}
	if a.AsOf != nil {
		if a.Cursor != "" {
			return out, fault.Invalid("", fault.Problem{Code: "LIST-CURSOR", Field: "as_of_created_at",
				Rule: "not together with a cursor, which has its own", Msg: "cursor and as_of_created_at are both given"})
		}
		f.AsOf = *a.AsOf
	}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return out, err
	}
	page, err := g.Ledger.Artifacts(ctx, f)
	if err != nil {
		return out, err
	}
	out = ArtifactList{ArtifactCount: page.Snapshot.Count, Listed: Listed{page.Snapshot.Count, true}, Artifacts: []ArtifactDoc{},
		Cursor: known(page.Cursor)}
	if at := page.Snapshot.AsOf; !at.IsZero() {
		out.AsOf = &at
	}
	for _, x := range page.Artifacts {
		out.Artifacts = append(out.Artifacts, docOf(x))
	}
	out.Params = listParams{f.Projects, f.Type, f.IDPrefix, f.SHA256, out.AsOf, out.ArtifactCount, f.Cursor, f.Limit}
	return out, nil
}

// ArtifactLook is an artifact's metadata as the answer to a call.
type ArtifactLook struct {
	CallRunID
	ArtifactDoc
}

func (g *Gateway) getArtifact(ctx context.Context, c gate.Call, a ArtifactArgs) (out ArtifactLook, err error) {
	x, err := g.Ledger.Artifact(ctx, a.ArtifactID)
	if out.ArtifactDoc = docOf(x); err != nil {
		return out, err
	}
	out.DownloadName, err = g.Ledger.OutputName(ctx, x.ID, askerOf(c))
	return out, err
}
