package slurm

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/run"
)

// NodeProbe is a small job, or an array of them, with which doctor checks compute nodes.
type NodeProbe struct {
	Name       string // job name
	Script     string // path of the script, as the host of sbatch sees it
	Text       string // text of the script, for a transport that sends it
	Partitions []string
	Account    string
	QOS        string   // may be empty
	Exclude    []string // nodes not to use
	Node       string   // the only node to use; empty: any
	Tasks      int      // of an array that is held until [CLI.BindTasks] has given each its node; 0: a single job
}

// ProbeArgs returns the options of sbatch for a probe.
func ProbeArgs(p NodeProbe) []string {
	args := append(slices.Clone(fixed), "--cpus-per-task=1", "--mem=100M", "--time=2", "--job-name="+p.Name,
		"--partition="+strings.Join(p.Partitions, ","), "--account="+p.Account, "--chdir=/", "--output=/dev/null", "--error=/dev/null")
	if p.QOS != "" {
		args = append(args, "--qos="+p.QOS)
	}
	if len(p.Exclude) > 0 {
		args = append(args, "--exclude="+strings.Join(p.Exclude, ","))
	}
	if p.Node != "" {
		args = append(args, "--nodelist="+p.Node)
	}
	if p.Tasks > 0 {
		args = append(args, "--hold", fmt.Sprintf("--array=0-%d", p.Tasks-1))
	}
	return args
}

// SubmitProbe sends a probe: one CPU and 100 MB for two minutes, nothing of the caller's environment, and no output
// file, so that the script starts even where the shared folders are missing. Unlike a run it may be sent twice without
// harm, so the rules of a plain query suffice. It returns the job id.
func (c *CLI) SubmitProbe(ctx context.Context, p NodeProbe) (id string, err error) {
	anyExit := func(Output) bool { return true }
	out, err := c.ask(ctx, 1, anyExit, "sbatch", append(ProbeArgs(p), p.Script)...)
	if err != nil {
		return "", err
	}
	res := Classify(string(out.Stdout), out.Stderr, &out.Exit)
	if res.JobID == "" {
		return "", fault.New(fault.Transport, "probe_refused", "Slurm did not accept the probe job: "+strings.TrimSpace(res.Text))
	}
	return res.JobID, nil
}

// hostlist matches what [CLI.Hostnames] expands: names, commas and ranges.
var hostlist = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.,_\[\]-]*$`)

// Hostnames expands a list of node names as Slurm writes it, e.g. n[1-3,7]. No daemon is asked.
func (c *CLI) Hostnames(ctx context.Context, list string) ([]string, error) {
	if len(list) > 4000 || !hostlist.MatchString(list) {
		return nil, fault.New(fault.Validation, "NODE-LIST", fmt.Sprintf("%q is not a list of node names, such as n1,n[3-7]", list))
	}
	out, err := c.ask(ctx, 0, answered, "scontrol", "show", "hostnames", list)
	return strings.Fields(string(out.Stdout)), err
}

// bindAtOnce is the number of tasks that one scontrol binds.
const bindAtOnce = 50

// BindTasks gives each task of a held array its node and releases the array. sbatch accepts one list of nodes for a
// whole array, so each task is updated separately: one small RPC for each, from a few processes. It returns Slurm's
// messages about tasks that it did not bind, by number; they stay held. These RPCs do not count against the site's
// budget, which would spread those of 500 nodes over minutes.
func (c *CLI) BindTasks(ctx context.Context, id string, at []run.Node) (refused map[int]string, err error) {
	refused = map[int]string{}
	for first := 0; first < len(at); first += bindAtOnce {
		var in bytes.Buffer
		for i, n := range at[first:min(first+bindAtOnce, len(at))] {
			fmt.Fprintf(&in, "update jobid=%s_%d partition=%s reqnodelist=%s\nrelease %s_%d\n", id, first+i, n.Partition, n.Name, id, first+i)
		}
		out, err := c.feed(ctx, &in, "scontrol", "--oneliner")
		if err != nil {
			return refused, err
		}
		for line := range strings.Lines(out.Stderr) {
			if m := bindRefused.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				if n, err := strconv.Atoi(m[2]); err == nil && m[1] == id {
					refused[n] = m[3]
				}
			}
		}
	}
	return refused, nil
}

// bindRefused matches a message of scontrol about a task: "8_2: Invalid node name specified".
var bindRefused = regexp.MustCompile(`^([0-9]+)_([0-9]+): (.+)$`)

// JobName asks slurmctld for the name of a job: a plugin may have changed it, and the name is our key.
func (c *CLI) JobName(ctx context.Context, id string) (string, error) {
	out, err := c.ask(ctx, 1, answered, "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%j")
	name, _, _ := strings.Cut(string(out.Stdout), "\n")
	return strings.TrimSpace(name), err
}
