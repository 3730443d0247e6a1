package transport

import (
	"context"
	"os"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm/rest"
)

// restConfig returns a site's settings of slurmrestd, and the user of this process.
func restConfig(s *site.Site) (c rest.Config, self string, err error) {
	r := s.Slurm.REST
	c = rest.Config{URL: r.URL, Command: r.Command, User: r.User, TokenFile: r.TokenFile, TokenCommand: r.TokenCommand, CA: r.CA,
		Version: r.Version, Cluster: s.Slurm.Cluster, Script: scriptConfig(s), RPCPerMinute: s.Budget.RPCPerMinute,
		Shared: sharedBudget(s)}
	if self, err = (nss.Host{}).NameOf(context.Background(), os.Geteuid()); err != nil {
		return c, "", fault.Wrap("", "", "the name of this process's user is unknown", err)
	}
	if c.User == "" {
		c.User = self
	}
	return c, self, nil
}

// rest returns a site's Slurm through slurmrestd. scripts reads the scripts of attempts; queries need none.
func (h *Hosts) rest(s *site.Site, told heard, scripts readScript) (*rest.Slurm, error) {
	c, _, err := restConfig(s)
	if err != nil {
		return nil, err
	}
	c.Unread, c.Control = told.unread, scripts
	made, err := rest.New(c)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rests = append(h.rests, made)
	return made, nil
}

// leave ends the connections of an unused site's Slurm.
func (h *Hosts) leave(cli Slurm) {
	if r, is := cli.(*rest.Slurm); is {
		r.Close()
		h.mu.Lock()
		defer h.mu.Unlock()
		h.rests = slices.DeleteFunc(h.rests, func(known *rest.Slurm) bool { return known == r })
	}
}

// fitREST is fit for slurmrestd: it checks the files of slurm.rest, the cluster that answers, and that the token does
// not act for other users.
func fitREST(ctx context.Context, s *site.Site, r *rest.Slurm) (found []fault.Problem, err error) {
	if found = restFiles(s); len(found) > 0 {
		return found, nil
	}
	if err := r.CheckCluster(ctx); err != nil {
		return nil, err
	}
	others, err := r.ActsForOthers(ctx)
	if others {
		found = []fault.Problem{{Code: "SITE-TOKEN", Field: "slurm.rest", Rule: "a token of an ordinary user",
			Msg:  "the token may act for every user of the cluster, as one of SlurmUser or root does",
			Hint: "make a token of an ordinary user, and take this one out of use: scontrol token username=USER lifespan=SECONDS"}}
	}
	return found, err
}

// restFault reports whether an error is of slurmrestd or of the connection to it, and not of Slurm.
func restFault(err error) bool {
	code := fault.CodeOf(err)
	return code == run.Unreachable || strings.HasPrefix(code, "rest_") && code != rest.Refused
}

// restFiles returns the problems of slurm.rest on this host.
func restFiles(s *site.Site) []fault.Problem {
	c, self, err := restConfig(s)
	if err != nil {
		return []fault.Problem{{Code: "SITE-USER", Field: "slurm.rest.user", Rule: "a user of this host", Msg: fault.Prose(err)}}
	}
	return rest.CheckFiles(c, self)
}
