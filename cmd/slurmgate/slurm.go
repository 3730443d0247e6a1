package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slurmgate/app"
	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/remote"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/slurm/rest"
)

// transport drives a cluster's Slurm and asks it, by its commands or through slurmrestd.
type transport interface {
	doctor.Slurm
	run.Renderer
	run.Submitter
	run.Queue
	run.Canceller
	run.Accounting
	// CheckCluster makes sure that the cluster is the one of slurm.cluster.
	CheckCluster(context.Context) error
	Pace(ctx context.Context, first bool) error
	Budget() run.Budget
	Partitions(context.Context) ([]run.Partition, error)
	AccountsOf(ctx context.Context, user string) (slurm.UserAccounts, error)
}

// unreadable is told of records of an answer that could not be read.
type unreadable = func(program string, records int, why, example string)

// readScript is [run.Workspace.ReadControl].
type readScript = func(ctx context.Context, runID string, n int, name string, limit int64, tail bool) ([]byte, error)

// slurm is a site's Slurm, on this host, through its login node, or through slurmrestd. Without scripts it can only be asked, and nothing
// is created: whoever looks may be another user than the gateway.
func (h *hosts) slurm(s *site.Site, unread unreadable, scripts readScript) (transport, error) {
	if s.OverREST() {
		return h.rest(s, unread, scripts)
	}
	c, err := h.slurmConfig(s)
	if err != nil {
		return nil, err
	}
	if scripts == nil {
		c.LocksDir = ""
	}
	c.Unread = unread
	return slurm.NewCLI(c)
}

// slurmConfig names the user whose jobs are asked about: the one that sbatch runs as.
func (h *hosts) slurmConfig(s *site.Site) (slurm.Config, error) {
	c := slurmConfig(s)
	login, err := h.login(s)
	if err != nil {
		return c, err
	}
	if login != nil {
		c.Over, c.User = login, login.User()
		if !s.AsCaller() { // else nothing of a run is done here
			c.RunsDir, c.LoginRunsDir = s.Storage.RunsDir, s.LoginFolders().RunsDir
		}
		return c, nil
	}
	if c.User, err = (nss.Host{}).NameOf(context.Background(), os.Geteuid()); err != nil {
		return c, fault.Wrap("", "", "the name of this process's user is unknown", err)
	}
	return c, nil
}

func slurmConfig(s *site.Site) slurm.Config {
	return slurm.Config{BinDir: s.Slurm.BinDir, Conf: s.Slurm.Conf, Cluster: s.Slurm.Cluster, AllUsers: s.AsCaller(),
		LocksDir: filepath.Join(s.Gateway.StateDir, "locks"), Script: scriptConfig(s), RPCPerMinute: s.Budget.RPCPerMinute,
		Shared: sharedBudget(s)}
}

func sharedBudget(s *site.Site) slurm.Shared {
	return slurm.Shared{File: s.Budget.Shared.File, PerMinute: s.Budget.Shared.RPCPerMinute}
}

// firstLook is how long a cluster is given to say its name before the gateway goes on without.
const firstLook = 3 * time.Second

// farLook is how long a login node is given to be reached and to say what it has.
const farLook = 30 * time.Second

// fitSlurm holds the site file against the cluster's Slurm: its commands, its slurm.conf, and the cluster that answers. What does not fit
// is a Validation fault, with which a site is not opened. A slurmctld that does not answer is not one: its name is asked for again
// before anything is sent to it. A login node that does not answer is a Transport fault. sacct says whether there is one.
func (g *gateway) fitSlurm(ctx context.Context, s *site.Site, cli transport) (sacct bool, err error) {
	problems, sacct, err := g.hosts.fit(ctx, s, cli)
	if len(problems) > 0 {
		return sacct, fault.Invalid(fmt.Sprintf("the site file does not fit the Slurm of %s (site %s)", slurmHost(s), s.Name),
			problems...).WithSteps(fault.Do("doctor"))
	}
	if err != nil && (s.FarSlurm() && remoteFault(err) || s.OverREST() && restFault(err)) {
		return false, err
	}
	if err != nil {
		g.app.Log.Warn("Slurm does not answer; runs wait until it does", "site", s.Name, "err", err)
	}
	return sacct, nil
}

// slurmHost is where Slurm's commands of a site are, for messages.
func slurmHost(s *site.Site) string {
	switch {
	case s.FarSlurm():
		return s.Slurm.SSH.Host
	case s.OverREST():
		return "slurmrestd at " + s.Slurm.REST.Where()
	}
	return "this host"
}

