package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Condition is what doctor asks a cluster besides [Probe].
type Condition struct {
	Values     map[string]string // of scontrol show config
	At         time.Time         // slurmctld's clock when it answered; zero: it did not say
	Partitions []PartitionState
}

// PartitionState is a partition as slurmctld has it.
type PartitionState struct {
	Name   string
	State  string         // UP, DOWN, DRAIN or INACTIVE
	Nodes  int            // all of them
	States map[string]int // nodes by state, without the marks of Slurm: idle, mixed, down, drained, …
}

// Usable is how many nodes of a partition are neither down nor drained.
func (p PartitionState) Usable() (n int) {
	for state, nodes := range p.States {
		if !slices.Contains([]string{"down", "drained", "draining", "drain", "fail", "failing", "error", "unknown", "inval", "future"}, state) {
			n += nodes
		}
	}
	return n
}

// Condition asks for the configuration and the partitions.
func (c *CLI) Condition(ctx context.Context) (s Condition, err error) {
	out, err := c.ask(ctx, rpcConfig, clean, "scontrol", "show", "config")
	if err != nil {
		return s, err
	}
	text := string(out.Stdout)
	s.Values, s.At = configValues(text), answeredAt(text)
	if out, err = c.ask(ctx, 1, clean, "scontrol", "show", "partition", "--oneliner"); err != nil {
		return s, err
	}
	s.Partitions = partitionStates(string(out.Stdout))
	if out, err = c.ask(ctx, 1, clean, "sinfo", "--noheader", "--format=%R|%T|%D"); err != nil {
		return s, err
	}
	nodesByState(s.Partitions, string(out.Stdout))
	return s, nil
}

// answeredAt reads "Configuration data as of 1795361949": the time is slurmctld's.
func answeredAt(text string) time.Time {
	line, _, _ := strings.Cut(text, "\n")
	n, err := strconv.ParseInt(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// partitionStates reads lines of words Key=value.
func partitionStates(text string) (list []PartitionState) {
	for line := range strings.Lines(text) {
		v := map[string]string{}
		for word := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(word, "=")
			v[key] = value
		}
		if v["PartitionName"] == "" {
			continue
		}
		nodes, _ := strconv.Atoi(v["TotalNodes"]) // none if it cannot be read
		list = append(list, PartitionState{Name: v["PartitionName"], State: v["State"], Nodes: nodes, States: map[string]int{}})
	}
	return list
}

// nodesByState reads lines partition|state|number.
func nodesByState(list []PartitionState, text string) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 {
			continue
		}
		n, err := strconv.Atoi(f[2])
		i := slices.IndexFunc(list, func(p PartitionState) bool { return p.Name == f[0] })
		if err == nil && i >= 0 {
			list[i].States[strings.TrimRight(f[1], "*~#!%$@^-+")] += n
		}
	}
}

// Association is an account that a user may charge.
type Association struct {
	Account   string
	Partition string   // only there; empty: everywhere
	QOS       []string // that it may use
	Submit    *int     // jobs that may be queued or running; nil: no limit
}

// QOS is a quality of service, with the least of its limits on jobs that one user may have queued or running.
type QOS struct {
	Name   string
	Submit *int // nil: no limit
}

// Associations asks the accounting database what the gateway's user may charge, and which QOS there are.
func (c *CLI) Associations(ctx context.Context, cluster string) (list []Association, qos []QOS, err error) {
	out, err := c.ask(ctx, 1, clean, "sacctmgr", "--noheader", "--parsable2", "show", "associations", "user="+c.cfg.User,
		"cluster="+cluster, "format=Account,Partition,QOS,MaxSubmitJobs,GrpSubmitJobs")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(out.Stdout)) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 5 {
			list = append(list, Association{Account: f[0], Partition: f[1], QOS: strings.FieldsFunc(f[2], func(r rune) bool { return r == ',' }),
				Submit: least(f[3:])})
		}
	}
	out, err = c.ask(ctx, 1, clean, "sacctmgr", "--noheader", "--parsable2", "show", "qos",
		"format=Name,MaxSubmitJobsPerUser,MaxSubmitJobsPerAccount,GrpSubmitJobs")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(out.Stdout)) {
		if f := strings.Split(strings.TrimSpace(line), "|"); len(f) == 4 {
			qos = append(qos, QOS{f[0], least(f[1:])})
		}
	}
	return list, qos, nil
}

// least is the smallest of some limits; an empty one is none.
func least(limits []string) (n *int) {
	for _, text := range limits {
		if v, err := strconv.Atoi(text); err == nil && (n == nil || v < *n) {
			n = &v
		}
	}
	return n
}

// Accepts asks slurmctld whether it would accept a job (sbatch --test-only); nothing is submitted. A job that it refuses is a Validation
// fault with Slurm's words.
func (c *CLI) Accepts(ctx context.Context, r plan.Resources, p plan.Placement) error {
	args := append([]string{"--test-only", "--wrap=/bin/true"}, fixed...)
	args = append(args, "--cpus-per-task="+strconv.Itoa(r.CPUs), "--mem="+strconv.Itoa(r.MemMB)+"M",
		"--time="+strconv.Itoa(c.minutes(r.TimeLimitSeconds)), "--partition="+p.Partition, "--account="+p.Account, "--chdir=/")
	if p.QOS != nil {
		args = append(args, "--qos="+*p.QOS)
	}
	if p.Constraint != nil {
		args = append(args, "--constraint="+*p.Constraint)
	}
	if r.GPUs != nil {
		kind := ""
		if r.GPUType != nil {
			kind = *r.GPUType + ":"
		}
		args = append(args, fmt.Sprintf("--gres=gpu:%s%d", kind, *r.GPUs))
	}
	out, err := c.ask(ctx, 1, func(Output) bool { return true }, "sbatch", args...)
	if err != nil {
		return err
	}
	if out.Exit != 0 {
		return fault.New(fault.Validation, "rejected", oneLine(out.Stderr))
	}
	return nil
}
