package app

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// clusterOf is the state of a cluster of a test; a change applies to the next choice.
type clusterOf struct {
	partitions []run.Partition
	image      error // the error of its image store, if that lacks the image
	budget     run.Budget
	closed     error
}

// Verify implements run.Images.
func (c *clusterOf) Verify(context.Context, string) (string, error) {
	return "/shared/images/x", c.image
}

// ExecArgs implements run.Images.
func (*clusterOf) ExecArgs(plan.Spec, []plan.Bind, []run.Placed, string, string, string) []string {
	return nil
}

// choosing returns a gateway with the clusters alpha and beta, in the states that change sets.
func choosing(t *testing.T, policyText string, change func(alpha, beta *clusterOf)) *Gateway {
	t.Helper()
	g := twoSites(t, policyText)
	large := func(name string) []run.Partition {
		return []run.Partition{{Name: name, State: "UP", CPUs: 64, MemMB: 1 << 18, GPUs: 4, GPUTypes: []string{"a100"}}}
	}
	clusters := map[string]*clusterOf{"alpha": {partitions: large("of-alpha"), budget: run.Budget{PerMinute: 60, Left: 20, Burst: 20}},
		"beta": {partitions: large("of-beta"), budget: run.Budget{PerMinute: 60, Left: 20, Burst: 20}}}
	change(clusters["alpha"], clusters["beta"])
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	var sites []run.Site
	for _, s := range g.Site.Clusters() {
		c := clusters[s.Name]
		sites = append(sites, run.Site{Config: run.Config{Site: s.Name, Placement: SiteDefaults(s), SubmitWait: time.Nanosecond},
			Parts: run.Parts{Store: g.Ledger, Index: g.Ledger.Index(s.Name), Objects: g.Store, Log: log, Now: time.Now},
			Open: func(context.Context) (run.Parts, error) {
				return run.Parts{Workspace: noWorkspace{}, Images: c, Renderer: placement{}, Budget: func() run.Budget { return c.budget },
					Partitions: func(context.Context) ([]run.Partition, error) { return c.partitions, nil }}, c.closed
			}})
	}
	g.Sites = run.NewSites(sites...)
	g.Sites.Open(t.Context(), "alpha", "beta")
	return g
}

// flagstat returns the order of a run of samtools.flagstat, which asks for 2 CPUs, 2048 MiB and 900 s.
func (g *Gateway) flagstat(t *testing.T, extra string) (run.Order, error) {
	t.Helper()
	p, err := g.Domain.Packs().Get("samtools.flagstat")
	must(t, err)
	call := gate.Call{Args: []byte(`{"bam":"` + demoBAM + `"` + extra + `}`), Value: map[string]any{"bam": demoBAM},
		Caller: gate.Caller{Principal: gate.Principal{Rights: gate.RightsOf([]string{gate.CapSlurm}, []string{plan.ProjectID("demo")})}}}
	o, _, err := g.packOrder(t.Context(), call, p)
	return o, err
}

