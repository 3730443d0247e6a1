package run

import (
	"context"
	"encoding/json"
	"strings"

	"slurmgate/plan"
)

// Preview is what a submit would do. An attempt's token is random and created with it, so the script shown has a row of zeros in
// its place; everything else is as it would be sent.
type Preview struct {
	RunID          string          `json:"run_id"`
	ParamsHash     string          `json:"params_hash"`
	PolicyHash     string          `json:"policy_hash"`
	PlanHash       string          `json:"plan_hash"`
	Exists         bool            `json:"exists"` // the run exists: a submit would return it
	State          *State          `json:"state"`  // of that run
	EquivalentRuns []string        `json:"equivalent_runs"`
	Params         json.RawMessage `json:"params"`    // canonical: the plan and what else the run is the same by
	Placement      plan.Placement  `json:"placement"` // where the job would go: what the plan asks for, with the site's defaults
	Script         string          `json:"script"`
}

// Unchanged reports that the run existed: nothing was done.
func (a SubmitAnswer) Unchanged() bool { return a.Replayed }

// previewToken replaces the token that only a real attempt has.
var previewToken = strings.Repeat("0", 32)

// Preview returns what [Engine.Submit] would do with the order, without any effect: no row, no file, no query of Slurm.
func (e *Engine) Preview(ctx context.Context, o Order) (Preview, error) {
	canonical, id, err := o.Identity()
	if err != nil {
		return Preview{}, err
	}
	p := Preview{RunID: id.RunID(), ParamsHash: id.ParamsHash, PolicyHash: id.PolicyHash, PlanHash: id.PlanHash(), Params: canonical}
	sought, err := e.identities(o, id)
	if err != nil {
		return p, err
	}
	known, equivalent, err := e.Index.Find(ctx, sought)
	if err != nil {
		return p, err
	}
	p.EquivalentRuns = orEmpty(equivalent)
	if p.Exists = known != ""; p.Exists {
		p.RunID = known
		v, err := e.Store.View(ctx, p.RunID)
		if err != nil {
			return p, err
		}
		p.State, p.PolicyHash, p.ParamsHash, p.PlanHash = &v.Run.State, v.Run.PolicyHash, v.Run.ParamsHash, v.Run.PlanHash
		if v.Run.ParamsHash != id.ParamsHash { // made in an earlier form
			if p.Params, err = e.Store.Params(ctx, v.Run.ParamsHash); err != nil {
				return p, err
			}
		}
	}
	image, err := e.Images.Verify(ctx, o.Params.Spec.ImageDigest())
	if err != nil {
		return p, err
	}
	params := placed(o.Params, Attempt{Placement: o.Placement})
	p.Placement = params.Spec.Placement
	first := View{Run: Run{ID: p.RunID, AttemptN: 1}, Attempt: Attempt{RunID: p.RunID, N: 1, Token: previewToken},
		Submission: Submission{Token: previewToken, JobName: JobName(p.RunID, 1, previewToken)}}
	script, _, err := e.Renderer.Render(e.fullJob(first, params, image))
	p.Script = string(script)
	return p, err
}
