package slurm

import (
	"context"
	"fmt"
	"strconv"

	"slurmgate/fault"
	"slurmgate/plan"
)

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
