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

// Note says which run the call of ctx is; a handler does it once it knows. It is recorded with the call, so that the id can be looked up.
// encoded is the document of the result that the handler returns, if it has made one; zero: the gate makes it. Outside a call Note does
// nothing.
func Note(ctx context.Context, p Provenance, encoded plan.Doc) {
	if t, ok := ctx.Value(provenanceKey{}).(*trail); ok {
		t.provenance, t.encoded = &p, encoded
	}
}

// noted is the provenance as it may be recorded: nil for a call that has none, and for one whose identity holds what looks like a secret.
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
