package app

import (
	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// several reports whether a caller can choose between clusters.
func (g *Gateway) several() bool { return len(g.Site.Clusters()) > 1 }

// cluster returns the cluster for a new run: the one that the caller names, or the one that policy picks.
func (g *Gateway) cluster(named string) (*site.Site, error) {
	if named == "" {
		name, err := g.Policy.PickSite(g.Site.Names(), func(name string) bool { return g.Sites.Away(name) != nil })
		return g.Site.Cluster(name), err
	}
	s := g.Site.Cluster(named)
	switch {
	case s != nil:
		return s, g.Policy.AllowSite(named)
	case named == site.Local:
		return nil, badSite("POLICY-LOCAL", "a docker plan", site.Local+" is the gateway's own host, and this is a plan for Slurm",
			"name one of the sites "+g.Site.Title()+", or none")
	}
	hint := plan.DidYouMean(named, g.Site.Names())
	if hint == "" {
		hint = "name one of them, or none"
	}
	return nil, badSite("SITE-UNKNOWN", "a site of this gateway: "+g.Site.Title(), `there is no site "`+named+`"`, hint)
}

func badSite(code, rule, msg, hint string) error {
	return fault.Invalid("the run cannot go to the site that was named",
		fault.Problem{Code: code, Field: "site", Rule: rule, Msg: msg, Hint: hint})
}

// packEnv returns the environment that turns a call of a pack into a plan, and the sites that the run may go to, with
// the reason for them.
func (g *Gateway) packEnv(p *toolpack.Pack, asks callAsks) (env toolpack.Env, list []*site.Site, why string, err error) {
	named := asks.Site
	env = toolpack.Env{Resources: asks.Resources, Image: g.Domain.Lock().Digest, Passthrough: g.Policy.Env,
		Local: g.pickLocal(p.ToolName(), p.Image())}
	switch {
	case p.PlanKind() == toolpack.KindDocker:
		list = []*site.Site{g.Site.LocalSite()}
		if named != "" && named != site.Local {
			err = badSite("POLICY-LOCAL", site.Local+", or none", "the tool makes docker plans, which run on the gateway's own host only",
				"leave the site out")
		}
	case p.PlanKind() == toolpack.KindHybrid && named == site.Local:
		list, env.Local = []*site.Site{g.Site.LocalSite()}, func(plan.Spec, int64) bool { return true } // policy judges the plan later
	default:
		if named != "" {
			env.Local = nil
		}
		list, why, err = g.candidates(named)
	}
	if err == nil {
		env.Bind = bindVersion(list, p)
	}
	return env, list, why, err
}
