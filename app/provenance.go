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

// identityDoc is what a provenance_run_id identifies. The id is its hash, with the params replaced by their own hash.
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

// CallRunID is the first part of an answer, see [run.CallRunID].
type CallRunID = run.CallRunID

// runAnswer is an answer that has a [CallRunID].
type runAnswer interface{ CallRun() *run.CallRunID }

// identify sets the run id of an answer's call (ARC-11): the same call under the same policy with the same canonical
// params has the same id. The params are [run.CallRunID.Params], or else the arguments and the hash of the answer.
// The identity is recorded with the call of ctx.
func (g *Gateway) identify(ctx context.Context, c gate.Call, answer runAnswer) error {
	var encoded plan.Doc
	params := answer.CallRun().Params
	if params == nil {
		var err error
		if encoded, err = plan.Of(answer); err != nil {
			return err
		}
		snapshot, err := snapshotOf(encoded)
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
	id := doc.runID()
	answer.CallRun().ProvenanceRunID = id
	gate.Note(ctx, gate.Provenance{RunID: id, Identity: identity}, encoded.With("provenance_run_id", id))
	return nil
}

// argsOf returns the arguments of a call without its waiting time.
func argsOf(c gate.Call) any {
	args, ok := c.Value.(map[string]any)
	if _, waits := args["wait_seconds"]; !ok || !waits {
		return c.Value
	}
	args = maps.Clone(args)
	delete(args, "wait_seconds")
	return args
}

// fleeting lists the fields of answers that change although nothing else does.
var fleeting = []string{"observed_at", "slurm_answered_at", "poll_after_seconds"}

// snapshotOf returns the hash of an answer that has no run id yet, without its fleeting fields.
func snapshotOf(answer plan.Doc) (hash string, err error) {
	text := answer.Bytes
	if slices.ContainsFunc(fleeting, func(name string) bool { return bytes.Contains(text, []byte(name)) }) {
		text, err = plan.Marshal(lasting(answer.Value))
	}
	return plan.Hash(text), err
}

// lasting returns a part of an answer without its fleeting fields. It does not change the part itself.
func lasting(part any) any {
	switch v := part.(type) {
	case map[string]any:
		kept := make(map[string]any, len(v))
		for name, x := range v {
			if !slices.Contains(fleeting, name) {
				kept[name] = lasting(x)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i, x := range v {
			kept[i] = lasting(x)
		}
		return kept
	}
	return part
}
