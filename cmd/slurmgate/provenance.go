package main

import (
	"context"
	"time"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// provenance is the run id of a read-only call (ARC-11): the same call under the same policy with the same canonical params. The params contain
// what an answer depends on: an artifact's id, which never changes its bytes, or the snapshot of a list.
func (g *gateway) provenance(toolID string, params any) (string, error) {
	canonical, err := plan.Marshal(params)
	if err != nil {
		return "", err
	}
	id := g.look(toolID)
	id.ParamsHash = plan.Hash(canonical)
	return id.RunID(), nil
}

// asked is the run id of a verb's call about a run in its current state, up to its newest event.
func (g *gateway) asked(ctx context.Context, toolID string, a runArgs) (string, error) {
	seq, err := g.ledger.Seq(ctx, a.RunID)
	if err != nil {
		return "", err
	}
	return g.provenance(toolID, map[string]any{"run_id": a.RunID, "with": a.Reason, "ledger_seq": seq})
}

// cancelAnswer and stateAnswer are the answers of verbs about a run, with the run id of the call.
type cancelAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.CancelAnswer
}

type recollectAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.RecollectAnswer
}

type stateAnswer struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	run.GetState
}

// moment is the identity of a call whose answer depends on the time: the answers about tokens, approvals and records of calls. The time is the
// snapshot boundary in their canonical params.
type moment struct {
	ProvenanceRunID string    `json:"provenance_run_id"`
	AsOf            time.Time `json:"as_of"`
}

// at is the identity of such a call, computed when its answer is known.
func (g *gateway) at(toolID string, c gate.Call) (moment, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	id, err := g.provenance(toolID, map[string]any{"args": c.Args, "as_of": now})
	return moment{id, now}, err
}
