package main

import (
	"context"

	"slurmgate/plan"
	"slurmgate/run"
)

// provenance is the run of a call that looks (ARC-11): the same call under the same policy with the same canonical params. What an
// answer depends on stands in the params: an artifact's id, which never stands for other bytes, or the snapshot of a list.
func (g *gateway) provenance(toolID string, params any) (string, error) {
	canonical, err := plan.Marshal(params)
	if err != nil {
		return "", err
	}
	id := g.look(toolID)
	id.ParamsHash = plan.Hash(canonical)
	return id.RunID(), nil
}

// asked is the run of a verb about a run as it is now, up to its newest event.
func (g *gateway) asked(ctx context.Context, toolID string, a runArgs) (string, error) {
	seq, err := g.ledger.Seq(ctx, a.RunID)
	if err != nil {
		return "", err
	}
	return g.provenance(toolID, map[string]any{"run_id": a.RunID, "with": a.Reason, "ledger_seq": seq})
}

// cancelAnswer and stateAnswer are answers of verbs about a run, with the run of the call.
type cancelAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.CancelAnswer
}

type stateAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.GetState
}
