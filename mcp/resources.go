package mcp

import (
	"context"
	"encoding/json"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/filetype"
)

// artifactScheme begins the URI of an artifact, as in artifact://art_….
const artifactScheme = "artifact://"

const listedAtOnce = 20 // resources

// artifact has the members of an artifact's resource.
type artifact struct {
	ArtifactID string `json:"artifact_id"`
	Type       string `json:"type"`
	Label      string `json:"label"`
	SizeBytes  int64  `json:"size_bytes"`
}

// listArtifacts lists the caller's artifacts, newest first, as resources.
func (s *server) listArtifacts(ctx context.Context, r *sdk.ListResourcesRequest) (*sdk.ListResourcesResult, error) {
	args := map[string]any{"limit": listedAtOnce}
	if r.Params != nil && r.Params.Cursor != "" {
		args["cursor"] = r.Params.Cursor
	}
	var page struct {
		Artifacts []artifact `json:"artifacts"`
		Cursor    *string    `json:"cursor"`
	}
	if err := s.call(ctx, "artifact.list", args, &page); err != nil {
		return nil, protocolError(err)
	}
	out := &sdk.ListResourcesResult{Resources: []*sdk.Resource{}}
	for _, a := range page.Artifacts {
		out.Resources = append(out.Resources, &sdk.Resource{URI: artifactScheme + a.ArtifactID, Name: plain(a.Label, 64), Description: a.Type,
			Size: a.SizeBytes, MIMEType: mimeOf(a.Type)})
	}
	if page.Cursor != nil {
		out.NextCursor = *page.Cursor
	}
	cacheable(ctx, r, &out.Cacheable)
	return out, nil
}

// readArtifact returns the beginning of a text, bounded by policy, and the metadata of anything else. A chat never
// gets the bytes (ARC-01).
func (s *server) readArtifact(ctx context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := r.Params.URI
	id, ok := strings.CutPrefix(uri, artifactScheme)
	if !ok || strings.ContainsAny(id, "/?#") {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	var known json.RawMessage
	switch err := s.call(ctx, "artifact.get", map[string]any{"artifact_id": id}, &known); {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Validation):
		return nil, sdk.ResourceNotFoundError(uri)
	case err != nil:
		return nil, protocolError(err)
	}
	var p struct {
		Text   string `json:"text"`
		Binary bool   `json:"binary"`
	}
	if err := s.call(ctx, "artifact.preview.text", map[string]any{"artifact_id": id}, &p); err != nil {
		return nil, protocolError(err)
	}
	c := &sdk.ResourceContents{URI: uri, MIMEType: "text/plain", Text: p.Text}
	if p.Binary {
		c.MIMEType, c.Text = "application/json", string(known)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
}

// mimeOf returns the MIME type of the resource's content.
func mimeOf(typ string) string {
	if t := filetype.Of(typ); t.Media != "" && !t.Binary {
		return "text/plain"
	}
	return "application/json"
}
