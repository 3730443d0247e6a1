// Package doctor checks a site end to end: its files, its disks, Slurm, and compute nodes.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/apptainer"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/site"
	"slurmgate/slurm"
	"slurmgate/toolpack"
)

// Config is what the checks need from the gateway's own wiring.
type Config struct {
	Version    string // of this program
	LoadSite   func(file string) (*site.Site, error)
	OpenSlurm  func(*site.Site) (*slurm.CLI, error)
	Images     app.Images
	AbsenceGap time.Duration // least time before the gateway gives up a job unknown to Slurm
}

// Examine makes all checks. unrecorded is why the call is not recorded, and therefore starts no job; say shows progress.
func (c Config) Examine(ctx context.Context, args app.DoctorArgs, unrecorded error, say func(string, ...any)) app.DoctorAnswer {
	d := &checks{Config: c, say: say, unrecorded: unrecorded}
	d.add("ok", "slurmgate", c.Version, "")
	d.examine(ctx, args)
	return d.answer
}

// checks collects findings; the checks are independent, so that one failure does not hide the next.
type checks struct {
	Config
	answer app.DoctorAnswer
	say    func(string, ...any)

	of string // the cluster that is checked, where there are several

	unrecorded error // why this call is not recorded, and therefore starts no job
}

// sayUnrecorded reports that the call leaves no record, unless a check that failed has reported the cause already.
func (d *checks) sayUnrecorded() {
	if d.unrecorded != nil && d.answer.Failed == 0 {
		d.add("warn", "record", "no probe job was started, because this call of doctor cannot be recorded: "+d.unrecorded.Error(), "")
	}
}

func (d *checks) add(status, check, detail, next string) {
	switch status {
	case "fail":
		d.answer.Failed++
	case "warn":
		d.answer.Warned++
	}
	d.answer.Findings = append(d.answer.Findings, app.Finding{Site: d.of, Check: check, Status: status, Detail: detail, Next: next})
}

// command is a step at this shell.
func command(s fault.Step) string { return gate.Words(gate.Local, []fault.Step{s}) }

// check adds ok with detail, or fail with the error; an empty next is replaced by the error's own next step.
func (d *checks) check(name, detail string, err error, next string) bool {
	if err != nil {
		text := gate.Text(gate.Local, err)
		if e, ok := errors.AsType[*fault.Error](err); ok && (e.Next != "" || len(e.Steps) > 0) {
			advice := fault.Advice(e.Next, e.Steps, func(s []fault.Step) string { return gate.Words(gate.Local, s) })
			text = strings.TrimSuffix(text, ". Next: "+advice)
			next = cmp.Or(next, advice)
		}
		d.add("fail", name, text, next)
		return false
	}
	d.add("ok", name, detail, "")
	return true
}

// verdict adds ok with good, or the other status with bad and its next step.
func (d *checks) verdict(ok bool, otherwise, name, good, bad, next string) bool {
	if ok {
		otherwise, bad, next = "ok", good, ""
	}
	d.add(otherwise, name, bad, next)
	return ok
}

func (d *checks) examine(ctx context.Context, args app.DoctorArgs) {
	s, err := d.LoadSite(args.Site)
	if !d.check("site file", args.Site, err, command(fault.Do("config check"))) {
		return
	}
	d.answer.Site = s.Title()
	defer d.sayUnrecorded()
	clusters := s.Clusters()
	if args.Cluster != "" {
		if s.Cluster(args.Cluster) == nil {
			d.check("site", "", fault.New(fault.Validation, "doctor", "", "there is no site "+args.Cluster+"; the sites are "+s.Title()), "")
			return
		}
		clusters = []*site.Site{s.Cluster(args.Cluster)}
	}
	dom := d.domain(ctx, s)
	if !d.state(s) {
		return
	}
	d.files(s)
	for _, c := range clusters {
		if len(s.Clusters()) > 1 {
			d.of = c.Name
		}
		d.cluster(ctx, c, dom, args)
	}
	d.of = ""
}

// cluster checks one cluster; what it needs of another does not matter.
func (d *checks) cluster(ctx context.Context, s *site.Site, dom *toolpack.Domain, args app.DoctorArgs) {
	d.installed(s)
	images := d.images(ctx, s, dom)
	if !d.disks(s) || !d.check("slurm commands", s.Slurm.BinDir, slurmFiles(s), "") {
		return
	}
	cli, err := d.OpenSlurm(s)
	if err != nil {
		d.check("slurm commands", "", err, "")
	} else if d.slurm(ctx, s, cli) && !args.NoJobs {
		d.nodes(ctx, s, cli, images)
	}
}

// slurmFiles checks that the programs and files that the site file names exist on this machine.
func slurmFiles(s *site.Site) error {
	need := []string{"sbatch", "squeue", "scancel", "scontrol"}
	if s.Slurm.Accounting != "none" {
		need = append(need, "sacct")
	}
	missing := slices.DeleteFunc(need, func(name string) bool {
		st, err := os.Stat(filepath.Join(s.Slurm.BinDir, name))
		return err == nil && !st.IsDir() && st.Mode()&0o111 != 0
	})
	if len(missing) > 0 {
		return fault.New(fault.Validation, "doctor", "", s.Slurm.BinDir+" has no program "+strings.Join(missing, ", ")).
			WithNext("set slurm.bin_dir to the folder with Slurm's commands")
	}
	if s.Slurm.Conf == "" {
		return nil
	}
	f, err := os.Open(s.Slurm.Conf)
	if err != nil {
		return fault.Wrap(fault.Validation, "doctor", "", "slurm.conf cannot be read", err).
			WithNext("set slurm.conf to the file that Slurm's commands use here, or remove the setting")
	}
	return f.Close()
}

