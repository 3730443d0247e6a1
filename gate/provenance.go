package gate

import (
	"context"
	"encoding/json"

	"slurmgate/plan"
)

// Provenance is the run that a call is (ARC-11): the identity its answer's provenance_run_id is made of.
type Provenance struct {
	RunID    string
	Identity json.RawMessage // canonical JSON: tool, contract version, policy and params with the snapshot boundary
}

type provenanceKey struct{}

// Note records which run the call of ctx is, so that the id can be found; a handler calls it when it has the run. encoded is the
// document of the handler's result, if it has made one; zero: the gate makes it. Outside a call Note does nothing.
func Note(ctx context.Context, p Provenance, encoded plan.Doc) {
	if t, ok := ctx.Value(provenanceKey{}).(*trail); ok {
		t.provenance, t.encoded = &p, encoded
	}
}

// noted returns the provenance that may be recorded: nil for a call without one, and for an identity that seems to
// hold a secret.
func (g *Gate) noted(t trail) *Provenance {
	if t.provenance == nil {
		return nil
	}
	if !g.secrets.Suspicious(t.provenance.Identity) {
		return t.provenance
	}
	identity, err := plan.Read(t.provenance.Identity)
	if err != nil {
		return nil
	}
	if _, found, err := g.redact(document{Doc: identity}, true); err != nil || len(found) > 0 {
		return nil
	}
	return t.provenance
}
