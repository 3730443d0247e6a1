package app

import (
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/site"
)

// This file has the site's decisions about runs that are not part of their identity: default placements, and which
// folders tools may use.

// SiteDefaults returns the placement of a job that asks for none.
func SiteDefaults(s *site.Site) plan.Placement {
	p := plan.Placement{Partition: s.Slurm.DefaultPartition, Account: s.Slurm.DefaultAccount}
	if q := s.Slurm.DefaultQOS; q != "" {
		p.QOS = &q
	}
	return p
}

// Offers returns a function that reports whether a cluster of a site has a bind of a name.
func Offers(s *site.Site) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(s.Clusters(), func(c *site.Site) bool { _, ok := c.BindVersion(name); return ok })
	}
}

// bindWarnings warns of the folders that a run reads and that are not verified.
func bindWarnings(binds []plan.Bind) []string {
	var out []string
	for _, b := range binds {
		out = append(out, fmt.Sprintf("this run reads the site's folder %s, version %s; its content is not verified (apptainer.binds)", b.Name,
			b.Version))
	}
	return out
}

// sameBinds refuses a run if the site's folders no longer match those in its identity.
func sameBinds(s *site.Site, binds []plan.Bind) error {
	for _, b := range binds {
		switch v, ok := s.BindVersion(b.Name); {
		case !ok:
			return fault.New(fault.Policy, "bind_not_offered",
				"the run reads the site's folder "+b.Name+", and this site no longer offers it").
				WithNext("add it to apptainer.binds in the site file again, or call the tool again without it")
		case v != b.Version:
			return fault.New(fault.Policy, "bind_changed",
				fmt.Sprintf("the run reads version %s of the site's folder %s, which now has version %s", b.Version, b.Name, v)).
				WithNext("call the tool again: that is a new run, with the current version")
		}
	}
	return nil
}
