package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/app"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/toolpack"
)

const slurmCondition, partitionsCode, accountsCode = "slurm_condition", "partitions", "accounts"

// placementChecks returns the checks of where jobs may go, as the site file, policy and the tools name it and as Slurm
// has it.
func placementChecks() []Check {
	asked := []string{slurmCondition}
	return []Check{{
		Code: "default_placement", Proves: "Policy allows the default partition, account and QOS of the site file.", Where: Gateway,
		Cluster: true, Early: true, Needs: []string{domainCode}, Remedy: "add it to the allow-list in policies.yaml, or set another default",
		Look: func(_ context.Context, x *Exam) []Result { return x.defaultsAllowed() },
	}, {
		Code: partitionsCode, Proves: "Each partition that the site file, policy or a tool names exists, is up, and has nodes that can run jobs.",
		Where: Slurmctld, Cluster: true, Needs: asked, Remedy: "correct the name, or: scontrol update PartitionName=NAME State=UP",
		Look: partitionsUp,
	}, {
		Code: accountsCode, Proves: "The gateway's user may charge each account that the site file, policy or a tool names, with the QOS named.",
		Where: Slurmctld, Cluster: true, Only: asSelf, Needs: asked, Remedy: "sacctmgr add user NAME account=ACCOUNT", Look: accounts,
	}, callerAccountsCheck(), {
		Code: "submit_limits", Proves: "The gateway's user, who has the jobs of all callers, may have a thousand at a time.", Where: Slurmctld,
		Cluster: true, Only: asSelf, Needs: []string{accountsCode}, Remedy: "raise MaxSubmitJobs of the account or QOS", Look: submitLimits,
	}, {
		Code: "tool_jobs", Proves: "Slurm would accept a job of each tool now (sbatch --test-only).", Where: Slurmctld, Cluster: true,
		Only: selfByCommands, Needs: []string{slurmCondition, partitionsCode, accountsCode},
		Remedy: "change the resources of the tool or its partition", Look: toolJobs,
	}}
}

func (x *Exam) defaultsAllowed() (results []Result) {
	d, p := x.Cluster.Slurm, x.Policy.Slurm
	for _, one := range []struct {
		field, name, list string
		allowed           *[]string
	}{{"slurm.default_partition", d.DefaultPartition, "partitions_allowlist", p.Partitions},
		{"slurm.default_account", d.DefaultAccount, "accounts_allowlist", p.Accounts}, {"slurm.default_qos", d.DefaultQOS, "qos_allowlist",
			p.QOS}} {
		if one.name != "" && one.allowed != nil && !slices.Contains(*one.allowed, one.name) {
			results = append(results, bad("add "+one.name+" to slurm."+one.list+" in policies.yaml, or set another "+one.field,
				"policy does not allow %s, the %s of the site file: every call that names none is denied", one.name, one.field)...)
		}
	}
	if len(results) == 0 {
		return ok("")
	}
	return results
}

func condition(ctx context.Context, x *Exam) []Result {
	var err error
	if x.Snapshot.Partitions, err = run.Ask(ctx, x.Slurm.ShowPartitions); err != nil {
		return failed("", err)
	}
	if err := x.askNodes(ctx); err != nil {
		return failed("", err)
	}
	parts := &x.Snapshot.Partitions.Value
	*parts = run.AddNodes(*parts, x.Snapshot.Nodes.Value)
	return ok("%s", plural(len(*parts), "partition"))
}

// askNodes asks for the nodes once.
func (x *Exam) askNodes(ctx context.Context) (err error) {
	if x.Snapshot.Nodes.At.IsZero() {
		x.Snapshot.Nodes, err = run.Ask(ctx, x.Slurm.Nodes)
	}
	return err
}

// names collects names and who names them.
type names map[string][]string

func (n names) add(by string, list ...string) {
	for _, name := range list {
		if name != "" && name != toolpack.FromSite && !slices.Contains(n[name], by) {
			n[name] = append(n[name], by)
		}
	}
}

func (n names) addList(by string, list *[]string) {
	if list != nil {
		n.add(by, *list...)
	}
}

func (n names) by(name string) string { return strings.Join(n[name], ", ") }

// outlines returns the plans of the tools that run in Slurm, with the defaults of the cluster where they ask for
// nothing.
func (x *Exam) outlines() map[string]plan.Spec {
	specs := map[string]plan.Spec{}
	for _, t := range x.Domain.Packs().List() {
		if t.Image() == "" || t.PlanKind() == toolpack.KindDocker || x.Policy.AllowTool(t.ToolName()) != nil {
			continue
		}
		spec := t.Outline("sha256:" + strings.Repeat("0", 64))
		if s := spec.Placement.Site; s != nil && *s != x.Cluster.Name {
			continue
		}
		d := app.SiteDefaults(x.Cluster)
		if spec.Placement.Partition == toolpack.FromSite {
			spec.Placement.Partition = d.Partition
		}
		if spec.Placement.Account == toolpack.FromSite {
			spec.Placement.Account = d.Account
		}
		if spec.Placement.QOS == nil {
			spec.Placement.QOS = d.QOS
		}
		specs[t.ID()] = spec
	}
	return specs
}

