// Package doctor is a list of checks of a site: its files and folders, its policy and tools, the gateway's host, Slurm, and compute nodes.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/slurm/rest"
	"slurmgate/toolpack"
)

// Config holds what the checks need from the gateway's own wiring.
type Config struct {
	Version  string // of this program
	LoadSite func(file string) (*site.Site, error)
	Images   app.Images
	// Reach returns the ways to a cluster, and Close ends their connections.
	Reach      func(*site.Site) Ways
	Close      func()
	NodeFaults History
	AbsenceGap time.Duration // least time before the gateway gives up a job unknown to Slurm
	// MayStart refuses a site whose ledger is missing although it had one.
	MayStart func(context.Context, *site.Site) error
	// As returns the means to check a cluster as one user, with the signer's certificates.
	As func(s *site.Site, user string) (AsUser, error)
	// OpenBooks opens the ledger for reading; fs.ErrNotExist if absent.
	OpenBooks func(context.Context, *site.Site) (Books, error)
	// MemoryLimit returns how many bytes of memory a process may have; 0: this process.
	MemoryLimit func(pid int) int64
	Now         func() time.Time // this host's clock; nil: time.Now
}

// Slurm is the part of a cluster's Slurm that the checks read, by its commands or through slurmrestd. Where a transport
// has no answer it returns a NotFound fault.
type Slurm interface {
	slurm.Source
	Probe(context.Context) (slurm.Probe, error)
	Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error)
	Records(ctx context.Context, since time.Time, of ...run.JobKey) ([]run.Job, error)
	AllAccounts(context.Context) (map[string]run.UserAccounts, error)
	Accepts(context.Context, plan.Resources, plan.Placement) error
	Archs(context.Context) ([]string, error)
	Hostnames(ctx context.Context, list string) ([]string, error)
	SubmitProbe(context.Context, slurm.NodeProbe) (id string, err error)
	JobName(ctx context.Context, id string) (string, error)
	Cancel(ctx context.Context, id, name, shown string) error
}

// Examine makes all checks. unrecorded is why the call is not recorded, and therefore starts no job; say prints
// progress.
func (c Config) Examine(ctx context.Context, args app.DoctorArgs, unrecorded error, say func(string, ...any)) app.DoctorAnswer {
	x := c.exam()
	x.args, x.unrecorded, x.say = args, unrecorded, say
	defer x.close()
	x.run(ctx, func(k Check) bool { return k.Code == siteFile })
	if x.Site == nil {
		return *x.answer
	}
	x.answer.Site = x.Site.Title()
	x.run(ctx, func(k Check) bool { return k.Code != siteFile && !k.Cluster && k.Where != Node })
	for _, s := range x.wanted() {
		on := x.on(s)
		on.run(ctx, func(k Check) bool { return k.Cluster && k.Where != Node })
		if on.Users {
			on.oneUser(ctx)
		} else if !args.NoJobs {
			on.nodes(ctx)
		}
	}
	return *x.answer
}

// Early makes the checks that only read files of this host, for start-up and config check.
func (c Config) Early(ctx context.Context, s *site.Site) []app.Finding {
	x := c.exam()
	x.open(s)
	x.run(ctx, func(k Check) bool { return k.Early && !k.Cluster && k.Code != siteFile })
	for _, cluster := range x.wanted() {
		on := x.on(cluster)
		on.run(ctx, func(k Check) bool { return k.Early && k.Cluster && !k.elsewhere(on.Ways) })
	}
	return x.answer.Findings
}

func (c Config) exam() *Exam {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Exam{Config: c, User: me(), answer: &app.DoctorAnswer{Findings: []app.Finding{}}, worst: map[string]app.CheckStatus{},
		lacked: map[string]int{}, say: func(string, ...any) {}}
}

func (x *Exam) close() {
	if x.Books != nil {
		_ = x.Books.Close() // it was only read
	}
	if x.Close != nil {
		x.Close()
	}
}

// CannotLookAs returns the answer when no process can run as the service's user. That is a fault: the service is such a
// process.
func CannotLookAs(s *site.Site, name, how string, err error) app.DoctorAnswer {
	x := Config{}.exam()
	x.answer.Site = s.Title()
	k := Check{}
	for _, one := range Checks() {
		if one.Code == serviceUser {
			k = one
		}
	}
	x.Report(k, "", bad("", "doctor cannot look as %s, the service's user (%s): %v", name, how, err))
	return *x.answer
}

// Exam is one examination: of the gateway, or of one cluster of it.
type Exam struct {
	Config
	Ways                     // to the cluster that is checked
	Site    *site.Site       // the site file
	Cluster *site.Site       // the cluster that is checked; of the checks of the gateway the first one
	Domain  *toolpack.Domain // nil until it was read
	Policy  *policy.Policy
	Slurm   Slurm       // nil until the controller answered
	Probe   slurm.Probe // what the controller said
	User    account     // the user of the checks: the service's user
	Books   Books       // nil: there is no ledger

	Snapshot run.Snapshot // Slurm's own configuration; each part is read once

	lacked     map[string]int // how many clusters lack something that policy allows
	args       app.DoctorArgs
	answer     *app.DoctorAnswer
	worst      map[string]app.CheckStatus // of each check made so far
	stored     []storedImage              // images that tools name and that are in the store, to find on nodes
	tried      map[string]error           // how connecting to the cluster's hosts ended
	greeting   rest.Greeting              // slurmrestd's greeting
	stranger   error                      // the cluster that answered is not the site file's
	there      nss.User                   // who the gateway is where its files are, if that is not this host
	user       string                     // the user of the checks, where that is not the service's user
	of         string                     // the cluster's name, where there are several
	say        func(string, ...any)
	unrecorded error // why this call is not recorded, and therefore starts no job
}

