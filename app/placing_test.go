package app

import (
	"os"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/site"
)

// A pack's plan holds what the pack asks for. The site's defaults and the caller's own account are added to what runs and what policy
// judges, and change no identity; a dry run shows both.
//
// proves ABI-07 ARC-06
func TestPlacementIsTheSites(t *testing.T) {
	args := map[string]any{"bam": beforeBAM}
	var ids []string
	for name, c := range map[string]struct {
		policy, partition, account, denied string
	}{
		"the site's defaults": {"version: 1\n", "main", "research", ""},
		"others":              {"version: 1\n", "fast", "other", ""},
		"allowed":             {"version: 1\nslurm: {partitions_allowlist: [main], accounts_allowlist: [research]}\n", "main", "research", ""},
		"denied":              {"version: 1\nslurm: {partitions_allowlist: [main]}\n", "fast", "research", "POLICY-PARTITION"},
	} {
		t.Run(name, func(t *testing.T) {
			g := beforeGateway(t, c.policy)
			g.Site.Slurm.DefaultPartition, g.Site.Slurm.DefaultAccount = c.partition, c.account
			p, err := g.Domain.Packs().Get("samtools.flagstat")
			if err != nil {
				t.Fatal(err)
			}
			call := gate.Call{Args: []byte(`{"bam":"` + beforeBAM + `"}`), Value: map[string]any{"bam": beforeBAM},
				Caller: gate.Caller{Principal: gate.Principal{Rights: gate.RightsOf([]string{gate.CapSlurm}, []string{plan.ProjectID("demo")})}}}
			o, _, err := g.packOrder(t.Context(), call, p)
			if c.denied != "" {
				if fault.CodeOf(err) != c.denied {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if o.Params.Spec.Placement != (plan.Placement{}) || o.Placement.Partition != c.partition || o.Placement.Account != c.account {
				t.Errorf("asked for %+v, placed %+v", o.Params.Spec.Placement, o.Placement)
			}
			shown, err := g.Sites.Preview(t.Context(), o)
			if err != nil || shown.Placement.Partition != c.partition || !strings.Contains(string(shown.Params), `"partition":null`) ||
				shown.Script != "partition "+c.partition+" account "+c.account {
				t.Errorf("%+v %v", shown, err)
			}
			if name != "allowed" {
				a := g.ask(t, "samtools.flagstat", args, false)
				if ids = append(ids, a.RunID); ids[0] != a.RunID || a.Replayed {
					t.Errorf("%+v, the runs %v", a, ids)
				}
				v, err := g.Ledger.View(t.Context(), a.RunID)
				if err != nil || v.Attempt.Placement.Partition != c.partition {
					t.Errorf("%+v %v", v.Attempt, err)
				}
			}
		})
	}
}

// A run goes on only while the site has the folders of its identity at the versions of its identity.
//
// proves ABI-19
func TestSameBinds(t *testing.T) {
	s := &site.Site{Apptainer: site.Apptainer{Binds: []site.Bind{{Name: "ref", Version: "2"}}}}
	if err := sameBinds(s, []plan.Bind{{Name: "ref", Version: "2"}}); err != nil {
		t.Error(err)
	}
	for code, b := range map[string]plan.Bind{"bind_changed": {Name: "ref", Version: "1"}, "bind_not_offered": {Name: "soft", Version: "1"}} {
		if err := sameBinds(s, []plan.Bind{b}); fault.CodeOf(err) != code || !fault.Is(err, fault.Policy) {
			t.Errorf("%+v: %v", b, err)
		}
	}
	g := tableGateway(t)
	p := plan.Params{Tool: &plan.ToolExtra{Binds: []plan.Bind{{Name: "ref", Version: "1"}}}}
	if err := g.StillAllowed(g.Site, "samtools.flagstat", p); fault.CodeOf(err) != "bind_not_offered" {
		t.Error(err)
	}
	if w := bindWarnings(p.Tool.Binds); len(w) != 1 || !strings.Contains(w[0], "ref, version 1") {
		t.Error(w)
	}
}

// The site's import roots go before those of an older policies.yaml.
func TestImportRoots(t *testing.T) {
	p, err := policy.Parse("policies.yaml", []byte("version: 1\nimport: {roots: [/old]}\n"), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	if got := ImportRoots(&site.Site{}, p); len(got) != 1 || got[0].Path != "/old" || got[0].Projects != nil {
		t.Error(got)
	}
	if got := ImportRoots(&site.Site{Import: site.Import{Roots: []site.Root{{Path: "/new"}}}}, p); len(got) != 1 || got[0].Path != "/new" {
		t.Error(got)
	}
}