const byDefault, byPolicy = "the site file's default", "policies.yaml"

// partitionsUp judges each partition. Of several clusters one may lack what another one has, unless it is a default or a tool's.
func partitionsUp(_ context.Context, x *Exam) (results []Result) {
	named := names{}
	named.add(byDefault, x.Cluster.Slurm.DefaultPartition)
	if x.Domain != nil {
		named.addList(byPolicy, x.Policy.Slurm.Partitions)
		specs := x.outlines()
		for _, id := range slices.Sorted(maps.Keys(specs)) {
			named.add(id, specs[id].Placement.Partition)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		i := slices.IndexFunc(x.Snapshot.Partitions.Value, func(p run.Partition) bool { return p.Name == name })
		onlyPolicy := len(named[name]) == 1 && named[name][0] == byPolicy
		if i < 0 {
			if onlyPolicy && !x.lackedByAll("partition "+name) {
				continue
			}
			results = append(results, bad("correct the name: the partitions are "+x.partitionNames(), "Slurm has no partition %s (named by %s)",
				name,
				named.by(name))...)
			continue
		}
		judge := bad
		if onlyPolicy { // no run needs it today
			judge = warning
		}
		p := x.Snapshot.Partitions.Value[i]
		up := "scontrol update PartitionName=" + name + " State=UP"
		switch {
		case !p.Up():
			results = append(results, judge(up, "partition %s is %s (named by %s)", name, p.State, named.by(name))...)
		case p.Usable() == 0:
			results = append(results, judge("see why, and resume them: sinfo -R -p "+name,
				"none of the %s of partition %s can run jobs (%s; named by %s)",
				plural(p.Nodes, "node"), name, statesText(p.States), named.by(name))...)
		default:
			results = append(results, ok("%s: %d of %s", name, p.Usable(), plural(p.Nodes, "node"))...)
		}
	}
	return results
}

// lackedByAll counts a name that a cluster lacks, and reports whether every cluster lacks it.
func (x *Exam) lackedByAll(what string) bool {
	x.lacked[what]++
	return x.lacked[what] == len(x.Site.Clusters())
}

func (x *Exam) partitionNames() string {
	var list []string
	for _, p := range x.Snapshot.Partitions.Value {
		list = append(list, p.Name)
	}
	return strings.Join(list, ", ")
}

func statesText(states map[string]int) string {
	var list []string
	for s, n := range states {
		list = append(list, fmt.Sprint(n, " ", s))
	}
	slices.Sort(list)
	return cmp.Or(strings.Join(list, ", "), "it has none")
}

// accounts judges each account and QOS, where Slurm enforces them.
func accounts(ctx context.Context, x *Exam) (results []Result) {
	enforced, kept := x.config().Values["AccountingStorageEnforce"], x.config().Database()
	if x.REST != nil && kept {
		defer func() { // slurmrestd does not show whether Slurm enforces them
			for i := range results {
				if results[i].Status == app.CheckFault {
					results[i].Status = app.CheckWarning
				}
			}
		}()
	} else if enforced == "" || enforced == "none" || !kept {
		return ok("Slurm does not enforce accounts (AccountingStorageEnforce: %s)", cmp.Or(enforced, "none"))
	}
	if err := x.askAccounts(ctx); err != nil {
		return unknown("start slurmdbd, and install sacctmgr in slurm.bin_dir", "the accounts of this user cannot be listed: %v", err)
	}
	named, qos := names{}, names{}
	named.add(byDefault, x.Cluster.Slurm.DefaultAccount)
	qos.add(byDefault, x.Cluster.Slurm.DefaultQOS)
	for _, p := range x.Site.Access.Peers {
		for _, a := range p.Accounts {
			named.add("access.peers", a.Account)
		}
	}
	if x.Domain != nil {
		named.addList(byPolicy, x.Policy.Slurm.Accounts)
		qos.addList(byPolicy, x.Policy.Slurm.QOS)
		specs := x.outlines()
		for _, id := range slices.Sorted(maps.Keys(specs)) {
			spec := specs[id]
			named.add(id, spec.Placement.Account)
			if spec.Placement.QOS != nil {
				qos.add(id, *spec.Placement.QOS)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if x.own().Account(name) == nil &&
			(named.by(name) != byPolicy || x.lackedByAll("account "+name)) {
			results = append(results, bad("sacctmgr add user "+x.User.name+" account="+name+", or correct the name",
				"%s may not charge account %s in Slurm (named by %s)", x.User.name, name, named.by(name))...)
		}
	}
	return x.qosUsable(qos, results)
}

// askAccounts asks what this user may charge, and which QOS there are.
func (x *Exam) askAccounts(ctx context.Context) (err error) {
	x.Snapshot.Accounts, err = run.Ask(ctx, func(ctx context.Context) (map[string]run.UserAccounts, error) {
		return x.Slurm.Accounts(ctx, x.config().Name(), x.User.name)
	})
	if err == nil {
		x.Snapshot.QOS, err = run.Ask(ctx, x.Slurm.QOS)
	}
	return err
}

// own returns what this user may charge.
func (x *Exam) own() run.UserAccounts { return x.Snapshot.Accounts.Value[x.User.name] }

// qosUsable judges each QOS.
func (x *Exam) qosUsable(named names, results []Result) []Result {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		exists := slices.ContainsFunc(x.Snapshot.QOS.Value, func(q run.QOS) bool { return q.Name == name })
		allowed := slices.ContainsFunc(x.own().Accounts, func(a run.Account) bool { return slices.Contains(a.QOS, name) })
		switch {
		case exists && allowed || named.by(name) == byPolicy && !x.lackedByAll("qos "+name):
		case !exists:
			results = append(results, bad("correct the name, or: sacctmgr add qos "+name, "Slurm has no QOS %s (named by %s)", name,
				named.by(name))...)
		default:
			results = append(results, bad("sacctmgr modify user "+x.User.name+" set qos+="+name, "%s may not use QOS %s (named by %s)", x.User.name,
				name, named.by(name))...)
		}
	}
	if len(results) == 0 {
		return ok("%s may charge %s", x.User.name, plural(len(x.own().Accounts), "account"))
	}
	return results
}

// enoughJobs is the number of the gateway's jobs that Slurm should accept: all its callers share one user's limits.
const enoughJobs = 1000

// submitLimits judges how many jobs the default account and QOS take.
func submitLimits(_ context.Context, x *Exam) (results []Result) {
	enough := min(enoughJobs, x.Site.Limits.OpenRunsPerProject)
	judge := func(whose string, limit *int, raise string) {
		switch {
		case limit == nil || *limit >= enough:
		case *limit == 0:
			results = append(results, bad(raise, "%s takes no job at all (limit 0)", whose)...)
		default:
			results = append(results, warning(raise, "%s takes at most %s; further runs wait in the gateway", whose, plural(*limit, "job"))...)
		}
	}
	if a := x.own().Account(x.Cluster.Slurm.DefaultAccount); a != nil {
		judge("account "+a.Name, a.Submit, "sacctmgr modify user "+x.User.name+" where account="+a.Name+" set MaxSubmitJobs=-1")
	}
	for _, q := range x.Snapshot.QOS.Value {
		if q.Name == x.Cluster.Slurm.DefaultQOS {
			judge("QOS "+q.Name, q.Submit, "sacctmgr modify qos "+q.Name+" set MaxSubmitJobsPerUser=-1")
		}
	}
	if len(results) == 0 {
		return ok("")
	}
	return results
}

// mostTested bounds how many different jobs slurmctld is asked about.
const mostTested = 40

// toolJobs asks about each different job once.
func toolJobs(ctx context.Context, x *Exam) (results []Result) {
	specs := map[string]plan.Spec{}
	if x.Domain != nil {
		specs = x.outlines()
	}
	if len(specs) == 0 {
		specs["a job with the defaults"] = plan.Spec{Resources: plan.Resources{CPUs: 1, MemMB: 100, TimeLimitSeconds: 60},
			Placement: app.SiteDefaults(x.Cluster)}
	}
	verdicts, asked := map[string]error{}, 0
	for _, id := range slices.Sorted(maps.Keys(specs)) {
		s := specs[id]
		key := describe(s)
		if _, known := verdicts[key]; !known {
			if asked++; asked > mostTested {
				return append(results, unknown("", "only %d different jobs were tried", mostTested)...)
			}
			verdicts[key] = x.Slurm.Accepts(ctx, s.Resources, s.Placement)
		}
		if err := verdicts[key]; err != nil {
			results = append(results, bad("", "Slurm refuses a job of %s (%s): %v", id, key, err)...)
		}
	}
	if len(results) == 0 {
		return ok("%s of %s tried", plural(len(verdicts), "different job"), plural(len(specs), "tool"))
	}
	return results
}

// describe returns a job's requests in words.
func describe(s plan.Spec) string {
	r, p := s.Resources, s.Placement
	text := fmt.Sprintf("%d CPUs, %d MiB, %d s in partition %s, account %s", r.CPUs, r.MemMB, r.TimeLimitSeconds, p.Partition, p.Account)
	if p.QOS != nil {
		text += ", QOS " + *p.QOS
	}
	if p.Constraint != nil {
		text += ", nodes with " + *p.Constraint
	}
	if r.GPUs != nil {
		text += fmt.Sprintf(", %d GPUs", *r.GPUs)
	}
	return text
}