// wanted returns the clusters to check.
func (x *Exam) wanted() []*site.Site {
	if x.args.Cluster != "" {
		if s := x.Site.Cluster(x.args.Cluster); s != nil {
			return []*site.Site{s}
		}
		return nil
	}
	return x.Site.Clusters()
}

// open begins with a site file; the checks of the gateway see its first cluster.
func (x *Exam) open(s *site.Site) {
	x.Site, x.Cluster = s, s.Clusters()[0]
	x.Ways = x.Reach(x.Cluster)
}

// on returns the examination of one cluster.
func (x *Exam) on(s *site.Site) *Exam {
	c := *x
	c.Cluster, c.Ways, c.worst, c.tried = s, x.Reach(s), maps.Clone(x.worst), map[string]error{}
	c.User.name = cmp.Or(c.JobsOf, c.User.name)
	if len(x.Site.Clusters()) > 1 {
		c.of = s.Name
	}
	return &c
}

// run makes the checks of the list that are chosen.
func (x *Exam) run(ctx context.Context, chosen func(Check) bool) {
	for _, k := range Checks() {
		if !chosen(k) || k.Only != nil && !k.Only(x.Ways) || k.OneUser && x.user == "" {
			continue
		}
		if why := x.missing(k); why != "" {
			x.Report(k, "", unknown("remove the cause of "+why+", then run doctor again",
				"not checked, because "+why+" has to be ok first"))
			continue
		}
		x.Report(k, "", k.Look(ctx, x))
	}
}

// missing returns a check that must be ok before this one can run; empty: none is missing.
func (x *Exam) missing(k Check) string {
	needs := k.Needs
	if k.Where != Node && k.Code != "record" {
		needs = append([]string{serviceUser}, needs...)
	}
	for _, need := range needs {
		if s, made := x.worst[need]; made && s != app.CheckOK && s != app.CheckWarning {
			return need
		}
	}
	return ""
}

// Report adds the results of a check; node is empty except for those of a node. A check without a result counts as
// unknown.
func (x *Exam) Report(k Check, node string, results []Result) {
	if len(results) == 0 {
		results = unknown("", "the check has no result")
	}
	for _, r := range results {
		if r.Status != app.CheckOK && r.Remedy == "" {
			r.Remedy = k.Remedy
		}
		if r.Found == "" {
			r.Found = strings.TrimSuffix(k.Proves, ".")
		}
		x.answer.Count(r.Status)
		x.answer.Findings = append(x.answer.Findings, app.Finding{Site: x.of, User: x.user, Code: k.Code, Where: string(k.Where),
			Node: node, Status: r.Status, Found: r.Found, Remedy: r.Remedy, Stops: k.Stops && r.Status == app.CheckFault})
		if r.Status.Worse(x.worst[k.Code]) {
			x.worst[k.Code] = r.Status
		}
	}
}

const siteFile, serviceUser = "site_file", "service_user"

func siteChecks() []Check {
	return []Check{{
		Code: siteFile, Proves: "The site file can be read and breaks no rule.", Where: Gateway, Early: true, Stops: true,
		Remedy: "correct the named lines: " + command(fault.Do("config check")),
		Look: func(_ context.Context, x *Exam) []Result {
			s, err := x.LoadSite(x.args.Site)
			if err != nil {
				return failed(command(fault.Do("config check")), err)
			}
			x.open(s)
			return ok("%s; slurmgate %s", x.args.Site, x.Version)
		},
	}, {
		Code: serviceUser, Proves: "The checks are made with the rights of the service's user.", Where: Gateway, Early: true,
		Remedy: "run doctor as root or as the service's user; both need to execute this program and to read the site file",
		Look: func(ctx context.Context, x *Exam) []Result {
			if uid, how := ServiceUser(ctx, x.Site); uid != x.User.uid {
				return unknown("sudo -u "+userName(uid)+" "+command(fault.Do("doctor")),
					"the gateway runs as %s (%s), but this is %s: what %s may read and write "+
						"says nothing about it", userName(uid), how, x.User.name, x.User.name)
			}
			return ok("%s", x.User.name)
		},
	}, {
		Code: "site_name", Proves: "The cluster named by --site-name is in the site file.", Where: Gateway, Alone: true,
		Remedy: "name a cluster of the site file",
		Look: func(_ context.Context, x *Exam) []Result {
			if len(x.wanted()) == 0 {
				return bad("", "the site file has no cluster %s; its clusters are %s", x.args.Cluster, x.Site.Title())
			}
			return ok("checking %s", namesOf(x.wanted()))
		},
	}, {
		Code: "record", Proves: "This call of doctor can be recorded; without a record no probe job is started.", Where: Gateway,
		Alone:  true,
		Remedy: "mend what the ledger, the domain or the state folder is said to lack, and run doctor again",
		Look: func(_ context.Context, x *Exam) []Result {
			if x.unrecorded != nil {
				return unknown("", "no probe job is started, because this call of doctor cannot be recorded: %v", x.unrecorded)
			}
			return ok("this call is recorded in the ledger")
		},
	}}
}

func namesOf(sites []*site.Site) string {
	var names []string
	for _, s := range sites {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// unseen reports the checks of nodes that have no result, because no node was examined.
func (x *Exam) unseen(why string) {
	for _, k := range nodeChecks() {
		if x.worst[k.Code] == "" {
			x.Report(k, "", unknown("", "%s", why))
		}
	}
}

// report adds results of a check of nodes.
func (x *Exam) report(code, node string, results []Result) {
	for _, k := range nodeChecks() {
		if k.Code == code {
			x.Report(k, node, results)
		}
	}
}
