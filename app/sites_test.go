package app

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// twoSites returns a gateway with the clusters alpha and beta.
func twoSites(t *testing.T, policyText string) *Gateway {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("site.yaml", "version: 1\nsites: [alpha.yaml, beta.yaml]\ngateway: {state_dir: "+dir+"}\ndomain_dir: /x\n")
	for _, name := range []string{"alpha", "beta"} {
		write(name+".yaml", fmt.Sprintf("version: 1\nsite: %[1]s\nslurm: {default_partition: of-%[1]s, default_account: research}\n"+
			"storage: {runs_dir: /shared/%[1]s, image_store: /shared/images}\n", name))
	}
	s, err := site.Load(filepath.Join(dir, "site.yaml"))
	must(t, err)
	return withDemoFiles(t, gatewayOver(t, dir, "testdata/demo/domain", policyText, func(made *site.Site) { *made = *s }))
}

// The caller of a tool may name a site where there are several; that is not an argument of the tool itself. It
// decides where the run goes and what the site adds to its placement.
//
// proves SITE-07
func TestSiteArgument(t *testing.T) {
	g := twoSites(t, "version: 1\nsites: {prefer: [beta]}\n")
	tool, err := g.Gate.Registry().Find("samtools.flagstat")
	if err != nil || !strings.Contains(string(tool.Input), "alpha, beta") {
		t.Fatal(string(tool.Input), err)
	}
	if one := tableGateway(t); true {
		alone, err := one.Gate.Registry().Find("samtools.flagstat")
		if err != nil || strings.Contains(string(alone.Input), `"site"`) {
			t.Error(string(alone.Input), err)
		}
	}
	p, err := g.Domain.Packs().Get("samtools.flagstat")
	must(t, err)
	const b = demoBAM
	for _, x := range []struct{ args, site, partition, code string }{
		{`{"bam":"` + b + `"}`, "beta", "of-beta", ""},
		{`{"bam":"` + b + `","site":"alpha"}`, "alpha", "of-alpha", ""},
		{`{"bam":"` + b + `","site":"gamma"}`, "", "", "SITE-UNKNOWN"},
		{`{"bam":"` + b + `","site":"local"}`, "", "", "POLICY-LOCAL"},
	} {
		call := gate.Call{Args: []byte(x.args), Caller: gate.Caller{Principal: gate.Principal{Rights: gate.RightsOf([]string{gate.CapSlurm},
			[]string{plan.ProjectID("demo")})}}}
		o, _, err := g.packOrder(t.Context(), call, p)
		if (err != nil) != (x.code != "") || err != nil && fault.CodeOf(err) != x.code {
			t.Errorf("%s: %v", x.args, err)
		}
		if x.code == "SITE-UNKNOWN" && !strings.Contains(err.Error(), "alpha, beta") {
			t.Error(err)
		}
		if err != nil {
			continue
		}
		named := strings.Contains(x.args, "site")
		if o.Site != x.site || o.Placement.Partition != x.partition || (o.Params.Site() != "") != named {
			t.Errorf("%s: on %s at %+v, named %q", x.args, o.Site, o.Placement, o.Params.Site())
		}
		canonical, _, err := o.Identity()
		if err != nil || strings.Contains(string(canonical), `"site":`) != named {
			t.Errorf("%s %v", canonical, err)
		}
	}
}

// Where the first of several sites is not allowed, a run without a site goes to the next, and naming the first is a
// policy fault.
func TestSiteNotAllowed(t *testing.T) {
	g := twoSites(t, "version: 1\nsites: {allowlist: [beta]}\n")
	if s, err := g.cluster(""); err != nil || s.Name != "beta" {
		t.Error(s, err)
	}
	if _, err := g.cluster("alpha"); !fault.Is(err, fault.Policy) {
		t.Error(err)
	}
	if err := g.StillAllowed(g.Site.Cluster("alpha"), "samtools.flagstat", plan.Params{}); !fault.Is(err, fault.Policy) {
		t.Error(err)
	}
}

