package app

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// This file finds what an approval covers beyond the arguments of a call, see [gate.Coverage].

// coversOrder returns the coverage of a call that submits an order.
func (g *Gateway) coversOrder(o run.Order) (gate.Coverage, error) {
	canonical, err := o.Params.Canonical()
	if err != nil {
		return gate.Coverage{}, err
	}
	c := g.coversJob(o.Params, o.Placement, o.Site)
	if o.Pick != nil { // the approval holds for each site: the choice may change before the run is created
		all := func(of func(run.Option) string) string {
			var list []string
			for _, x := range o.Options {
				if s := of(x); !slices.Contains(list, s) {
					list = append(list, s)
				}
			}
			return strings.Join(list, " or ")
		}
		c.Site = all(func(x run.Option) string { return x.Site })
		c.Partition = all(func(x run.Option) string { return x.Placement.Partition })
		c.Account = all(func(x run.Option) string { return x.Placement.Account })
		c.QOS = all(func(x run.Option) string { return plan.OrBlank(x.Placement.QOS) })
	}
	c.PackHash, c.ParamsHash = o.PackHash, plan.Hash(canonical)
	return c, nil
}

// coversJob returns the coverage of a job with these params. at is its placement, nil where the params have all of
// it.
func (g *Gateway) coversJob(p plan.Params, at *plan.Placement, site string) gate.Coverage {
	where := p.Spec.Placement
	if at != nil {
		where = *at
	}
	image := p.Spec.Execution.Container.Image
	c := gate.Coverage{ProjectID: p.ProjectID, Site: site, Image: g.Domain.Lock().NameOf(image), ImageDigest: "sha256:" + p.Spec.ImageDigest(),
		Resources: &p.Spec.Resources, ExecutedAs: p.ExecutedAs}
	if !p.Docker {
		c.Partition, c.Account, c.QOS, c.Constraint = where.Partition, where.Account, plan.OrBlank(where.QOS), plan.OrBlank(where.Constraint)
	}
	return c
}

// coversSubmit returns the coverage of a submitted plan.
func (g *Gateway) coversSubmit(ctx context.Context, c gate.Call) (gate.Coverage, error) {
	var a SubmitArgs
	if err := c.Into(&a); err != nil {
		return gate.Coverage{}, err
	}
	o, _, err := g.planOrder(ctx, c, a)
	if err != nil {
		return gate.Coverage{}, err
	}
	return g.coversOrder(o)
}

// startsRetry returns the tool of a call that starts another attempt of a run.
func (g *Gateway) startsRetry(ctx context.Context, c gate.Call) ([]string, error) {
	var a RetryArgs
	if err := c.Into(&a); err != nil {
		return nil, err
	}
	v, err := g.Ledger.View(ctx, a.RunID)
	if fault.Is(err, fault.NotFound) {
		return nil, nil // the run of a call; the handler reports it
	}
	if v.Waiting != nil { // its own call asks for the approval when the run can start
		return nil, err
	}
	return []string{v.Run.ToolName}, err
}

// coversRetry returns the coverage of a call that starts another attempt of a run.
func (g *Gateway) coversRetry(ctx context.Context, c gate.Call) (gate.Coverage, error) {
	var a RetryArgs
	if err := c.Into(&a); err != nil {
		return gate.Coverage{}, err
	}
	v, err := g.Ledger.View(ctx, a.RunID)
	if err != nil {
		return gate.Coverage{}, err
	}
	if v.Waiting != nil {
		return gate.Coverage{ProjectID: v.Run.ProjectID, ExecutedAs: v.Run.ExecutedAs, ParamsHash: v.Run.ParamsHash}, nil
	}
	if !run.Retryable(v, a.After) {
		return gate.Coverage{Waits: true}, nil // it opens no attempt; the handler reports why
	}
	return g.coversAttempt(ctx, v, a.Resources)
}

// coversAttempt returns the coverage of the attempt that a retry of a run opens.
func (g *Gateway) coversAttempt(ctx context.Context, v run.View, more plan.MoreResources) (gate.Coverage, error) {
	canonical, err := g.Ledger.Params(ctx, v.Run.ParamsHash)
	if err != nil {
		return gate.Coverage{}, err
	}
	p, err := plan.DecodeParams(canonical)
	if err != nil {
		return gate.Coverage{}, err
	}
	at := v.Attempt.Placement
	if s := g.Site.Cluster(v.Run.Site); at != nil && s != nil {
		now := SiteDefaults(s)
		now.Account = at.Account // as for the first attempt
		at = new(p.Spec.Placement.Resolve(now))
	}
	if g.Sites != nil {
		if p.Spec.Resources, err = g.Sites.NextResources(ctx, v.Run.ID, more); err != nil {
			return gate.Coverage{}, err
		}
	}
	out := g.coversJob(p, at, v.Run.Site)
	out.PackHash, out.ParamsHash, out.Tool, out.Attempt = v.Run.PackHash, v.Run.ParamsHash, v.Run.ToolName, v.Run.AttemptN+1
	return out, nil
}

// coversProject returns the coverage of any other call: the project that it concerns.
func (g *Gateway) coversProject(ctx context.Context, c gate.Call, o Operation) (out gate.Coverage, err error) {
	args, _ := c.Value.(map[string]any)
	for _, name := range []string{"run_id", "artifact_id"} {
		if id, ok := args[name].(string); ok {
			if out.ProjectID, err = g.Ledger.Owner(ctx, id); fault.Is(err, fault.NotFound) {
				return out, nil // the run of a call, which belongs to no project
			}
			if err == nil && name == "run_id" {
				var v run.View
				v, err = g.Ledger.View(ctx, id)
				out.ExecutedAs = v.Run.ExecutedAs
			}
			return out, err
		}
	}
	if !o.siteWide() && bytes.Contains(o.Does.input(), []byte(`"project_id"`)) {
		named, _ := args["project_id"].(string)
		out.ProjectID, err = g.projectOf(c, named)
	}
	return out, err
}
