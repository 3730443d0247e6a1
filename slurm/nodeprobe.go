package slurm

import (
	"context"
	"slices"
	"strings"

	"slurmgate/fault"
)

// NodeProbe is a small job by which doctor looks at a compute node.
type NodeProbe struct {
	Name      string // job name
	Dir       string // folder both sides see; the job's working folder
	Script    string // path of the script
	Output    string // path of what it prints
	Partition string
	Account   string
	QOS       string // may be empty
	Exclude   string // node not to use; may be empty
}

// SubmitProbe sends a probe: one minute, one CPU, 100 MB, nothing of the caller's environment. Unlike a run it
// may be sent twice without harm, so a plain query's rules do. It returns the job id.
func (c *CLI) SubmitProbe(ctx context.Context, p NodeProbe) (id string, err error) {
	const op = "slurm.SubmitProbe"
	args := append(slices.Clone(fixed), "--mem=100M", "--time=1", "--job-name="+p.Name, "--partition="+p.Partition,
		"--account="+p.Account, "--chdir="+p.Dir, "--output="+p.Output, "--error="+p.Output)
	if p.QOS != "" {
		args = append(args, "--qos="+p.QOS)
	}
	if p.Exclude != "" {
		args = append(args, "--exclude="+p.Exclude)
	}
	anyExit := func(Output) bool { return true }
	out, err := c.ask(ctx, op, 1, anyExit, "sbatch", append(args, p.Script)...)
	if err != nil {
		return "", err
	}
	res := Classify(string(out.Stdout), out.Stderr, &out.Exit)
	if res.JobID == "" {
		return "", fault.New(fault.Transport, op, "probe_refused", "Slurm did not accept the probe job: "+strings.TrimSpace(res.Text))
	}
	return res.JobID, nil
}

// JobName asks slurmctld for the name it keeps for a job: a plugin may have changed it, and the name is our key.
func (c *CLI) JobName(ctx context.Context, id string) (string, error) {
	out, err := c.ask(ctx, "slurm.JobName", 1, clean, "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%j")
	return strings.TrimSpace(string(out.Stdout)), err
}
