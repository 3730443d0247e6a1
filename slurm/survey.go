package slurm

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/run"
)

// Survey is what a cluster says about itself to someone who is about to write its site file and policy.
type Survey struct {
	Version     string // of sbatch, e.g. "slurm-wlm 24.11.5"
	ClusterName string
	Conf        string // the slurm.conf in use, as scontrol names it
	Accounting  bool   // there is slurmdbd
	Enforced    bool   // jobs need an association
	MinJobAge   time.Duration
	KillWait    time.Duration
	RPCRate     int // RPCs a minute that slurmctld allows each user (rl_enable); 0: it does not limit them

	Partitions []Partition // in Slurm's order
	Accounts   []Account   // of the user, the default first; none without accounting
}

// Partition is one of the cluster's partitions. (scontrol(1), sinfo(1))
type Partition struct {
	Name            string
	Default, Up     bool
	Hidden          bool          // also true for partitions of root alone
	MaxTime         time.Duration // 0: no limit
	Limit           string        // the same in Slurm's words, e.g. 1-00:00:00
	Nodes           int
	Away            int // of these, nodes that are down
	CPUs            int // of its largest node
	MemMB           int // MiB, of its largest node; less where the partition allows less
	GPUs            int // of the node that has most
	GPUTypes        []string
	Accounts        []string
	DeniedAccounts  []string
	Groups          []string
	accountsLimited bool // AllowAccounts is not ALL
}

// Account is an association of the user.
type Account struct {
	Name       string
	Default    bool
	Partitions []string // it holds for; none: all
	QOS        []string
}

// Open reports whether jobs that charge the account may use the partition. Groups are not looked at.
func (p Partition) Open(account string) bool {
	return (!p.accountsLimited || slices.Contains(p.Accounts, account)) && !slices.Contains(p.DeniedAccounts, account)
}

// Survey asks for everything at once: four RPCs to slurmctld and two to slurmdbd.
func (c *CLI) Survey(ctx context.Context, user string) (s Survey, err error) {
	ask := func(rpcs int, program string, args ...string) (text string) {
		if err != nil {
			return ""
		}
		out, failed := c.ask(ctx, rpcs, clean, program, args...)
		err = failed
		return string(out.Stdout)
	}
	s.Version = strings.TrimSpace(ask(0, "sbatch", "--version"))
	v := configValues(ask(rpcConfig, "scontrol", "show", "config"))
	s.ClusterName, s.Conf = v["ClusterName"], v["SLURM_CONF"]
	s.Accounting = strings.HasSuffix(v["AccountingStorageType"], "/slurmdbd")
	s.Enforced = strings.Contains(v["AccountingStorageEnforce"], "associations")
	s.MinJobAge, s.KillWait = seconds(v["MinJobAge"]), seconds(v["KillWait"])
	s.RPCRate = rpcRate(v["SlurmctldParameters"])
	s.Partitions = partitions(ask(rpcPartitions, "scontrol", showPartitions...))
	addNodes(s.Partitions, ask(rpcNodes, "sinfo", showNodes...))
	if s.Accounting && err == nil {
		s.Accounts = associations(
			ask(1, "sacctmgr", "--noheader", "--parsable2", "show", "associations", "user="+user, "cluster="+s.ClusterName,
				"format=Account,Partition,QOS"),
			strings.TrimSpace(ask(1, "sacctmgr", "--noheader", "--parsable2", "show", "user", user, "format=DefaultAccount")))
	}
	return s, err
}

var (
	showPartitions = []string{"--oneliner", "--all", "show", "partition"}
	showNodes      = []string{"--all", "--noheader", "--Node", "--format=%R|%c|%m|%G|%T"}
)

// What they cost.
const (
	rpcPartitions = 1
	rpcNodes      = 2
)

// Partitions asks for what a run must fit: three RPCs.
func (c *CLI) Partitions(ctx context.Context) ([]run.Partition, error) {
	shown, err := c.ask(ctx, rpcPartitions, clean, "scontrol", showPartitions...)
	if err != nil {
		return nil, err
	}
	nodes, err := c.ask(ctx, rpcNodes, clean, "sinfo", showNodes...)
	if err != nil {
		return nil, err
	}
	list := partitions(string(shown.Stdout))
	addNodes(list, string(nodes.Stdout))
	out := []run.Partition{}
	for _, p := range list {
		out = append(out, run.Partition{Name: p.Name, Default: p.Default, Up: p.Up, MaxSeconds: int64(p.MaxTime.Seconds()), CPUs: p.CPUs,
			MemMB: p.MemMB, GPUs: p.GPUs, GPUTypes: p.GPUTypes})
	}
	return out, nil
}

// rpcRate reads rl_enable, rl_refill_rate (2) and rl_refill_period (1 s). (slurm.conf(5), SlurmctldParameters)
func rpcRate(parameters string) int {
	v := map[string]int{"rl_refill_rate": 2, "rl_refill_period": 1}
	enabled := false
	for word := range strings.SplitSeq(parameters, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		enabled = enabled || key == "rl_enable"
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			v[key] = n
		}
	}
	if !enabled {
		return 0
	}
	return max(1, v["rl_refill_rate"]*60/v["rl_refill_period"])
}

