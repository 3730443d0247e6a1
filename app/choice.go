package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// This file picks the site of a new run by policy's rule (sites.pick). Nothing here is part of a run's identity.

// candidates returns the sites that a new run may go to, and why. That is one site if the caller names it or policy
// has no rule, else all sites that the rule chooses from.
func (g *Gateway) candidates(named string) (list []*site.Site, why string, err error) {
	if named != "" || g.Policy.Sites.Pick == "" {
		s, err := g.cluster(named)
		switch {
		case err != nil:
			return nil, "", err
		case named != "":
			why = "the caller named it"
		case !g.several():
			why = "it is the only site"
		case len(g.Policy.Sites.Prefer) > 0:
			why = "the first site of sites.prefer in policies.yaml that is not away"
		default:
			why = "the first site that policy allows"
		}
		return []*site.Site{s}, why, nil
	}
	names, err := g.Policy.Candidates(g.Site.Names())
	for _, name := range names {
		list = append(list, g.Site.Cluster(name))
	}
	return list, "the only site that policy allows", err
}

// bindVersion returns the version of a bind for the identity of a run of the pack: that of the first candidate that
// offers all binds of the pack, whatever the state of the sites. Other candidates fit only if they have the same
// version.
func bindVersion(list []*site.Site, p *toolpack.Pack) func(name string) (string, bool) {
	for _, s := range list {
		if !slices.ContainsFunc(p.Binds(), func(name string) bool { _, ok := s.BindVersion(name); return !ok }) {
			return s.BindVersion
		}
	}
	return list[0].BindVersion
}

// option is a site that a new run may go to.
type option struct {
	site   *site.Site
	at     *plan.Placement // the job's placement there; nil: the plan has all of it
	denied error           // policy forbids the run there
}

// judgeTime limits the wait for one of several sites to report what a caller may charge there.
const judgeTime = 2 * time.Second

// optionsOn returns an option for each site, with the result of judge: the job's placement there, and whether policy
// forbids it. With several sites, all are judged within judgeTime.
func optionsOn(ctx context.Context, sites []*site.Site, judge func(context.Context, *site.Site) (*plan.Placement, error)) []option {
	if len(sites) > 1 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, judgeTime)
		defer stop()
	}
	out := make([]option, len(sites))
	var all sync.WaitGroup
	for i, s := range sites {
		all.Go(func() {
			at, err := judge(ctx, s)
			out[i] = option{site: s, at: at, denied: err}
		})
	}
	all.Wait()
	return out
}

// aim sets the site of an order: the only option, or the one that policy's rule picks once the run is known to be
// new. It fails if policy forbids the run everywhere.
func (g *Gateway) aim(o run.Order, why string, options []option) (run.Order, error) {
	first := options[0]
	if !slices.ContainsFunc(options, func(x option) bool { return x.denied == nil }) {
		return o, first.denied
	}
	o.Site, o.Placement, o.SiteWhy = first.site.Name, first.at, why
	if len(options) == 1 {
		return o, nil
	}
	for _, x := range options {
		at := o.Params.Spec.Placement
		if x.at != nil {
			at = *x.at
		}
		o.Options = append(o.Options, run.Option{Site: x.site.Name, Placement: at})
	}
	o.Pick = func(ctx context.Context) (run.Picked, error) { return g.pick(ctx, o, options) }
	return o, nil
}

// siteReport is the observed state of an option.
type siteReport struct {
	policy.Candidate
	mismatches []string
	wait       string
	missing    error // the error if the image is not there
}

