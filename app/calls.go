package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/retention"
	"slurmgate/visible"
)

// CallRun explains a provenance_run_id that is not a job's run: it is a call, and the state that it was answered
// from.
type CallRun struct {
	CallRunID
	RunID           string          `json:"run_id"`
	ToolID          string          `json:"tool_id"`
	ContractVersion string          `json:"contract_version"`
	PolicyHash      string          `json:"policy_hash"`
	ParamsHash      string          `json:"params_hash"`
	Params          json.RawMessage `json:"params" help:"canonical parameters, with the snapshot"`
	Calls           int64           `json:"calls"` // recorded calls with this id: the caller's own, or for an admin all
	FirstAskedAt    time.Time       `json:"first_asked_at"`
	LastAskedAt     time.Time       `json:"last_asked_at"`
	ToolCallIDs     []string        `json:"tool_call_ids"` // the newest 20
}

func (g *Gateway) lookUpCall(ctx context.Context, c gate.Call, a RunArgs) (r CallRun, err error) {
	r, err = g.callRun(ctx, c, a.RunID)
	if fault.Is(err, fault.NotFound) {
		if _, job := g.Ledger.View(ctx, a.RunID); job == nil {
			err = fault.New(fault.NotFound, "run_is_a_job", a.RunID+" is the run of a job").
				WithSteps(fault.Do("run.show", "run_id", a.RunID))
		}
	}
	return r, err
}

// callRun finds the recorded calls that have a provenance run id. An admin sees those of all callers, as in the list
// of calls; others see their own.
func (g *Gateway) callRun(ctx context.Context, c gate.Call, runID string) (CallRun, error) {
	whose := &c.Caller.Principal
	if c.Caller.Can(gate.CapAdmin, gate.All) {
		whose = nil
	}
	found, err := g.Ledger.CallRun(ctx, runID, whose)
	if err != nil {
		return CallRun{}, err
	}
	return callRunOf(found)
}

func callRunOf(r ledger.CallRun) (CallRun, error) {
	var d identityDoc
	err := plan.Decode(r.Identity, &d)
	if bytes.Contains(r.Identity, []byte(retention.Mark)) {
		return CallRun{}, fault.New(fault.NotFound, "erased", "the call "+r.RunID+" held a secret, which was erased")
	}
	if err != nil || d.runID() != r.RunID {
		return CallRun{}, fault.Wrap(fault.Internal, "call_record_changed",
			"the record of "+r.RunID+" does not have that id: the ledger's file was changed", err).WithNext("compare with a backup")
	}
	return CallRun{RunID: r.RunID, ToolID: r.ToolID, ContractVersion: d.ContractVersion, PolicyHash: d.PolicyHash,
		ParamsHash: plan.Hash(d.Params), Params: d.Params,
		Calls: r.Calls, FirstAskedAt: r.First, LastAskedAt: r.Last, ToolCallIDs: r.CallIDs}, nil
}

// ofRun wraps work that takes a run: for an id that is a call's it explains that, instead of answering that there is
// no such run.
func ofRun(g *Gateway, w work) work {
	next := w.handle
	w.handle = func(ctx context.Context, c gate.Call) (any, error) {
		result, err := next(ctx, c)
		var a RunArgs
		if !fault.Is(err, fault.NotFound) || fault.CodeOf(err) != "run_not_found" || json.Unmarshal(c.Args, &a) != nil {
			return result, err
		}
		r, not := g.callRun(ctx, c, a.RunID)
		if not != nil {
			return result, err
		}
		return nil, fault.New(fault.NotFound, "run_is_a_call",
			fmt.Sprintf("%s is not a job but a call of %s with %s, asked %d times, first %s, last %s", r.RunID, r.ToolID,
				visible.Clip(string(r.Params), 600), r.Calls, r.FirstAskedAt.Format(time.RFC3339), r.LastAskedAt.Format(time.RFC3339))).
			WithNext("call " + r.ToolID + " again to see its answer as of now")
	}
	return w
}
