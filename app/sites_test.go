package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/site"
)

// twoSites is a gateway with the clusters alpha and beta.
func twoSites(t *testing.T, policyText string) *Gateway {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("site.yaml", "version: 1\nsites: [alpha.yaml, beta.yaml]\ngateway: {state_dir: "+dir+"}\ndomain_dir: /x\n")
	for _, name := range []string{"alpha", "beta"} {
		write(name+".yaml", fmt.Sprintf("version: 1\nsite: %[1]s\nslurm: {default_partition: of-%[1]s, default_account: research}\n"+
			"storage: {runs_dir: /shared/%[1]s, image_store: /shared/images}\n", name))
	}
	s, err := site.Load(filepath.Join(dir, "site.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	unpackBefore(t, dir)
	return gatewayOver(t, dir, "testdata/before/domain", policyText, func(made *site.Site) { *made = *s })
}

// The caller of a tool may name a site where there is a choice; it is no argument of the tool itself, and decides where the run goes and
// what the site adds to its placement.
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
	if err != nil {
		t.Fatal(err)
	}
	const b = beforeBAM
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

// Where the first of several sites is not allowed, an unnamed run goes to the next, and naming it is a policy fault.
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