// domain checks the domain; nil if it cannot be read.
func (d *checks) domain(ctx context.Context, s *site.Site) *toolpack.Domain {
	dom, pol, err := app.ReadDomain(s.DomainDir, toolpack.AllowMissingImages)
	if !d.check("domain", s.DomainDir, err, command(fault.Do("tool check", "dir", s.DomainDir))) {
		return nil
	}
	file, _ := dom.Policy()
	d.add("ok", "policy", file, "")
	for _, root := range app.ImportRoots(s, pol) {
		if st, err := os.Stat(root.Path); err != nil || !st.IsDir() {
			d.add("warn", "import root", root.Path+" is not a folder here: nothing is imported from it", "make it, or take it out of import.roots")
		}
		if root.Projects == nil {
			d.add("warn", "import root", site.PlainRoot(root.Path), fmt.Sprintf("write {path: %s, projects: [NAME]} in import.roots", root.Path))
		}
	}
	for _, misfit := range app.Fits(dom, pol) {
		d.add("warn", "domain and policy", misfit, "correct "+file+" or the toolpack")
	}
	if err := dom.Packs().CheckBinds(app.Offers(s)); err != nil {
		d.check("binds of tools", "", err, "add the folder to apptainer.binds")
	}
	if err := pol.CheckSites(s.Names()); err != nil {
		d.check("sites of the policy", "", err, "")
	}
	d.local(ctx, s.LocalSite(), pol)
	return dom
}

// images returns the path of one image to try on the nodes, "" if there is none.
func (d *checks) images(ctx context.Context, s *site.Site, dom *toolpack.Domain) string {
	if dom == nil {
		return ""
	}
	store, err := apptainer.OpenStore(s.Storage.ImageStore)
	if !d.check("image store", s.Storage.ImageStore, err, command(fault.Do("image add"))) {
		return ""
	}
	misfits, err := d.Images.Misfits(s)
	if d.check("image lock", dom.LockPath(), err, "correct it, or take it away and add the images again") {
		for _, p := range misfits {
			d.add("warn", "image lock", p.String(), p.Hint)
		}
	}
	image, seen := "", map[string]bool{"": true}
	for _, p := range dom.Packs().List() {
		name := p.Image()
		if seen[name] {
			continue
		}
		seen[name] = true
		locked, ok := dom.Lock().Lookup(name)
		add := command(fault.Do("image add", "name", name))
		if !ok {
			d.add("fail", "image "+name, "no image of this name", add)
		} else if path, err := store.Verify(ctx, strings.TrimPrefix(locked.Digest, "sha256:")); d.check("image "+name, locked.Digest, err, add) {
			image = path
		}
	}
	return image
}

func (d *checks) slurm(ctx context.Context, s *site.Site, cli *slurm.CLI) bool {
	p, err := cli.Probe(ctx)
	if !d.check("slurm controller", p.Version+"; "+firstLine(p.ControllerText), err, "scontrol ping") {
		return false
	}
	cycle := 3 * time.Duration(s.Watch.CeilingSeconds) * time.Second
	d.verdict(s.Slurm.Cluster == "" || p.ClusterName == s.Slurm.Cluster, "fail", "cluster name", p.ClusterName,
		fmt.Sprintf("this cluster is %s, but the site file is for %s", p.ClusterName, s.Slurm.Cluster),
		"set slurm.cluster, or use the right site file")
	if !p.ExportNIL {
		d.add("fail", "sbatch --export=NIL", p.Version+" does not support it", "upgrade to Slurm 20.11 or newer")
	}
	d.verdict(p.MinJobAge >= cycle, "warn", "MinJobAge", p.MinJobAge.String(),
		fmt.Sprintf("%s: ended jobs leave squeue before three watch cycles (%s) have passed; the gateway then "+
			"relies on exit files and accounting", p.MinJobAge, cycle), "raise MinJobAge, or lower watch.ceiling_seconds")
	d.add("ok", "MessageTimeout", fmt.Sprintf("%s: a job that Slurm no longer knows is given up after %s", p.MessageTimeout,
		max(d.AbsenceGap, 2*p.MessageTimeout)), "")
	d.verdict(p.GraceFitsInKillWait, "warn", "KillWait", p.KillWait.String(),
		fmt.Sprintf("%s is not longer than slurm.grace_seconds (%d)", p.KillWait, s.Slurm.GraceSeconds),
		"lower slurm.grace_seconds, so that a killed job still leaves its exit file")
	if p.RateLimited {
		d.add("ok", "rate limit", fmt.Sprintf("slurmctld limits RPCs itself (%s); the gateway's budget is %d a minute", p.SlurmctldParameters,
			s.Budget.RPCPerMinute), "")
	}
	_, err = cli.Records(ctx, time.Now().Add(-time.Hour))
	if err == nil || s.Slurm.Accounting == "required" {
		d.check("accounting", p.AccountingStorage, err, "start slurmdbd, or set slurm.accounting to auto")
	} else {
		d.add("warn", "accounting", "sacct does not answer: "+err.Error()+"; the gateway relies on exit files", "")
	}
	_, err = cli.Jobs(ctx, nil)
	d.check("squeue", "answers completely", err, "run squeue by hand to see the error")
	return true
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