// The list of sites shows for each whether it executes runs and why not. Only administrators see a site's own
// messages, which name hosts and folders, and runs are those of the caller's projects.
//
// proves SITE-07
func TestSiteList(t *testing.T) {
	const secret = "login.example refused /shared/secret"
	g := choosing(t, "version: 1\nsites: {allowlist: [alpha], pick: most_free_budget}\n", func(_, beta *clusterOf) {
		beta.closed = fault.New(fault.Transport, "ssh_unreachable", secret)
	})
	g.Site.Cluster("beta").Slurm.Transport, g.Site.Cluster("beta").Storage.Transport = "ssh", "sftp"
	o, err := g.flagstat(t, "")
	must(t, err)
	if _, err := g.Sites.Submit(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	who := func(r gate.Rights) gate.Caller {
		return gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "token:x", Method: gate.ByToken, Rights: r}}
	}
	look := []string{gate.CapGateway, gate.CapRead}
	admin := who(gate.Rights{{Capabilities: append(slices.Clone(look), gate.CapAdmin), Projects: []string{gate.All}}})
	chat := func(g *Gateway) bool {
		t.Helper()
		x := g.toolOf(t, "site.list")
		return slices.Contains(x.Bindings, gate.MCP)
	}
	if !chat(g) || chat(tableGateway(t)) {
		t.Error("a chat lists sites where there is a choice, and nowhere else")
	}
	var l SiteList
	g.says(t, admin, "site.list", map[string]any{}, "", &l)
	if l.Total != 2 || *l.Pick != "most_free_budget" || l.ProvenanceRunID == "" {
		t.Fatalf("site.list: %d sites, pick %v, provenance_run_id %q", l.Total, l.Pick, l.ProvenanceRunID)
	}
	alpha, beta := l.Sites[0], l.Sites[1]
	if alpha.Site != "alpha" || alpha.State != run.SiteReady || alpha.Transport != "cli" || alpha.Files != "shared" || !alpha.Allowed ||
		*alpha.Partition != "of-alpha" || alpha.Runs[run.Staging] != 1 || *alpha.Budget != (run.Budget{PerMinute: 60, Left: 20, Burst: 20}) ||
		!*alpha.Accounting || alpha.Code != nil || alpha.Since != nil {
		t.Errorf("%+v", alpha)
	}
	if beta.State != run.SiteIsAway || beta.Since == nil || *beta.Code != run.SiteAway || !strings.Contains(*beta.Problem, secret) ||
		beta.Transport != "ssh" || beta.Files != "sftp" || beta.Allowed || len(beta.Runs) != 0 || beta.Accounting != nil || beta.Budget != nil ||
		len(beta.NextSteps) != 1 {
		t.Errorf("%+v", beta)
	}
	g.Sites.SetDrains([]run.Drain{{Site: "alpha", By: "user:boss", Reason: "new disks"}})
	for project, runs := range map[string]int{"demo": 1, "other": 0} {
		var l SiteList
		text := string(g.says(t, who(gate.RightsOf(look, []string{plan.ProjectID(project)})), "site.list", map[string]any{}, "", &l).Result)
		if len(l.Sites[0].Runs) != runs || l.Sites[0].State != run.SiteDrained || l.Sites[0].Drain.Reason != "new disks" ||
			*l.Sites[1].Code != run.SiteAway || l.Sites[1].Problem != nil || strings.Contains(text, "login.example") ||
			strings.Contains(text, "/shared") {
			t.Errorf("%s: %s", project, text)
		}
	}
	g.says(t, who(gate.RightsOf([]string{gate.CapGateway, gate.CapSlurm}, []string{plan.ProjectID("demo")})), "site.list", map[string]any{},
		"capability_denied", nil)
}

// The status names a site that the site file no longer has while runs there have not ended, with advice.
//
// proves SITE-07
func TestStatusNamesRemovedSites(t *testing.T) {
	g := choosing(t, "version: 1\nsites: {allowlist: [alpha]}\n", func(_, _ *clusterOf) {})
	o, err := g.flagstat(t, "")
	must(t, err)
	if _, err := g.Sites.Submit(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	problems := func() (text string) {
		t.Helper()
		var a StatusAnswer
		admin := gate.Rights{{Capabilities: []string{gate.CapGateway, gate.CapRead, gate.CapAdmin}, Projects: []string{gate.All}}}
		g.says(t, gate.Caller{Transport: gate.Local, Principal: gate.Principal{Name: "token:x", Method: gate.ByToken, Rights: admin}},
			"gateway.status", map[string]any{}, "", &a)
		for _, s := range a.Sites {
			if s.Problem != nil {
				text += s.Site + ": " + *s.Problem + "\n"
			}
		}
		return text
	}
	if got := problems(); strings.Contains(got, "no longer has") {
		t.Errorf("with all sites in the site file the status says %q", got)
	}
	g.Sites = run.NewSites(run.Site{Config: run.Config{Site: "beta"}, Parts: run.Parts{Store: g.Ledger, Log: slog.New(slog.DiscardHandler),
		Now: time.Now}})
	want := "alpha: the site file no longer has this site, where 1 runs have not ended; add it again, under that name, and reload the gateway"
	if got := problems(); !strings.Contains(got, want) {
		t.Errorf("after alpha was renamed the status says %q, want %q", got, want)
	}
}
