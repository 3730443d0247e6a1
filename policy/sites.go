package policy

import (
	"slices"

	"slurmgate/fault"
)

// Sites configures the clusters on which runs may execute, and where runs go whose callers name no site. The
// gateway's own host is in [Local].
type Sites struct {
	// Absent: every site of the site file.
	Allowlist *[]string `yaml:"allowlist" is:"site" example:"alpha, beta"`
	// Absent: the first site of the site file that is allowed.
	Prefer []string `yaml:"prefer" is:"site" example:"beta, alpha"`
	// The rule that picks a site: first_that_fits, most_free_budget or where_the_data_is. Absent: the first preferred site that is not
	// away. docs/run/places.md says more.
	Pick string `yaml:"pick" enum:"first_that_fits,most_free_budget,where_the_data_is" code:"SITE-PICK" example:"first_that_fits"`
}

// The rules of sites.pick. Each picks among the sites of sites.prefer, or else among all allowed sites, in this
// order; sites where the run would wait come last, and sites that do not fit it are left out.
const (
	FirstThatFits  = "first_that_fits"
	MostFreeBudget = "most_free_budget"
	WhereTheDataIs = "where_the_data_is"
)

// AllowSite decides whether runs may execute on a cluster. A denial is a Policy fault.
func (p *Policy) AllowSite(name string) error {
	var d decision
	if l := p.Sites.Allowlist; l != nil && !slices.Contains(*l, name) {
		d.add("POLICY-SITE", "placement.site", "policy sites.allowlist: "+shown(*l), name)
		return denied("policy forbids this site", d)
	}
	return nil
}

// Candidates returns the sites for a run whose caller names none, in policy's order. It is a Policy fault if no site
// is allowed.
func (p *Policy) Candidates(sites []string) ([]string, error) {
	if len(p.Sites.Prefer) > 0 {
		return p.Sites.Prefer, nil
	}
	allowed := slices.DeleteFunc(slices.Clone(sites), func(name string) bool { return p.AllowSite(name) != nil })
	if len(allowed) == 0 {
		return nil, fault.New(fault.Policy, "POLICY-SITE", "policy allows none of this gateway's sites: "+shown(sites)).
			WithNext("ask the administrator to change sites.allowlist in policies.yaml")
	}
	return allowed, nil
}

// PickSite picks the cluster of a new run whose caller names none, where policy has no rule (sites.pick): of the
// preferred sites, or else of the first one allowed, the first that is not away. If all are away, the run waits for
// the first. It is a Policy fault if no site is allowed.
func (p *Policy) PickSite(sites []string, away func(string) bool) (string, error) {
	choice, err := p.Candidates(sites)
	if err != nil {
		return "", err
	}
	if len(p.Sites.Prefer) == 0 {
		choice = choice[:1]
	}
	for _, name := range choice {
		if !away(name) {
			return name, nil
		}
	}
	return choice[0], nil
}

// Candidate is a site for a new run, with what the gateway knows of it without a request to the site.
type Candidate struct {
	Fits       bool
	Waits      bool    // the run would wait there: the site is away, drained or paused
	Free       float64 // RPCs a minute of the site's budget that are free, for each of its open runs and the new one
	InputBytes int64   // bytes of the run's inputs in workspaces of the site
}

// Pick picks a candidate by the rule of sites.pick, the first of equal ones; -1 if the run fits none.
func (p *Policy) Pick(list []Candidate) int {
	best := -1
	for i, c := range list {
		if c.Fits && (best < 0 || p.Sites.better(c, list[best])) {
			best = i
		}
	}
	return best
}

func (s Sites) better(a, b Candidate) bool {
	switch {
	case a.Waits != b.Waits:
		return b.Waits
	case s.Pick == MostFreeBudget:
		return a.Free > b.Free
	case s.Pick == WhereTheDataIs:
		return a.InputBytes > b.InputBytes
	}
	return false
}
