package main

import (
	"context"
	"os"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/site"
	"slurmgate/slurm/rest"
)

// restConfig is what a site says about its slurmrestd, and the user of this process.
func restConfig(s *site.Site) (c rest.Config, self string, err error) {
	r := s.Slurm.REST
	c = rest.Config{URL: r.URL, Command: r.Command, User: r.User, TokenFile: r.TokenFile, TokenCommand: r.TokenCommand, CA: r.CA,
		Version: r.Version, Cluster: s.Slurm.Cluster, Script: scriptConfig(s), RPCPerMinute: s.Budget.RPCPerMinute}
	if self, err = (nss.Host{}).NameOf(context.Background(), os.Geteuid()); err != nil {
		return c, "", fault.Wrap("", "", "the name of this process's user is unknown", err)
	}
	if c.User == "" {
		c.User = self
	}
	return c, self, nil
}

// restFiles says what of slurm.rest cannot be used on this host.
func restFiles(s *site.Site) []fault.Problem {
	c, self, err := restConfig(s)
	if err != nil {
		return []fault.Problem{{Code: "SITE-USER", Field: "slurm.rest.user", Rule: "a user of this host", Msg: fault.Prose(err)}}
	}
	return rest.CheckFiles(c, self)
}