// remoteFault reports whether an error is of the way to the login node, and not of Slurm.
func remoteFault(err error) bool { return remote.NotStarted(err) || fault.CodeOf(err) == remote.Cut }

// fit says what of the site file does not fit the cluster's Slurm, whether there is sacct, and why the cluster could not be asked.
func (h *hosts) fit(ctx context.Context, s *site.Site, cli transport) (found []fault.Problem, sacct bool, err error) {
	wait := firstLook
	c := slurmConfig(s)
	if r, is := cli.(*rest.Slurm); is {
		look, stop := context.WithTimeout(ctx, farLook)
		defer stop()
		found, err = fitREST(look, s, r)
		return otherCluster(found, true, err)
	} else if s.FarSlurm() {
		wait = farLook
		login, err := h.login(s)
		if err != nil {
			return nil, false, err
		}
		look, stop := context.WithTimeout(ctx, farLook)
		defer stop()
		if found, sacct, err = slurm.CheckFar(look, login, c, s.Slurm.AlsoNeeds()...); err != nil {
			return nil, false, err
		}
	} else {
		found = slurm.CheckFiles(c, s.Slurm.AlsoNeeds()...)
		_, err := os.Stat(filepath.Join(c.BinDir, "sacct"))
		sacct = !errors.Is(err, os.ErrNotExist)
	}
	if len(found) > 0 {
		return found, sacct, nil
	}
	ctx, stop := context.WithTimeout(ctx, wait)
	defer stop()
	err = cli.CheckCluster(ctx)
	if own, is := cli.(*slurm.CLI); is && err == nil && s.AsCaller() {
		err = own.CheckSight(ctx, sacct && s.Slurm.Accounting != "none")
	}
	return otherCluster(nil, sacct, err)
}

// otherCluster makes a problem of the site file of an error that says that another cluster answered, or that it hides the jobs of others.
func otherCluster(found []fault.Problem, sacct bool, err error) ([]fault.Problem, bool, error) {
	p := fault.Problem{Code: "SITE-CLUSTER", Field: "slurm.cluster", Rule: "the ClusterName of the cluster that answers"}
	switch {
	case err == nil || fault.CodeOf(err) != run.WrongCluster && !slurm.Hides(err):
		return found, sacct, err
	case slurm.Hides(err):
		p = fault.Problem{Code: "SITE-PRIVATE-DATA", Field: "slurm.run_as", Rule: "caller only where Slurm shows the gateway all users' jobs"}
	}
	p.Msg = fault.Prose(err)
	if e, is := errors.AsType[*fault.Error](err); is {
		p.Msg, p.Hint = e.Msg, e.Next
	}
	return append(found, p), sacct, nil
}

// slurmMisfits is what does not fit of all clusters, for config check. A login node that cannot be reached is named too.
func slurmMisfits(ctx context.Context, s *site.Site) (all []fault.Problem) {
	h := quietHosts()
	defer h.close()
	for _, c := range s.Clusters() {
		found, err := h.misfits(ctx, c)
		if err != nil && c.FarSlurm() {
			found = append(found, away("SITE-LOGIN", "slurm.ssh", "a login node that the gateway can reach", err))
		} else if err != nil && c.OverREST() {
			found = append(found, away("SITE-REST", "slurm.rest", "a slurmrestd that the gateway can use", err))
		}
		for _, p := range found {
			p.File = c.File()
			all = append(all, p)
		}
	}
	return all
}

// away is the problem of a host that does not answer.
func away(code, field, rule string, err error) fault.Problem {
	p := fault.Problem{Code: code, Field: field, Rule: rule, Msg: fault.Prose(err)}
	if e, is := errors.AsType[*fault.Error](err); is {
		p.Hint = e.Next
		p.Msg = strings.TrimSuffix(p.Msg, ". Next: "+e.Next)
	}
	return p
}

func (h *hosts) misfits(ctx context.Context, s *site.Site) ([]fault.Problem, error) {
	cli, err := h.slurm(s, nil, nil)
	if err != nil {
		return nil, err
	}
	found, _, err := h.fit(ctx, s, cli)
	return found, err
}

// associations is what a user may charge on a cluster. It is [app.Gateway.Associations].
func (g *gateway) associations(ctx context.Context, cluster, user string) (a app.UserAccounts, err error) {
	cli, open := g.slurms.Load(cluster)
	if !open {
		return a, fault.New(fault.Transport, "accounts_unknown",
			"the site "+cluster+" is away, so it is unknown what "+user+" may charge there").
			WithNext("try again in 30 seconds").WithRetry(30)
	}
	u, err := cli.(transport).AccountsOf(ctx, user)
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
