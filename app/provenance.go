package app

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
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

// CallRunID begins an answer, see [run.CallRunID].
type CallRunID = run.CallRunID

// runAnswer is an answer that begins with a [CallRunID].
type runAnswer interface{ CallRun() *run.CallRunID }

// identify gives an answer the run id of its call (ARC-11): the same call under the same policy with the same canonical params. Those are
// [run.CallRunID.Params], or else the arguments and the hash of the answer. The identity is recorded with the call of ctx.
func (g *Gateway) identify(ctx context.Context, c gate.Call, answer runAnswer) error {
	params := answer.CallRun().Params
	if params == nil {
		snapshot, err := snapshotOf(answer)
		if err != nil {
			return err
		}
		params = map[string]any{"args": argsOf(c), "snapshot": snapshot}
	}
	canonical, err := plan.Marshal(params)
	if err != nil {
		return err
	}
	doc := identityDoc{strings.ReplaceAll(c.Request.ToolID, ".", "_"), builtinContract, g.Policy.Hash, canonical}
	identity, err := plan.Marshal(doc)
	if err != nil {
		return err
	}
	answer.CallRun().ProvenanceRunID = doc.runID()
	gate.Note(ctx, gate.Provenance{RunID: doc.runID(), Identity: identity})
	return nil
}

// argsOf returns the arguments of a call without how long it may wait for its answer.
func argsOf(c gate.Call) any {
	args, ok := c.Value.(map[string]any)
	if _, waits := args["wait_seconds"]; !ok || !waits {
		return c.Value
	}
	args = maps.Clone(args)
	delete(args, "wait_seconds")
	return args
}

// fleeting are the fields of answers that change although nothing else does.
var fleeting = []string{"observed_at", "slurm_answered_at", "poll_after_seconds"}

// snapshotOf returns the hash of an answer that has no run id yet, without what is fleeting.
func snapshotOf(answer any) (string, error) {
	doc, err := plan.Of(answer)
	if err == nil && slices.ContainsFunc(fleeting, func(name string) bool { return bytes.Contains(doc.Bytes, []byte(name)) }) {
		doc.Bytes, err = plan.Marshal(lasting(doc.Value))
	}
	return plan.Hash(doc.Bytes), err
}

// lasting removes what is fleeting from a part of an answer, and returns the part.
func lasting(part any) any {
	switch v := part.(type) {
	case map[string]any:
		maps.DeleteFunc(v, func(name string, _ any) bool { return slices.Contains(fleeting, name) })
		for _, x := range v {
			lasting(x)
		}
	case []any:
		for _, x := range v {
			lasting(x)
		}
	}
	return part
}
