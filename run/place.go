package run

import (
	"context"

	"slurmgate/plan"
)

// A plan holds the placement as the caller asked for it. What it leaves to the site is resolved for each attempt: the
// partition and the QOS from the site's settings when the attempt is opened, the account from the first attempt,
// because the caller chose it.

// placed returns the params with the placement and the resources of an attempt.
func placed(p plan.Params, a Attempt) plan.Params {
	if a.Placement != nil {
		p.Spec.Placement = *a.Placement
	}
	p.Spec.Resources = a.resources(p)
	return p
}

// nextPlacement returns where the attempt after the current one goes. asked are the run's params as stored.
func (e *Engine) nextPlacement(v View, asked plan.Params) *plan.Placement {
	if v.Attempt.Placement == nil {
		return nil // the params are complete
	}
	site := e.cfg.Placement
	site.Account = v.Attempt.Placement.Account
	at := asked.Spec.Placement.Resolve(site)
	return &at
}

// storedParams reads the canonical params of a run.
func (e *Engine) storedParams(ctx context.Context, v View) (plan.Params, error) {
	canonical, err := e.Store.Params(ctx, v.Run.ParamsHash)
	if err != nil {
		return plan.Params{}, err
	}
	return plan.DecodeParams(canonical)
}

// params reads what the current attempt executes: the canonical params, placed.
func (e *Engine) params(ctx context.Context, v View) (plan.Params, error) {
	p, err := e.storedParams(ctx, v)
	return placed(p, v.Attempt), err
}

// withPlacement adds the placement of an attempt to the data of its event.
func withPlacement(data map[string]any, at *plan.Placement) map[string]any {
	if at != nil {
		data["placement"] = *at
	}
	return data
}

// withUser adds the user that the run is executed as to the data of an event.
func withUser(data map[string]any, o Order) map[string]any {
	if o.Params.ExecutedAs != "" {
		data["executed_as"] = o.Params.ExecutedAs
	}
	return data
}

// withSite adds why policy's rule picked the site to the data of an event.
func withSite(data map[string]any, o Order) map[string]any {
	if o.Pick != nil {
		data["site_why"] = o.SiteWhy
	}
	return data
}
