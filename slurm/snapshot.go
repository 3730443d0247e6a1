package slurm

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Source asks a cluster's Slurm for the parts of a [run.Snapshot], each with one query.
type Source interface {
	Config(ctx context.Context, age time.Duration) (run.ClusterConfig, error) // no older than an age
	ShowPartitions(context.Context) ([]run.Partition, error)                  // without the resources of nodes
	Nodes(context.Context) ([]run.Node, error)                                // once for each partition they are in
	QOS(context.Context) ([]run.QOS, error)
	// Accounts returns what one user may charge on a cluster, or each user if user is empty.
	Accounts(ctx context.Context, cluster, user string) (map[string]run.UserAccounts, error)
}

// Costs of the queries in RPCs.
const (
	rpcPartitions = 1
	rpcNodes      = 2
)

// Partitions returns the partitions with the resources of their nodes. It costs three RPCs.
func Partitions(ctx context.Context, s Source) ([]run.Partition, error) {
	list, err := s.ShowPartitions(ctx)
	if err != nil {
		return nil, err
	}
	nodes, err := s.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return run.AddNodes(list, nodes), nil
}

// Describe returns a snapshot without QOS. It costs five RPCs to slurmctld, and one to slurmdbd for what a user may
// charge where there is slurmdbd.
func Describe(ctx context.Context, s Source, user string) (d run.Snapshot, err error) {
	d.Config, err = run.Ask(ctx, func(ctx context.Context) (run.ClusterConfig, error) { return s.Config(ctx, 0) })
	if err == nil {
		d.Partitions, err = run.Ask(ctx, s.ShowPartitions)
	}
	if err == nil {
		d.Nodes, err = run.Ask(ctx, s.Nodes)
	}
	if err == nil && user != "" && d.Config.Value.Database() {
		d.Accounts, err = run.Ask(ctx, func(ctx context.Context) (map[string]run.UserAccounts, error) {
			return s.Accounts(ctx, d.Config.Value.Name(), user)
		})
	}
	d.Partitions.Value = run.AddNodes(d.Partitions.Value, d.Nodes.Value)
	return d, err
}

// lastConfig is the last known configuration of the site file's cluster.
type lastConfig struct {
	mu   sync.Mutex // never held during a query
	last run.Asked[run.ClusterConfig]
}

func (c *lastConfig) known() run.Asked[run.ClusterConfig] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *lastConfig) keep(a run.Asked[run.ClusterConfig]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = a
}

// ever is an age that accepts every earlier answer.
const ever = time.Duration(math.MaxInt64)

// Config returns slurmctld's configuration, no older than age. The answer that proved the cluster's name counts too.
func (c *CLI) Config(ctx context.Context, age time.Duration) (run.ClusterConfig, error) {
	began := time.Now()
	if err := c.CheckCluster(ctx); err != nil {
		return run.ClusterConfig{}, err
	}
	if a := c.config.known(); !a.At.IsZero() && began.Sub(a.At) <= age {
		return a.Value, nil
	}
	a, err := run.Ask(ctx, func(ctx context.Context) (run.ClusterConfig, error) {
		out, err := c.ask(ctx, rpcConfig, answered, "scontrol", "show", "config")
		return clusterConfig(string(out.Stdout)), err
	})
	if err == nil {
		c.config.keep(a)
	}
	return a.Value, err
}

// showConfig asks for the configuration without a check of the cluster.
func (c *CLI) showConfig(ctx context.Context) (run.ClusterConfig, error) {
	out, err := c.run(ctx, nil, answered, "scontrol", "show", "config")
	return clusterConfig(string(out.Stdout)), err
}

// clusterConfig parses the output of scontrol show config: "Configuration data as of 1795361949", by slurmctld's clock,
// and lines "Key = value".
func clusterConfig(text string) run.ClusterConfig {
	c := run.ClusterConfig{Values: configValues(text)}
	line, _, _ := strings.Cut(text, "\n")
	n, err := strconv.ParseInt(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 10, 64)
	if err == nil && n > 0 {
		c.Clock = time.Unix(n, 0)
	}
	return c
}

// configValues parses lines "Key = value".
func configValues(text string) map[string]string {
	v := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, " = "); ok {
			v[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return v
}

// MessageTimeout returns slurm.conf's MessageTimeout; run.Queue has the contract. It is asked for once.
func (c *CLI) MessageTimeout(ctx context.Context) (time.Duration, error) {
	if c.service != nil {
		return c.service.MessageTimeout(ctx)
	}
	for _, age := range []time.Duration{ever, 0} {
		v, err := c.Config(ctx, age)
		if d := v.Seconds("MessageTimeout"); err != nil || d > 0 {
			return d, err
		}
	}
	return 0, fault.New(fault.Transport, "config_unreadable", "scontrol show config does not show MessageTimeout")
}

// ShowPartitions implements [Source].
func (c *CLI) ShowPartitions(ctx context.Context) ([]run.Partition, error) {
	out, err := c.ask(ctx, rpcPartitions, answered, "scontrol", "--oneliner", "--all", "show", "partition")
	return partitions(string(out.Stdout)), err
}

// partitions parses lines of words Key=value.
func partitions(text string) (list []run.Partition) {
	for line := range strings.Lines(text) {
		v := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(word, "=")
			v[key] = value
		}
		if v["PartitionName"] == "" {
			continue
		}
		p := run.Partition{Name: v["PartitionName"], Default: v["Default"] == "YES", State: v["State"],
			Hidden:     v["Hidden"] == "YES" || v["RootOnly"] == "YES",
			MaxSeconds: timeLimit(v["MaxTime"]), Groups: named(v["AllowGroups"]), Accounts: named(v["AllowAccounts"]),
			DeniedAccounts: named(v["DenyAccounts"])}
		p.MaxMemMB, _ = strconv.Atoi(v["MaxMemPerNode"])
		list = append(list, p)
	}
	return list
}