// partitions reads the lines of scontrol show partition.
func partitions(text string) (list []Partition) {
	for line := range strings.Lines(text) {
		v := map[string]string{}
		for _, word := range strings.Fields(line) {
			key, value, _ := strings.Cut(word, "=")
			v[key] = value
		}
		if v["PartitionName"] == "" {
			continue
		}
		p := Partition{Name: v["PartitionName"], Default: v["Default"] == "YES", Up: v["State"] == "UP",
			Hidden:  v["Hidden"] == "YES" || v["RootOnly"] == "YES",
			MaxTime: timeLimit(v["MaxTime"]), Limit: v["MaxTime"], Groups: named(v["AllowGroups"]), Accounts: named(v["AllowAccounts"]),
			DeniedAccounts: named(v["DenyAccounts"])}
		p.accountsLimited = v["AllowAccounts"] != "" && v["AllowAccounts"] != "ALL"
		p.MemMB, _ = strconv.Atoi(v["MaxMemPerNode"])
		list = append(list, p)
	}
	return list
}

// named gives the words of a list that is not ALL.
func named(s string) []string {
	if s == "" || s == "ALL" || s == "(null)" {
		return nil
	}
	return strings.Split(s, ",")
}

// addNodes adds what sinfo says about each node, a line for each partition it is in.
func addNodes(list []Partition, text string) {
	limits := map[string]int{}
	for i, p := range list {
		limits[p.Name], list[i].MemMB = p.MemMB, 0
	}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		i := slices.IndexFunc(list, func(p Partition) bool { return p.Name == f[0] })
		if i < 0 || len(f) != 5 {
			continue
		}
		p := &list[i]
		cpus, _ := strconv.Atoi(f[1])
		mem, _ := strconv.Atoi(f[2])
		if most := limits[p.Name]; most > 0 {
			mem = min(mem, most)
		}
		n, types := GPUs(f[3])
		p.Nodes, p.CPUs, p.MemMB, p.GPUs = p.Nodes+1, max(p.CPUs, cpus), max(p.MemMB, mem), max(p.GPUs, n)
		for _, kind := range types {
			if !slices.Contains(p.GPUTypes, kind) {
				p.GPUTypes = append(p.GPUTypes, kind)
			}
		}
		if strings.HasPrefix(f[4], "down") || strings.HasPrefix(f[4], "fail") || strings.HasPrefix(f[4], "unk") {
			p.Away++
		}
	}
}

// GPUs counts those of a node's generic resources, such as gpu:a100:4(S:0-1),gpu:2,shard:8.
func GPUs(gres string) (n int, types []string) {
	for word := range strings.SplitSeq(gres, ",") {
		word, _, _ = strings.Cut(word, "(")
		parts := strings.Split(word, ":")
		if count, err := strconv.Atoi(parts[len(parts)-1]); err == nil && parts[0] == "gpu" {
			if n += count; len(parts) == 3 {
				types = append(types, parts[1])
			}
		}
	}
	return n, types
}

// timeLimit reads [days-]hours:minutes:seconds; 0 for UNLIMITED.
func timeLimit(s string) (d time.Duration) {
	days, clock, ok := strings.Cut(s, "-")
	if !ok {
		days, clock = "0", s
	}
	n, _ := strconv.Atoi(days)
	for part := range strings.SplitSeq(clock, ":") {
		v, err := strconv.Atoi(part)
		if err != nil {
			return 0
		}
		d = d*60 + time.Duration(v)*time.Second
	}
	return d + time.Duration(n)*24*time.Hour
}

// associations reads Account|Partition|QOS, a line for each.
func associations(text, def string) []Account {
	u := UserAccounts{Default: def}
	for line := range strings.Lines(text) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 3 && f[0] != "" {
			u.Add(f[0], f[1], strings.Split(f[2], ","))
		}
	}
	return u.Accounts
}

// Add adds an association. An account may have several, one for each partition; without a partition it holds for all.
func (u *UserAccounts) Add(account, partition string, qos []string) {
	i := slices.IndexFunc(u.Accounts, func(a Account) bool { return a.Name == account })
	if i < 0 {
		i = len(u.Accounts)
		if account == u.Default {
			i = 0
		}
		u.Accounts = slices.Insert(u.Accounts, i, Account{Name: account, Default: account == u.Default, Partitions: []string{}})
	}
	a := &u.Accounts[i]
	switch {
	case partition == "":
		a.Partitions = nil // it holds for all
	case a.Partitions != nil:
		a.Partitions = append(a.Partitions, partition)
	}
	for _, q := range qos {
		if q != "" && !slices.Contains(a.QOS, q) {
			a.QOS = append(a.QOS, q)
		}
	}
}
