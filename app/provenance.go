package app

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// identityDoc is what a provenance_run_id is made of. Its hash, with the params hashed alone, is the id.
type identityDoc struct {
	ToolName        string          `json:"tool_name"`
	ContractVersion string          `json:"contract_version"`
	PolicyHash      string          `json:"policy_hash"`
	Params          json.RawMessage `json:"params"`
}

func (d identityDoc) runID() string {
	return plan.Identity{ToolName: d.ToolName, ContractVersion: d.ContractVersion, PolicyHash: d.PolicyHash,
		ParamsHash: plan.Hash(d.Params)}.RunID()
}

// provenance is the run id of a read-only call (ARC-11): the same call under the same policy with the same canonical params. The params
// name what the answer depends on: an artifact's id, which always means the same bytes, or the snapshot of a list. The identity is
// recorded with the call of ctx.
func (g *Gateway) provenance(ctx context.Context, toolID string, params any) (string, error) {
	canonical, err := plan.Marshal(params)
	if err != nil {
		return "", err
	}
	doc := identityDoc{strings.ReplaceAll(toolID, ".", "_"), builtinContract, g.Policy.Hash, canonical}
	identity, err := plan.Marshal(doc)
	if err != nil {
		return "", err
	}
	id := doc.runID()
	gate.Note(ctx, gate.Provenance{RunID: id, Identity: identity})
	return id, nil
}

// identify is provenance as the engine asks for it. more is what the call adds to the params of the look.
func (g *Gateway) identify(toolID string, more map[string]any) run.Identify {
	return func(ctx context.Context, params map[string]any) (string, error) {
		maps.Copy(params, more)
		return g.provenance(ctx, toolID, params)
	}
}

// asked is the run id of a verb's call about a run in its current state, up to its newest event.
func (g *Gateway) asked(ctx context.Context, toolID string, a RunArgs) (string, error) {
	seq, err := g.Ledger.Seq(ctx, a.RunID)
	if err != nil {
		return "", err
	}
	return g.provenance(ctx, toolID, map[string]any{"run_id": a.RunID, "with": a.Reason, "ledger_seq": seq})
}

// CancelAnswer and stateAnswer are the answers of verbs about a run, with the run id of the call.
type CancelAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.CancelAnswer
}

type RecollectAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.RecollectAnswer
}

type StateAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.GetState
}

// tokensAsked, approvalsAsked and callsAsked say which run an answer about tokens, approvals or recorded calls is, and of which state of
// the ledger: the numbers change exactly when the answer does. A question asked again about the same state is the same run.
type tokensAsked struct {
	ProvenanceRunID string                `json:"provenance_run_id"`
	Snapshot        *ledger.TokenSnapshot `json:"snapshot"` // null for an answer about one token, which needs none
}

type approvalsAsked struct {
	ProvenanceRunID string                   `json:"provenance_run_id"`
	Snapshot        *ledger.ApprovalSnapshot `json:"snapshot"` // null for an answer about one approval, which needs none
}

type callsAsked struct {
	ProvenanceRunID string       `json:"provenance_run_id"`
	Snapshot        callSnapshot `json:"snapshot"`
}

// callSnapshot is the newest and the oldest record that an answer covers, by hash. Records are chained and never change.
type callSnapshot struct {
	Newest string `json:"newest"` // empty: none
	Oldest string `json:"oldest"`
	Total  int64  `json:"total"` // as the answer says
}

// about is the run of a call whose params are its arguments and a snapshot.
func (g *Gateway) about(ctx context.Context, toolID string, c gate.Call, snapshot any) (string, error) {
	return g.provenance(ctx, toolID, map[string]any{"args": c.Args, "snapshot": snapshot})
}