// The first site that a run fits gets it, and a dry run shows for each other site the reason against it.
//
// proves SITE-07
func TestFirstThatFits(t *testing.T) {
	const rule = "version: 1\nsites: {pick: first_that_fits}\n"
	fits := "the run fits"
	drain := func(names ...string) func(*Gateway) {
		return func(g *Gateway) {
			var list []run.Drain
			for _, name := range names {
				list = append(list, run.Drain{Site: name, Since: time.Now()})
			}
			g.Sites.SetDrains(list)
		}
	}
	for name, x := range map[string]struct {
		policy      string
		world       func(alpha, beta *clusterOf)
		then        func(*Gateway)
		site        string
		alpha, beta string
	}{
		"both fit":       {rule, nil, nil, "alpha", fits, fits},
		"policy's order": {"version: 1\nsites: {prefer: [beta, alpha], pick: first_that_fits}\n", nil, nil, "beta", fits, fits},
		"no partition":   {rule, func(a, _ *clusterOf) { a.partitions[0].Name = "other" }, nil, "beta", "it has no partition of-alpha", fits},
		"partition down": {rule, func(a, _ *clusterOf) { a.partitions[0].State = "DOWN" }, nil, "beta", "partition of-alpha is not up", fits},
		"too short": {rule, func(a, _ *clusterOf) { a.partitions[0].MaxSeconds = 900 }, nil, "beta",
			"partition of-alpha allows 900 s, and the job asks for 1020 s", fits},
		"long enough": {rule, func(a, _ *clusterOf) { a.partitions[0].MaxSeconds = 1020 }, nil, "alpha", fits, fits},
		"small nodes": {rule, func(a, _ *clusterOf) { a.partitions[0].CPUs, a.partitions[0].MemMB = 1, 2047 }, nil, "beta",
			"partition of-alpha has nodes of at most 1 CPUs, and the job asks for 2; partition of-alpha has nodes of at most 2047 MiB, " +
				"and the job asks for 2048 MiB", fits},
		"nothing is known": {rule, func(a, _ *clusterOf) { a.partitions = nil }, nil, "alpha", fits, fits},
		"no image": {rule, func(a, _ *clusterOf) { a.image = fault.New(fault.NotFound, "image_missing", "not in /secret") }, nil, "beta",
			"its image store does not have the image", fits},
		"wrong image": {rule, func(a, _ *clusterOf) { a.image = fault.New(fault.Conflict, "image_mismatch", "/secret") }, nil, "beta",
			"the image in its image store is not the pinned one", fits},
		"policy forbids one": {rule + "slurm: {partitions_allowlist: [of-beta]}\n", nil, nil, "beta",
			`policy forbids it: "of-alpha" is not allowed (policy slurm.partitions_allowlist: of-beta)`, fits},
		"drained": {rule, nil, drain("alpha"), "beta", "the run fits and would wait: the site is drained", fits},
		"both drained": {rule, nil, drain("alpha", "beta"), "alpha",
			"the run fits and would wait: the site is drained", "the run fits and would wait: the site is drained"},
		"away": {rule, func(a, _ *clusterOf) {
			a.closed = fault.New(fault.Transport, "x", "login.example does not answer")
		}, nil, "beta",
			"the run fits and would wait: the site is away (site_away)", fits},
		"the other has no room and one is away": {rule, func(a, b *clusterOf) {
			a.closed, b.partitions[0].CPUs = fault.New(fault.Transport, "x", "y"), 1
		}, nil, "alpha", "the run fits and would wait: the site is away (site_away)",
			"partition of-beta has nodes of at most 1 CPUs, and the job asks for 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if x.world == nil {
				x.world = func(_, _ *clusterOf) {}
			}
			g := choosing(t, x.policy, x.world)
			if x.then != nil {
				x.then(g)
			}
			o, err := g.flagstat(t, "")
			must(t, err)
			p, err := o.Pick(t.Context())
			if err != nil || p.Site != x.site || p.Placement.Partition != "of-"+x.site || !strings.HasPrefix(p.Why, "policy first_that_fits: ") {
				t.Errorf("Pick: site %q because %q, %v; want %s", p.Site, p.Why, err, x.site)
			}
			got := map[string]string{}
			for _, c := range p.Sites {
				got[c.Site] = c.Why
				if c.Fits != strings.HasPrefix(c.Why, fits) {
					t.Errorf("%s fits: %t, but the reason is %q", c.Site, c.Fits, c.Why)
				}
			}
			if want := map[string]string{"alpha": x.alpha, "beta": x.beta}; !maps.Equal(got, want) {
				t.Errorf("%v\nwant %v", got, want)
			}
		})
	}
}