// pick picks one of several sites for a new run.
func (g *Gateway) pick(ctx context.Context, o run.Order, options []option) (run.Picked, error) {
	list := make([]siteReport, len(options))
	var checks sync.WaitGroup
	for i, x := range options { // in parallel: a slow site does not delay the checks of the others
		checks.Go(func() { list[i] = g.checkSite(ctx, o, x) })
	}
	checks.Wait()
	if err := g.addFigures(ctx, o, options, list); err != nil {
		return run.Picked{}, err
	}
	var candidates []policy.Candidate
	var out run.Picked
	for i, x := range options {
		list[i].Fits, list[i].Waits = len(list[i].mismatches) == 0, list[i].wait != ""
		candidates = append(candidates, list[i].Candidate)
		out.Sites = append(out.Sites, run.Considered{Site: x.site.Name, Fits: list[i].Fits, Why: list[i].why(g.Policy.Sites.Pick)})
	}
	n := g.Policy.Pick(candidates)
	if n < 0 {
		return out, noSiteFits(list, out.Sites)
	}
	out.Site, out.Placement = options[n].site.Name, options[n].at
	out.Why = "policy " + g.Policy.Sites.Pick + ": " + out.Sites[n].Why
	return out, nil
}

// why gives the reason for a site, or against it.
func (s siteReport) why(rule string) string {
	switch {
	case len(s.mismatches) > 0:
		return strings.Join(s.mismatches, "; ")
	case s.wait != "":
		return "the run fits and would wait: " + s.wait
	case rule == policy.MostFreeBudget:
		return fmt.Sprintf("the run fits; %.3g free RPCs a minute for each open run", s.Free)
	case rule == policy.WhereTheDataIs:
		return fmt.Sprintf("the run fits; %d bytes of its inputs lie there", s.InputBytes)
	}
	return "the run fits"
}

// checkSite checks whether a run fits a site, and whether it would wait there.
func (g *Gateway) checkSite(ctx context.Context, o run.Order, x option) (s siteReport) {
	not := func(format string, args ...any) { s.mismatches = append(s.mismatches, fmt.Sprintf(format, args...)) }
	switch {
	case fault.Is(x.denied, fault.Policy):
		not("policy forbids it: %s", problemsOf(x.denied))
	case x.denied != nil:
		not("it is not known what you may charge there (%s)", fault.CodeOf(x.denied))
	}
	for _, b := range o.Params.Tool.Asked() {
		switch v, ok := x.site.BindVersion(b.Name); {
		case !ok:
			not("it does not offer the folder %s", b.Name)
		case v != b.Version:
			not("it offers version %s of the folder %s, and the run reads version %s", v, b.Name, b.Version)
		}
	}
	state, _ := g.Sites.State(x.site.Name)
	if s.wait = waitsFor(state); state.Away {
		return s // there is no Slurm to ask
	}
	at := o.Params.Spec.Placement
	if x.at != nil {
		at = *x.at
	}
	if list := g.Sites.Partitions(ctx, x.site.Name); list != nil {
		s.mismatches = append(s.mismatches, mismatches(list, at.Partition, o.Params.Spec.Resources, x.site.Slurm.VerifyAllowanceSeconds)...)
	}
	if len(s.mismatches) > 0 {
		return s
	}
	switch err := g.Sites.HasImage(ctx, x.site.Name, o.Params.Spec.ImageDigest()); {
	case err == nil:
	case fault.Is(err, fault.NotFound):
		s.missing = err
		not("its image store does not have the image")
	case fault.Is(err, fault.Transport) && s.wait == "":
		s.wait = "its image store does not answer"
	case !fault.Is(err, fault.Transport):
		s.missing = err
		not("the image in its image store is not the pinned one")
	}
	return s
}

// waitsFor returns the reason why a new run would wait at a site; empty: it would not. Callers read it, so it names
// no host and no folder.
func waitsFor(s run.SiteState) string {
	switch s.Condition {
	case run.SiteDrained:
		return "the site is drained"
	case run.SiteIsAway:
		return "the site is away (" + fault.CodeOf(s.Problem) + ")"
	case run.SitePaused:
		return "Slurm takes no jobs for now (" + fault.CodeOf(s.Problem) + ")"
	}
	return ""
}

