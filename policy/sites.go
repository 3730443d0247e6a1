package policy

import (
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Sites says on which clusters runs may execute, and where those go whose callers name no site. The gateway's own host is under [Local].
type Sites struct {
	Allowlist *[]string `json:"allowlist"` // absent: every site of the site file
	Prefer    []string  `json:"prefer"`    // absent: the first site of the site file that is allowed
}

func (s *Sites) read(v yamldoc.Value) {
	o := v.Object("allowlist", "prefer")
	const names = "names of sites: " + plan.SiteNameRule
	s.Allowlist = listed(o.Opt("allowlist"), "SITE-NAME", names, plan.IsSiteName)
	prefer := o.Opt("prefer")
	s.Prefer = append([]string{}, prefer.Words("SITE-NAME", names, plan.IsSiteName)...)
	for _, name := range s.Prefer {
		if s.Allowlist != nil && !slices.Contains(*s.Allowlist, name) {
			prefer.Fail("SITE-NAME", "only sites of sites.allowlist", `"`+name+`" is not in sites.allowlist`, "")
		}
	}
}

// AllowSite decides whether runs may execute on a cluster. A denial is a Policy fault.
func (p *Policy) AllowSite(name string) error {
	var d decision
	if l := p.Sites.Allowlist; l != nil && !slices.Contains(*l, name) {
		d.add("POLICY-SITE", "placement.site", "policy sites.allowlist: "+shown(*l), name)
		return denied("policy.AllowSite", "policy forbids this site", d)
	}
	return nil
}

// PickSite picks the cluster of a new run whose caller names none: of the preferred sites, or else of the first one allowed, the first
// that is not away. If all are away, the run waits for the first. A Policy fault when no site is allowed.
func (p *Policy) PickSite(sites []string, away func(string) bool) (string, error) {
	allowed := slices.DeleteFunc(slices.Clone(sites), func(name string) bool { return p.AllowSite(name) != nil })
	if len(allowed) == 0 {
		return "", fault.New(fault.Policy, "policy.PickSite", "POLICY-SITE", "policy allows none of this gateway's sites: "+shown(sites)).
			WithNext("ask the administrator to change sites.allowlist in policies.yaml")
	}
	choice := allowed[:1]
	if len(p.Sites.Prefer) > 0 {
		choice = p.Sites.Prefer
	}
	for _, name := range choice {
		if !away(name) {
			return name, nil
		}
	}
	return choice[0], nil
}