// A run that fits no site is refused with the reason for each; where only the image is missing everywhere, the error
// is about the image. A run that exists is found all the same.
//
// proves SITE-07 ABI-18
func TestFitsNowhere(t *testing.T) {
	const rule = "version: 1\nsites: {pick: first_that_fits}\n"
	small := func(c *clusterOf) { c.partitions[0].CPUs = 1 }
	g := choosing(t, rule, func(alpha, beta *clusterOf) { small(alpha); small(beta) })
	o, err := g.flagstat(t, "")
	must(t, err)
	_, err = g.Sites.Submit(t.Context(), o)
	if p := fault.ProblemsOf(err); len(p) != 2 || p[0].Code != "SITE-MISFIT" ||
		!strings.Contains(p[0].Msg, "site alpha: partition of-alpha") ||
		!strings.Contains(p[1].Msg, "site beta: partition of-beta") || !fault.Is(err, fault.Validation) {
		t.Errorf("%v", err)
	}
	named, err := g.flagstat(t, `,"site":"beta"`)
	if err != nil || named.Pick != nil || named.SiteWhy != "the caller named it" {
		t.Fatalf("a run for beta: reason %q, %v; want no pick", named.SiteWhy, err)
	}
	if a, err := g.Sites.Submit(t.Context(), named); err != nil || a.Site != "beta" { // a named site is not checked: Slurm decides
		t.Errorf("Submit for beta: site %q, %v", a.Site, err)
	}
	missing := fault.New(fault.NotFound, "image_missing", "no such image")
	g = choosing(t, rule, func(alpha, beta *clusterOf) { alpha.image, beta.image = missing, missing })
	if o, err = g.flagstat(t, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Sites.Submit(t.Context(), o); fault.CodeOf(err) != "image_missing" {
		t.Error(err)
	}
	g = choosing(t, rule+"slurm: {partitions_allowlist: [x]}\n", func(_, _ *clusterOf) {})
	if _, err := g.flagstat(t, ""); fault.CodeOf(err) != "POLICY-PARTITION" {
		t.Error(err)
	}
	clusters := map[string]*clusterOf{}
	g = choosing(t, rule, func(alpha, beta *clusterOf) { clusters["alpha"], clusters["beta"] = alpha, beta })
	if o, err = g.flagstat(t, ""); err != nil {
		t.Fatal(err)
	}
	first, err := g.Sites.Submit(t.Context(), o)
	if err != nil || first.Site != "alpha" {
		t.Fatal(first, err)
	}
	g.Sites.SetDrains([]run.Drain{{Site: "alpha"}, {Site: "beta"}})
	clusters["alpha"].image, clusters["beta"].image = missing, missing
	if again, err := g.Sites.Submit(t.Context(), o); err != nil || again.RunID != first.RunID || !again.Replayed {
		t.Errorf("Submit of an existing run: %s, replayed %t, %v; want %s again", again.RunID, again.Replayed, err, first.RunID)
	}
}

// The site with the most free budget for each open run gets the run; a site with a spent budget or many runs does
// not.
//
// proves SITE-07
func TestMostFreeBudget(t *testing.T) {
	const rule = "version: 1\nsites: {pick: most_free_budget}\n"
	pick := func(g *Gateway) string {
		t.Helper()
		o, err := g.flagstat(t, "")
		must(t, err)
		p, err := o.Pick(t.Context())
		if err != nil || !strings.Contains(p.Sites[0].Why, "free RPCs a minute for each open run") {
			t.Fatalf("Pick: %v, %v; want the free RPCs as the reason", p.Sites, err)
		}
		return p.Site
	}
	if got := pick(choosing(t, rule, func(a, _ *clusterOf) { a.budget.Left = 4 })); got != "beta" {
		t.Error(got)
	}
	g := choosing(t, rule, func(_, _ *clusterOf) {})
	g.Site.Cluster("alpha").Budget.RPCPerMinute = 120
	if got := pick(g); got != "alpha" {
		t.Error(got)
	}
	o, err := g.flagstat(t, `,"site":"alpha"`)
	must(t, err)
	if a, err := g.Sites.Submit(t.Context(), o); err != nil || a.Site != "alpha" {
		t.Fatal(a, err)
	}
	open, err := g.Ledger.OpenBySite(t.Context(), nil)
	if err != nil || open["alpha"][run.Staging] == 0 {
		t.Fatal(open, err)
	}
	g.Site.Cluster("alpha").Budget.RPCPerMinute = 60 // with its open run it is now the busier one
	if got := pick(g); got != "beta" {
		t.Error(got)
	}
}

// A run goes where its inputs are, if that site executes runs.
//
// proves SITE-07
func TestWhereTheDataIs(t *testing.T) {
	g := choosing(t, "version: 1\nsites: {pick: where_the_data_is}\n", func(_, _ *clusterOf) {})
	named, err := g.flagstat(t, `,"site":"beta"`)
	must(t, err)
	if _, err := g.Sites.Submit(t.Context(), named); err != nil {
		t.Fatal(err)
	}
	o, err := g.flagstat(t, "")
	must(t, err)
	p, err := o.Pick(t.Context())
	if err != nil || p.Site != "beta" || !strings.Contains(p.Why, "bytes of its inputs lie there") {
		t.Errorf("Pick: site %q because %q, %v; want beta for its inputs", p.Site, p.Why, err)
	}
	g.Sites.SetDrains([]run.Drain{{Site: "beta"}})
	if p, err := o.Pick(t.Context()); err != nil || p.Site != "alpha" {
		t.Errorf("Pick with beta drained: site %q, %v; want alpha", p.Site, err)
	}
}

// An approval of a run whose site a rule picks holds for every site that the rule may pick.
//
// proves SITE-07
func TestApprovalOfAPick(t *testing.T) {
	for policyText, want := range map[string][2]string{
		"version: 1\nsites: {pick: first_that_fits}\n":                         {"alpha or beta", "of-alpha or of-beta"},
		"version: 1\nsites: {allowlist: [beta], pick: first_that_fits}\n":      {"beta", "of-beta"},
		"version: 1\nsites: {prefer: [beta, alpha], pick: most_free_budget}\n": {"beta or alpha", "of-beta or of-alpha"},
	} {
		g := choosing(t, policyText, func(_, _ *clusterOf) {})
		o, err := g.flagstat(t, "")
		must(t, err)
		if c, err := g.coversOrder(o); err != nil || c.Site != want[0] || c.Partition != want[1] || c.Account != "research" {
			t.Errorf("coversOrder: site %q, partition %q, account %q, %v; want %v", c.Site, c.Partition, c.Account, err, want)
		}
	}
}

// The version of a folder in the identity of a run does not depend on the state of the sites: it is that of the first site that offers all
// folders of the pack, and sites with another version do not fit.
//
// proves SITE-07 ABI-19
func TestBindsOfSeveralSites(t *testing.T) {
	g := choosing(t, "version: 1\nsites: {pick: first_that_fits}\n", func(_, _ *clusterOf) {})
	o, err := g.flagstat(t, "")
	must(t, err)
	asks := func(binds ...plan.Bind) run.Picked {
		t.Helper()
		with := o
		extra := *o.Params.Tool
		extra.Binds = binds
		with.Params.Tool = &extra
		options := []option{{site: g.Site.Cluster("alpha"), at: o.Placement}, {site: g.Site.Cluster("beta"), at: o.Placement}}
		p, err := g.pick(t.Context(), with, options)
		if err != nil && fault.CodeOf(err) != "SITE-MISFIT" {
			t.Fatal(err)
		}
		return p
	}
	why := func(p run.Picked, i int) string { return p.Sites[i].Why }
	if p := asks(plan.Bind{Name: "ref", Version: "1"}); p.Site != "" || why(p, 0) != "it does not offer the folder ref" {
		t.Errorf("Pick without the folder: site %q, reasons %v", p.Site, p.Sites)
	}
	for name, version := range map[string]string{"alpha": "2", "beta": "1"} {
		g.Site.Cluster(name).Apptainer.Binds = []site.Bind{{Name: "ref", Version: version}}
	}
	p := asks(plan.Bind{Name: "ref", Version: "1"})
	if why(p, 0) != "it offers version 2 of the folder ref, and the run reads version 1" {
		t.Errorf("Pick with version 2 on the first site: %q", why(p, 0))
	}
}
