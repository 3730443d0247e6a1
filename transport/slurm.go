package transport

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slurmgate/doctor"
	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/remote"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/slurm/rest"
)

// Slurm submits to a cluster's Slurm and queries it, by its commands or through slurmrestd.
type Slurm interface {
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
	AccountsOf(ctx context.Context, user string) (run.UserAccounts, error)
}

// heard has the callbacks about answers of Slurm: for records that could not be read, and for a line that is harmless
// from now on.
type heard struct {
	unread   func(program string, records int, why, example string)
	harmless func(said string)
}

// readScript is [run.Workspace.ReadControlFrom].
type readScript = func(ctx context.Context, runID string, n int, name string, from, limit int64) (run.Part, error)

// slurm opens a site's Slurm, on this host, through its login node, or through slurmrestd. Without scripts it can only
// be queried, and nothing is created: the caller may be another user than the gateway.
func (h *Hosts) slurm(s *site.Site, told heard, scripts readScript) (Slurm, error) {
	if s.OverREST() {
		return h.rest(s, told, scripts)
	}
	c, err := h.slurmConfig(s)
	if err != nil {
		return nil, err
	}
	if scripts == nil {
		c.LocksDir = ""
	}
	c.Unread, c.Harmless = told.unread, told.harmless
	return slurm.NewCLI(c)
}

// Slurm opens a site's Slurm for queries only.
func (h *Hosts) Slurm(s *site.Site) (Slurm, error) { return h.slurm(s, heard{}, nil) }

