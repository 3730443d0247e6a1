package app

import (
	"context"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
)

type ArtifactListArgs struct {
	ProjectID string     `json:"project_id,omitzero"`
	Type      string     `json:"type,omitzero"`
	AsOf      *time.Time `json:"as_of_created_at,omitzero"`
	Cursor    string     `json:"cursor,omitzero"`
	Limit     int        `json:"limit,omitzero"`
}

// ArtifactList is one page of a snapshot (ARC-05).
type ArtifactList struct {
	ProvenanceRunID string     `json:"provenance_run_id"`
	AsOf            *time.Time `json:"as_of_created_at"` // null when there are no artifacts
	ArtifactCount   int64      `json:"artifact_count"`   // of all pages
	Listed
	Artifacts []ArtifactDoc `json:"artifacts"`
	Cursor    *string       `json:"cursor"`
}

// listParams are the canonical params of a list: the filter, the snapshot, and the page.
type listParams struct {
	Projects []string   `json:"project_ids"` // null: every one
	Type     string     `json:"type"`
	AsOf     *time.Time `json:"as_of_created_at"`
	Count    int64      `json:"artifact_count"`
	Cursor   string     `json:"cursor"`
	Limit    int        `json:"limit"`
}

const listLimit = 50 // page size when the call gives none

func (g *Gateway) artifactListTool() gate.Tool {
	return builtin("artifact.list", "List artifacts",
		"Lists artifacts, newest first, from one snapshot: those created up to as_of_created_at (default: now). Pages fetched with cursor are "+
			"from the same snapshot; artifact_count is the number on all pages.", gate.Read,
		object("", prop("project_id", projectSchema), prop("type", `{"type":"string","pattern":"^[A-Z][A-Z0-9_]{0,31}$"}`),
			prop("as_of_created_at", `{"type":"string","pattern":"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,9})?Z$","description":"only artifacts created up to this time (UTC); use the value of an earlier answer to get the same list again"}`),
			prop("cursor", `{"type":"string","maxLength":256}`), prop("limit", `{"type":"integer","minimum":1,"maximum":200}`)),
		handler(g.listArtifacts))
}

func (g *Gateway) listArtifacts(ctx context.Context, c gate.Call, a ArtifactListArgs) (_ any, err error) {
	f := ledger.ArtifactFilter{Type: a.Type, Cursor: a.Cursor, Limit: a.Limit}
	if f.Limit == 0 {
		f.Limit = listLimit
	}
	if a.AsOf != nil {
		if a.Cursor != "" {
			return nil, fault.Invalid("artifact.list", "", fault.Problem{Code: "LIST-CURSOR", Field: "as_of_created_at",
				Rule: "not together with a cursor, which has its own", Msg: "cursor and as_of_created_at are both given"})
		}
		f.AsOf = *a.AsOf
	}
	if f.Projects, err = g.projectsListed(c, a.ProjectID); err != nil {
		return nil, err
	}
	page, err := g.Ledger.Artifacts(ctx, f)
	if err != nil {
		return nil, err
	}
	out := ArtifactList{ArtifactCount: page.Snapshot.Count, Listed: Listed{page.Snapshot.Count, true}, Artifacts: []ArtifactDoc{}}
	if at := page.Snapshot.AsOf; !at.IsZero() {
		out.AsOf = &at
	}
	if page.Cursor != "" {
		out.Cursor = &page.Cursor
	}
	for _, x := range page.Artifacts {
		out.Artifacts = append(out.Artifacts, docOf(x))
	}
	out.ProvenanceRunID, err = g.provenance(ctx, "artifact.list", listParams{f.Projects, f.Type, out.AsOf, out.ArtifactCount, f.Cursor,
		f.Limit})
	return out, err
}

// ArtifactLook is an artifact's metadata as the answer to a call.
type ArtifactLook struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	ArtifactDoc
}

func (g *Gateway) getArtifact(ctx context.Context, _ gate.Call, a ArtifactArgs) (any, error) {
	x, err := g.Ledger.Artifact(ctx, a.ArtifactID)
	if err != nil {
		return nil, err
	}
	prov, err := g.provenance(ctx, "artifact.get", map[string]any{"artifact_id": x.ID})
	return ArtifactLook{prov, docOf(x)}, err
}
