package app

import (
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// The list of sites says of each whether it carries out runs and why not; what a site said, which names hosts and folders, is for
// administrators, and runs are those of the caller's projects.
//
// proves SITE-07
func TestSiteList(t *testing.T) {
	const secret = "login.example refused /shared/secret"
	g := choosing(t, "version: 1\nsites: {allowlist: [alpha], pick: most_free_budget}\n", func(_, beta *clusterOf) {
		beta.closed = fault.New(fault.Transport, "ssh_unreachable", secret)
	})
	g.Site.Cluster("beta").Slurm.Transport, g.Site.Cluster("beta").Storage.Transport = "ssh", "sftp"
	o, err := g.flagstat(t, "")
	if err != nil {
		t.Fatal(err)
	}
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
		x, err := g.Gate.Registry().Find("site.list")
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(x.Bindings, gate.MCP)
	}
	if !chat(g) || chat(tableGateway(t)) {
		t.Error("a chat lists sites where there is a choice, and nowhere else")
	}
	var l SiteList
	g.says(t, admin, "site.list", map[string]any{}, "", &l)
	if l.Total != 2 || *l.Pick != "most_free_budget" || l.ProvenanceRunID == "" {
		t.Fatalf("%+v", l)
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
