package run

import (
	"context"
	"encoding/json"
	"strings"

	"slurmgate/plan"
)

// Preview is the result of a dry run of a submit. An attempt's token is random and created with it, so the script shown
// has a row of zeros in its place; everything else is as it would be sent.
type Preview struct {
	RunID          string          `json:"run_id"`
	Site           string          `json:"site"`                  // the job's site, now or after a submit
	SiteWhy        string          `json:"site_why"`              // why this site
	Sites          []Considered    `json:"sites"`                 // all sites that policy's rule (sites.pick) chose from
	ExecutedAs     string          `json:"executed_as,omitempty"` // the cluster's Unix user whose job it is; absent: the gateway's own
	ParamsHash     string          `json:"params_hash"`
	PolicyHash     string          `json:"policy_hash"`
	PlanHash       string          `json:"plan_hash"`
	Exists         bool            `json:"exists"` // the run exists: a submit would return it
	State          *State          `json:"state"`  // of that run
	EquivalentRuns []string        `json:"equivalent_runs"`
	Params         json.RawMessage `json:"params"`    // canonical: the plan and the other parts of the run's identity
	Placement      plan.Placement  `json:"placement"` // where the job would go: what the plan asks for, with the site's defaults
	Script         string          `json:"script"`
}

// Unchanged reports that the run existed: nothing was done.
func (a SubmitAnswer) Unchanged() bool { return a.Replayed }

// previewToken replaces the token that only a real attempt has.
var previewToken = strings.Repeat("0", 32)

// preview returns what [Engine.Submit] would do with the order, without any effect: no row, no file, no query of Slurm.
func (e *Engine) preview(ctx context.Context, o Order, f lookup) (Preview, error) {
	id := f.id
	p := Preview{RunID: id.RunID(), Site: e.cfg.Site, ParamsHash: id.ParamsHash, PolicyHash: id.PolicyHash, PlanHash: id.PlanHash(),
		Params: f.canonical, EquivalentRuns: orEmpty(f.equivalent), SiteWhy: o.SiteWhy, Sites: o.considered,
		ExecutedAs: o.Params.ExecutedAs}
	if p.Sites == nil {
		p.Sites = []Considered{}
	}
	if p.Exists = f.view != nil; p.Exists {
		v := f.view
		p.SiteWhy = "the run exists, and a run stays on its site"
		p.ExecutedAs = v.Run.ExecutedAs
		p.RunID, p.State, p.PolicyHash, p.ParamsHash, p.PlanHash = v.Run.ID, &v.Run.State, v.Run.PolicyHash, v.Run.ParamsHash, v.Run.PlanHash
		if v.Run.ParamsHash != id.ParamsHash { // made by a request that named another site, or none
			var err error
			if p.Params, err = e.Store.Params(ctx, v.Run.ParamsHash); err != nil {
				return p, err
			}
		}
	}
	image, err := e.verifyProgram(ctx, o.Params.Spec)
	if err != nil {
		return p, err
	}
	params := placed(o.Params, Attempt{Placement: o.Placement})
	p.Placement = params.Spec.Placement
	first := View{Run: Run{ID: p.RunID, ToolID: o.ToolID, Principal: o.Asking.Principal, AttemptN: 1, ExecutedAs: p.ExecutedAs},
		Attempt:    Attempt{RunID: p.RunID, N: 1, Token: previewToken},
		Submission: Submission{Token: previewToken, JobName: JobName(p.RunID, 1, previewToken)}}
	inputs, err := e.files(ctx, params.Spec.IO.Inputs)
	if err != nil {
		return p, err
	}
	script, _, err := e.Renderer.Render(e.fullJob(first, params, copies(inputs), image))
	p.Script = string(script)
	return p, err
}
