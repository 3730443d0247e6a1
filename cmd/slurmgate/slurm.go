package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
)

// openSlurm is for looking at a cluster once, as doctor does.
func openSlurm(s *site.Site) (*slurm.CLI, error) { return newSlurm(s, nil) }

func newSlurm(s *site.Site, unread func(program string, records int, why, example string)) (*slurm.CLI, error) {
	if s.FarSlurm() {
		return nil, fault.New(fault.Validation, "openSlurm", "transport", "slurm.transport ssh is not supported by this version yet")
	}
	c := slurmConfig(s)
	me, err := nss.Host{}.NameOf(context.Background(), os.Geteuid())
	if err != nil {
		return nil, fault.Wrap("", "openSlurm", "", "the name of this process's user is unknown", err)
	}
	c.User, c.Unread = me, unread
	return slurm.NewCLI(c)
}

func slurmConfig(s *site.Site) slurm.Config {
	return slurm.Config{BinDir: s.Slurm.BinDir, Conf: s.Slurm.Conf, Cluster: s.Slurm.Cluster,
		LocksDir: filepath.Join(s.Gateway.StateDir, "locks"), Script: scriptConfig(s), RPCPerMinute: s.Budget.RPCPerMinute}
}

// firstLook is how long a cluster is given to say its name before the gateway goes on without.
const firstLook = 3 * time.Second

// fitSlurm holds the site file against this host's Slurm: its commands, its slurm.conf, and the cluster that answers. What does not fit is
// a Validation fault, with which a site is not opened. A slurmctld that does not answer is no such thing: its name is asked for again
// before anything is sent to it.
func (g *gateway) fitSlurm(ctx context.Context, s *site.Site, cli *slurm.CLI) error {
	problems, err := slurmProblems(ctx, s, cli)
	if len(problems) > 0 {
		return fault.Invalid("slurm", fmt.Sprintf("the site file does not fit the Slurm of this host (site %s)", s.Name), problems...).
			WithSteps(fault.Do("doctor"))
	}
	if err != nil {
		g.app.Log.Warn("Slurm does not answer; runs wait until it does", "site", s.Name, "err", err)
	}
	return nil
}

// slurmProblems says what of the site file does not fit this host's Slurm, and why the cluster could not be asked for its name.
func slurmProblems(ctx context.Context, s *site.Site, cli *slurm.CLI) ([]fault.Problem, error) {
	if found := slurm.CheckFiles(slurmConfig(s), s.Slurm.AlsoNeeds()...); len(found) > 0 {
		return found, nil
	}
	ctx, stop := context.WithTimeout(ctx, firstLook)
	defer stop()
	err := cli.CheckCluster(ctx, "slurm")
	if fault.CodeOf(err) != run.WrongCluster {
		return nil, err
	}
	e := err.(*fault.Error)
	return []fault.Problem{{Code: "SITE-CLUSTER", Field: "slurm.cluster", Rule: "the ClusterName of the cluster that Slurm's commands talk to",
		Msg: e.Msg, Hint: e.Next}}, nil
}

// slurmMisfits is slurmProblems for config check, of all clusters.
func slurmMisfits(ctx context.Context, s *site.Site) (all []fault.Problem) {
	for _, c := range s.Clusters() {
		cfg := slurmConfig(c)
		cfg.LocksDir = "" // nothing is sent and nothing created
		cli, err := slurm.NewCLI(cfg)
		if err != nil {
			continue
		}
		found, _ := slurmProblems(ctx, c, cli)
		for _, p := range found {
			p.File = c.File()
			all = append(all, p)
		}
	}
	return all
}

// associations is what a user may charge on a cluster. It is [app.Gateway.Associations].
func (g *gateway) associations(ctx context.Context, cluster, user string) (a app.UserAccounts, err error) {
	cli, open := g.slurms.Load(cluster)
	if !open {
		return a, fault.New(fault.Transport, "associations", "accounts_unknown",
			"the site "+cluster+" is away, so it is unknown what "+user+" may charge there").
			WithNext("try again in 30 seconds").WithRetry(30)
	}
	u, err := cli.(*slurm.CLI).AccountsOf(ctx, user)
	a.Default = u.Default
	for _, one := range u.Accounts {
		a.Accounts = append(a.Accounts, app.Account{Name: one.Name, Partitions: one.Partitions, QOS: one.QOS})
	}
	return a, err
}

// unread counts what of a cluster's answers could not be read, and logs each kind of it once.
func (g *gateway) unread(cluster string) func(program string, records int, why, example string) {
	var mu sync.Mutex
	logged := map[string]bool{}
	return func(program string, records int, why, example string) {
		g.metrics.Unread(cluster, program, records)
		mu.Lock()
		defer mu.Unlock()
		if kind := program + " " + why; !logged[kind] {
			logged[kind] = true
			g.app.Log.Warn("a record of Slurm's answer cannot be read; its job counts as unknown", "site", cluster, "program", program,
				"why", why, "record", example)
		}
	}
}