// slurmConfig returns the configuration of a site's Slurm with the user whose jobs are queried, the one that sbatch
// runs as.
func (h *Hosts) slurmConfig(s *site.Site) (slurm.Config, error) {
	c := slurmConfig(s)
	login, err := h.login(s)
	if err != nil {
		return c, err
	}
	if login != nil {
		c.Over, c.User = login, login.User()
		if !s.AsCaller() { // otherwise runs do not use this transport
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
		RunsDirOfAll: s.Storage.RunsDir,
		LocksDir:     filepath.Join(s.Gateway.StateDir, "locks"), Script: scriptConfig(s), RPCPerMinute: s.Budget.RPCPerMinute,
		Shared: sharedBudget(s)}
}

func sharedBudget(s *site.Site) slurm.Shared {
	return slurm.Shared{File: s.Budget.Shared.File, PerMinute: s.Budget.Shared.RPCPerMinute}
}

// firstLook bounds the wait for a cluster's name before the gateway continues without it.
const firstLook = 3 * time.Second

// farLook bounds the connection to a login node and the check of its files.
const farLook = 30 * time.Second

// fitSlurm compares the site file with the cluster's Slurm: its commands, its slurm.conf, and the cluster that answers.
// A mismatch is a Validation fault, with which a site is not opened. A slurmctld that does not answer is no mismatch:
// its name is asked for again before anything is sent to it. A login node that does not answer is a Transport fault.
// sacct reports whether the command exists.
func (x *Sites) fitSlurm(ctx context.Context, s *site.Site, cli Slurm) (sacct bool, err error) {
	problems, sacct, err := x.Hosts.fit(ctx, s, cli)
	if len(problems) > 0 {
		return sacct, fault.Invalid(fmt.Sprintf("the site file does not fit the Slurm of %s (site %s)", wayOf(s).host, s.Name),
			problems...).WithSteps(fault.Do("doctor"))
	}
	if err != nil && wayOf(s).broken(err) {
		return false, err
	}
	if err != nil {
		x.Log.Warn("Slurm does not answer; runs wait until it does", "site", s.Name, "err", err)
	}
	return sacct, nil
}

// OutOfReach reports whether a site could not be opened only because its Slurm cannot be reached over the network: the
// gateway starts and waits for it.
func OutOfReach(s *site.Site, err error) bool {
	return wayOf(s).away.Code != "" && fault.Is(err, fault.Transport)
}

// slurmWay describes how the Slurm of a site is reached.
type slurmWay struct {
	host   string           // for messages
	broken func(error) bool // reports an error of the connection, not of Slurm
	away   fault.Problem    // the problem of a host that does not answer; empty on this host
}

func wayOf(s *site.Site) slurmWay {
	switch {
	case s.FarSlurm():
		return slurmWay{s.Slurm.SSH.Host, remoteFault, fault.Problem{Code: "SITE-LOGIN", Field: "slurm.ssh",
			Rule: "a login node that the gateway can reach"}}
	case s.OverREST():
		return slurmWay{"slurmrestd at " + s.Slurm.REST.Where(), restFault, fault.Problem{Code: "SITE-REST", Field: "slurm.rest",
			Rule: "a slurmrestd that the gateway can use"}}
	}
	return slurmWay{"this host", func(error) bool { return false }, fault.Problem{}}
}

// remoteFault reports whether an error is of the connection to the login node, and not of Slurm.
func remoteFault(err error) bool { return remote.NotStarted(err) || fault.CodeOf(err) == remote.Cut }

// fit returns the mismatches of the site file and the cluster's Slurm, whether there is sacct, and why the cluster
// could not be asked.
func (h *Hosts) fit(ctx context.Context, s *site.Site, cli Slurm) (found []fault.Problem, sacct bool, err error) {
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

// otherCluster adds a problem of the site file if err means that another cluster answered, or that it hides the jobs of
// others.
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

// Misfits returns the mismatches of all clusters, for config check, including login nodes that cannot be reached.
func Misfits(ctx context.Context, s *site.Site) (all []fault.Problem) {
	h := QuietHosts()
	defer h.Close()
	for _, c := range s.Clusters() {
		found, err := h.slurmMisfits(ctx, c)
		if p := wayOf(c).away; err != nil && p.Code != "" {
			p.Msg = fault.Prose(err)
			if e, is := errors.AsType[*fault.Error](err); is {
				p.Hint = e.Next
				p.Msg = strings.TrimSuffix(p.Msg, ". Next: "+e.Next)
			}
			found = append(found, p)
		}
		for _, p := range found {
			p.File = c.File()
			all = append(all, p)
		}
	}
	return all
}

func (h *Hosts) slurmMisfits(ctx context.Context, s *site.Site) ([]fault.Problem, error) {
	cli, err := h.Slurm(s)
	if err != nil {
		return nil, err
	}
	found, _, err := h.fit(ctx, s, cli)
	return found, err
}

// Associations returns what a user may charge on a cluster. It implements [app.Gateway.Associations].
func (x *Sites) Associations(ctx context.Context, cluster, user string) (a run.UserAccounts, err error) {
	cli, open := x.slurms.Load(cluster)
	if !open {
		return a, fault.New(fault.Transport, "accounts_unknown",
			"the site "+cluster+" is away, so it is unknown what "+user+" may charge there").
			WithNext("try again in 30 seconds").WithRetry(30)
	}
	return cli.(Slurm).AccountsOf(ctx, user)
}

// harmless returns a function that logs a line of Slurm's commands once the gateway knows that it is harmless.
func (x *Sites) harmless(site string) func(said string) {
	return func(said string) {
		x.Log.Info("Slurm's command prints a line with answers that are whole; from now on it is taken for harmless", "site", site,
			"line", said)
	}
}

// unread returns a function that counts the unreadable records of a cluster's answers, and logs each kind once.
func (x *Sites) unread(cluster string) func(program string, records int, why, example string) {
	var mu sync.Mutex
	logged := map[string]bool{}
	return func(program string, records int, why, example string) {
		x.Unread(cluster, program, records)
		mu.Lock()
		defer mu.Unlock()
		if kind := program + " " + why; !logged[kind] {
			logged[kind] = true
			x.Log.Warn("a record of Slurm's answer cannot be read; its job counts as unknown", "site", cluster, "program", program,
				"why", why, "record", example)
		}
	}
}
