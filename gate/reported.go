package gate

import (
	"context"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
)

// What a tool that a service worker carries out needs of the gate: its answer is the worker's word, and no document of the gateway's own.

// RefPrefix begins a reference to an artifact.
const RefPrefix = refPrefix

// Reported is an error that a service worker reported, or that the gateway reports about its call. Whether a repeated call may succeed is
// the worker's word too.
type Reported struct {
	Err       *fault.Error
	Retryable bool
	Details   map[string]any // the worker's own, bounded and cleaned by the code that made it
}

func (r *Reported) Error() string { return r.Err.Error() }

// Unwrap returns the error as every other of the gateway.
func (r *Reported) Unwrap() error { return r.Err }

// Stored is a handler's result that is an artifact already.
type Stored struct {
	ArtifactID string
	SHA256     string // of its bytes, canonical JSON without secrets; empty: not known any more
	Again      bool   // an earlier call stored it, and this one changed nothing
}

// Unchanged reports that the call changed nothing.
func (s Stored) Unchanged() bool { return s.Again }

// Made records which run the call of ctx has created or found, for a tool whose answer does not name it: a worker's
// answer names no run. Outside a call it does nothing.
func Made(ctx context.Context, runID string) {
	if t, ok := ctx.Value(provenanceKey{}).(*trail); ok {
		t.runID = runID
	}
}

// resources returns what the call touched. The ids in a worker's answer do not count, as in any text.
func (t trail) resources() Resources {
	if t.runID == "" {
		return touched(t.args.Bytes, t.result.Bytes)
	}
	r := touched(t.args.Bytes)
	if !slices.Contains(r.WorkspaceIDs, t.runID) {
		r.WorkspaceIDs = append(r.WorkspaceIDs, t.runID)
	}
	return r
}

// CheckOutput holds an answer against the tool's output schema.
func (r *Registry) CheckOutput(toolID string, answer plan.Doc) []fault.Problem {
	e, err := r.find(toolID)
	if err != nil || e.output == nil {
		return nil
	}
	return violations(e.output, answer.Value, "RESULT-SCHEMA", "result", "the tool's output schema")
}

// Clean takes the secrets out of an answer, as every answer of the gate.
func (g *Gate) Clean(answer plan.Doc) (plan.Doc, error) {
	clean, _, err := g.redact(document{Doc: answer}, false)
	return clean.Doc, err
}
