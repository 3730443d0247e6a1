package run

import (
	"context"
	"encoding/json"
	"fmt"

	"slurmgate/plan"
)

// Order is a request for a run, canonicalised and allowed.
type Order struct {
	ToolID          string
	ToolName        string
	ToolVersion     string
	ContractVersion string
	PackHash        string          // empty for a plan submitted as it is
	Pack            json.RawMessage // definition of the pack: canonical JSON whose hash is PackHash
	Params          plan.Params
	PolicyHash      string
	Policy          json.RawMessage // canonical snapshot
	Actor           string
}

// Identity gives the canonical params of the order and the identity they make.
func (o Order) Identity() (canonical []byte, id plan.Identity, err error) {
	canonical, err = o.Params.Canonical()
	if err != nil {
		return nil, plan.Identity{}, err
	}
	return canonical, plan.Identity{ToolName: o.ToolName, ContractVersion: o.ContractVersion, PolicyHash: o.PolicyHash, ParamsHash: plan.Hash(canonical)}, nil
}

// Submit makes the run of the order, or finds it: the same identity is the same run whatever state it is
// in (ABI-18). A new run is staged and sent by the engine; Submit waits a few seconds for that and then
// answers with what is known.
func (e *Engine) Submit(ctx context.Context, o Order) (SubmitAnswer, error) {
	canonical, id, err := o.Identity()
	if err != nil {
		return SubmitAnswer{}, err
	}
	runID, planHash := id.RunID(), id.PlanHash()
	equivalent, known, err := e.Index.Equivalent(ctx, planHash, runID)
	if err != nil {
		return SubmitAnswer{}, err
	}
	if known {
		v, err := e.Store.View(ctx, runID)
		if err != nil {
			return SubmitAnswer{}, err
		}
		if o.Params.Spec.Local() {
			return e.again(ctx, v, equivalent)
		}
		return e.submitAnswer(v, true, equivalent), nil
	}
	if e.cfg.ReuseAcross && len(equivalent) > 0 && !o.Params.Spec.Local() {
		v, err := e.Store.View(ctx, equivalent[0])
		if err != nil {
			return SubmitAnswer{}, err
		}
		a := e.submitAnswer(v, true, equivalent)
		a.Warnings = append(a.Warnings, fmt.Sprintf("policy says reuse: this is run %s, made for the same plan under another policy", v.Run.ID))
		return a, nil
	}
	// Nothing is recorded for an image that is not there or not what it should be.
	if _, err := e.Images.Verify(ctx, o.Params.Spec.ImageDigest()); err != nil {
		return SubmitAnswer{}, err
	}
	if err := e.room(); err != nil {
		return SubmitAnswer{}, err
	}
	v, created, err := e.insert(ctx, o, runID, id, planHash, canonical)
	if err != nil {
		return SubmitAnswer{}, err
	}
	if !created {
		return e.submitAnswer(v, true, equivalent), nil
	}
	changes, stop := e.listen(runID)
	defer stop()
	e.hand(v, canonical)
	e.work.add(runID)
	e.poke()
	v, err = e.wait(ctx, v, changes, e.cfg.SubmitWait, func(v View) bool { return sentOrOver(v, o.Params.Spec) })
	if err != nil {
		return SubmitAnswer{}, err
	}
	return e.submitAnswer(v, false, equivalent), nil
}

// room refuses what would begin: the rest of the disk is for what has begun.
func (e *Engine) room() error {
	if e.Room == nil {
		return nil
	}
	return e.Room()
}

func (e *Engine) insert(ctx context.Context, o Order, runID string, id plan.Identity, planHash string, canonical []byte) (View, bool, error) {
	r := Run{
		ID: runID, ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion, ContractVersion: o.ContractVersion, PackHash: o.PackHash,
		PolicyHash: o.PolicyHash, ParamsHash: id.ParamsHash, PlanHash: planHash, ProjectID: o.Params.ProjectID, Actor: o.Actor,
		State: Queued, Phase: Staging, AttemptN: 1, Warnings: e.cfg.Warnings, CreatedAt: e.Now(), UpdatedAt: e.Now(),
	}
	sub := newSubmission(runID, 1, e.Now())
	first := View{Run: r}
	result, err := plan.Marshal(e.submitAnswer(first, false, nil))
	if err != nil {
		return View{}, false, err
	}
	r.ResultJSON = result
	var inputs []Link
	for _, in := range o.Params.Spec.IO.Inputs {
		inputs = append(inputs, Link{Role: in.Role, ArtifactID: in.ArtifactID, Relpath: in.DestRelpath})
	}
	return e.Store.Insert(ctx, New{Run: r, Submission: sub, Params: canonical, Policy: o.Policy, Pack: o.Pack, Inputs: inputs,
		Event: Event{Type: "run.created", Data: map[string]any{"tool_id": o.ToolID, "params_hash": id.ParamsHash, "policy_hash": o.PolicyHash, "plan_hash": planHash, "actor": o.Actor}}})
}