// named returns the words of a list; nil means ALL.
func named(s string) []string {
	switch s {
	case "", "ALL":
		return nil
	case "(null)":
		return []string{}
	}
	return strings.Split(s, ",")
}

// timeLimit parses [days-]hours:minutes:seconds; it returns 0 for UNLIMITED and for a text that is no time.
func timeLimit(s string) (seconds int64) {
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
		seconds = seconds*60 + int64(v)
	}
	return seconds + int64(n)*24*3600
}

// Nodes implements [Source].
func (c *CLI) Nodes(ctx context.Context) ([]run.Node, error) {
	out, err := c.ask(ctx, rpcNodes, answered, "sinfo", "--local", "--all", "--noheader", "--Node", "--format=%N|%R|%c|%m|%G|%T|%H|%E")
	if err != nil {
		return nil, err
	}
	return parseNodes(string(out.Stdout))
}

// Unusable returns the nodes that take no jobs; run.Queue has the contract.
func (c *CLI) Unusable(ctx context.Context) (map[string]run.Unusable, error) {
	list, err := c.Nodes(ctx)
	return run.UnusableNodes(list), err
}

// parseNodes parses the output of sinfo, with a line for each partition that a node is in.
func parseNodes(text string) (list []run.Node, err error) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 8)
		if len(f) < 8 || !nodeName.MatchString(f[0]) {
			return nil, fault.New(fault.Transport, "half_answer", "sinfo printed a line that is not about a node: "+fault.Clip(line))
		}
		n := run.Node{Name: f[0], Partition: f[1], State: f[5], Reason: f[7]}
		n.CPUs, _ = strconv.Atoi(f[2])
		n.MemMB, _ = strconv.Atoi(f[3])
		n.GPUs, n.GPUTypes = GPUs(f[4])
		if n.Since, err = parseTime(f[6]); err != nil {
			return nil, fault.Wrap(fault.Transport, "half_answer", "sinfo printed a line with an unknown time: "+fault.Clip(line), err)
		}
		list = append(list, n)
	}
	return list, nil
}

// GPUs returns the number and types of the GPUs in a node's generic resources, such as gpu:a100:4(S:0-1),gpu:2,shard:8.
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

// Archs lists the architectures of the cluster's nodes in Go's spelling, e.g. amd64; one that Go does not know stays as Slurm writes it. A
// node that never registered has none.
func (c *CLI) Archs(ctx context.Context) ([]string, error) {
	out, err := c.ask(ctx, 1, answered, "scontrol", "show", "node", "--oneliner")
	return archs(string(out.Stdout)), err
}

func archs(text string) (list []string) {
	for line := range strings.Lines(text) {
		for word := range strings.FieldsSeq(line) {
			name, is := strings.CutPrefix(word, "Arch=")
			if !is || strings.HasPrefix(name, "(") {
				continue
			}
			if name = Arch(name); !slices.Contains(list, name) {
				list = append(list, name)
			}
			break // the rest may be text that an admin wrote
		}
	}
	slices.Sort(list)
	return list
}

// Arch converts Slurm's name of an architecture to Go's.
func Arch(name string) string {
	return cmp.Or(map[string]string{"x86_64": "amd64", "aarch64": "arm64", "i686": "386"}[name], name)
}

// QOS implements [Source].
func (c *CLI) QOS(ctx context.Context) (list []run.QOS, err error) {
	out, err := c.ask(ctx, rpcDatabase, answered, "sacctmgr", "--noheader", "--parsable2", "show", "qos",
		"format=Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out.Stdout)) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 4 {
			list = append(list, run.QOS{Name: f[0], Submit: least(f[1:])})
		}
	}
	return list, nil
}

// least returns the smallest limit; an empty text means no limit.
func least(limits []string) (n *int) {
	for _, text := range limits {
		if v, err := strconv.Atoi(text); err == nil {
			n = run.Least(n, &v)
		}
	}
	return n
}

// Accounts implements [Source].
func (c *CLI) Accounts(ctx context.Context, cluster, user string) (map[string]run.UserAccounts, error) {
	args := []string{"--noheader", "--parsable2", "show", "user"}
	if user != "" {
		args = append(args, user)
	}
	out, err := c.ask(ctx, rpcDatabase, answered, "sacctmgr", append(args, "withassoc", "cluster="+cluster,
		"format=User,DefaultAccount,Cluster,Account,Partition,QOS,MaxSubmitJobs,GrpSubmitJobs")...)
	if err != nil {
		return nil, err
	}
	rows, odd, example := associations(string(out.Stdout), cluster)
	c.reportUnread("sacctmgr", odd, "a line does not have eight fields", example)
	return run.ByUser(rows), nil
}

// associations parses User|DefaultAccount|Cluster|Account|Partition|QOS|MaxSubmitJobs|GrpSubmitJobs, a line for each
// association; users without one have a line with empty fields. Lines in another form are counted and skipped.
func associations(text, cluster string) (rows []run.Association, odd int, example string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		f := strings.Split(line, "|")
		switch {
		case line == "":
		case len(f) != 8 || f[0] == "":
			if odd++; odd == 1 {
				example = line
			}
		case f[3] != "" && SameCluster(f[2], cluster):
			rows = append(rows, run.Association{User: f[0], Account: f[3], Default: f[1] == f[3], Partition: f[4],
				QOS: strings.FieldsFunc(f[5], func(r rune) bool { return r == ',' }), Submit: least(f[6:])})
		}
	}
	return rows, odd, example
}
