package main

import (
	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/policy"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// configuration holds what a gateway reads before it starts. The gateway runs with the checked values, whatever happens
// to the files later.
type configuration struct {
	site   *site.Site
	domain *toolpack.Domain
	policy *policy.Policy
	roots  []site.Root // of imports
}

// readFiles reads a site file and all that belongs to it.
func readFiles(file string) (configuration, error) {
	s, err := loadSite(file)
	if err != nil {
		return configuration{}, err
	}
	return readConfiguration(s)
}

// readConfiguration reads the domain and the policy of a site and checks that the three fit together. It reports all
// mistakes together, and none with which a gateway would start: a filesystem or a cluster that is away is no mistake.
func readConfiguration(s *site.Site) (configuration, error) {
	c := configuration{site: s}
	var err error
	if c.domain, c.policy, err = app.ReadDomain(s.DomainDir); err != nil {
		return c, err
	}
	sites, binds := c.policy.CheckSites(s.Names()), c.domain.Packs().CheckBinds(app.Offers(s))
	switch {
	case sites != nil && binds != nil:
		return c, fault.Invalid("the site file and its domain do not fit together",
			append(fault.ProblemsOf(sites), fault.ProblemsOf(binds)...)...)
	case sites != nil:
		return c, sites
	case binds != nil:
		return c, binds
	}
	c.roots = s.Import.Roots
	for _, r := range c.roots {
		c.policy.Import.Roots = append(c.policy.Import.Roots, r.Path)
	}
	return c, nil
}
