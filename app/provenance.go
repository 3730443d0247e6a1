package app

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	"slurmgate/gate"
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

// CallRunID begins an answer: the run that the call itself is (ARC-11).
type CallRunID struct {
	ProvenanceRunID string `json:"provenance_run_id"`
}

func (r *CallRunID) isRun(id string) { r.ProvenanceRunID = id }

// provenance is the run id of a call that makes no run (ARC-11): the same call under the same policy with the same canonical params. The
// params name what the answer depends on: an artifact's id, which always means the same bytes, or the snapshot of a list. The identity is
// recorded with the call of ctx.
func (g *Gateway) provenance(ctx context.Context, c gate.Call, params any) (string, error) {
	canonical, err := plan.Marshal(params)
	if err != nil {
		return "", err
	}
	doc := identityDoc{strings.ReplaceAll(c.Request.ToolID, ".", "_"), builtinContract, g.Policy.Hash, canonical}
	identity, err := plan.Marshal(map[string]any{"tool_name": doc.ToolName, "contract_version": doc.ContractVersion,
		"policy_hash": doc.PolicyHash, "params": params})
	if err != nil {
		return "", err
	}
	id := doc.runID()
	gate.Note(ctx, gate.Provenance{RunID: id, Identity: identity})
	return id, nil
}

// identify is provenance as the engine asks for it. more is what the call adds to the params.
func (g *Gateway) identify(c gate.Call, more map[string]any) run.Identify {
	return func(ctx context.Context, params map[string]any) (string, error) {
		maps.Copy(params, more)
		return g.provenance(ctx, c, params)
	}
}

// atNewest are the params of a call about a run in its current state, up to its newest event.
func (g *Gateway) atNewest(ctx context.Context, runID, with string) (any, error) {
	seq, err := g.Ledger.Seq(ctx, runID)
	return map[string]any{"run_id": runID, "with": with, "ledger_seq": seq}, err
}

// asOf are the params of a call about tokens, approvals or recorded calls: its arguments, and the state of the ledger in numbers that
// change exactly when the answer does.
func asOf(c gate.Call, snapshot any) any {
	return map[string]any{"args": c.Value, "snapshot": snapshot}
}