// problemsOf lists the rules that a denial names, in one line.
func problemsOf(err error) string {
	var out []string
	for _, p := range fault.ProblemsOf(err) {
		out = append(out, p.Msg+" ("+p.Rule+")")
	}
	if len(out) == 0 {
		return fault.Prose(err)
	}
	return strings.Join(out, "; ")
}

// mismatches returns the reasons why a job does not fit a partition; an empty name is Slurm's default.
func mismatches(list []run.Partition, name string, r plan.Resources, allowance int) (out []string) {
	i := slices.IndexFunc(list, func(p run.Partition) bool { return p.Name == name || name == "" && p.Default })
	if i < 0 {
		return []string{fmt.Sprintf("it has no partition %s", name)}
	}
	p := list[i]
	not := func(format string, args ...any) {
		out = append(out, "partition "+p.Name+" "+fmt.Sprintf(format, args...))
	}
	if !p.Up() {
		not("is not up")
	}
	if seconds := int64(r.TimeLimitSeconds + allowance); p.MaxSeconds > 0 && (seconds+59)/60*60 > p.MaxSeconds {
		not("allows %d s, and the job asks for %d s", p.MaxSeconds, (seconds+59)/60*60)
	}
	if r.CPUs > p.CPUs {
		not("has nodes of at most %d CPUs, and the job asks for %d", p.CPUs, r.CPUs)
	}
	if r.MemMB > p.MemMB {
		not("has nodes of at most %d MiB, and the job asks for %d MiB", p.MemMB, r.MemMB)
	}
	if r.GPUs == nil {
		return out
	}
	if *r.GPUs > p.GPUs {
		not("has nodes of at most %d GPUs, and the job asks for %d", p.GPUs, *r.GPUs)
	} else if r.GPUType != nil && !slices.Contains(p.GPUTypes, *r.GPUType) {
		not("has no GPU of type %s", *r.GPUType)
	}
	return out
}

// addFigures adds the figures that the rule compares.
func (g *Gateway) addFigures(ctx context.Context, o run.Order, options []option, list []siteReport) error {
	switch g.Policy.Sites.Pick {
	case policy.MostFreeBudget:
		open, err := g.Ledger.OpenBySite(ctx, nil)
		if err != nil {
			return err
		}
		for i, x := range options {
			runs := int64(1)
			for _, n := range open[x.site.Name] {
				runs += n
			}
			free := float64(x.site.Budget.RPCPerMinute)
			if state, _ := g.Sites.State(x.site.Name); state.Budget != nil && state.Budget.Burst > 0 {
				free *= float64(state.Budget.Left) / float64(state.Budget.Burst)
			}
			list[i].Free = free / float64(runs)
		}
	case policy.WhereTheDataIs:
		var sums []string
		for _, in := range o.Params.Spec.IO.Inputs {
			sums = append(sums, in.ChecksumSHA256)
		}
		slices.Sort(sums)
		bytes, err := g.Ledger.BytesBySite(ctx, slices.Compact(sums))
		if err != nil {
			return err
		}
		for i, x := range options {
			list[i].InputBytes = bytes[x.site.Name]
		}
	}
	return nil
}

// noSiteFits returns the refusal of a run that fits no site. Where the only reason everywhere is the missing image,
// it is the error about the image.
func noSiteFits(list []siteReport, considered []run.Considered) error {
	if !slices.ContainsFunc(list, func(s siteReport) bool { return s.missing == nil }) {
		return list[0].missing
	}
	var problems []fault.Problem
	for _, x := range considered {
		problems = append(problems, fault.Problem{Code: "SITE-MISFIT", Field: "site", Rule: "a site that the run fits",
			Msg: "site " + x.Site + ": " + x.Why})
	}
	return fault.Invalid("the run fits no site of this gateway", problems...).
		WithNext("ask for less, or ask the administrator: each site says why the run does not fit")
}
