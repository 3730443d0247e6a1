package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"slurmgate/run"
)

// minutes returns the time limit to request: the program's own limit plus the allowance for hashing, rounded up to
// Slurm's unit. sbatch would round up too, but reads 0 as "no limit".
func (r *Renderer) minutes(limitSeconds int) int {
	return (limitSeconds + r.cfg.VerifyAllowanceSeconds + 59) / 60
}

// fixed holds the options of every sbatch.
var fixed = []string{"--parsable",
	"--export=NIL",     // nothing of the gateway's environment reaches the job
	"--propagate=NONE", // and none of its limits
	"--no-requeue",     // a second start would find the claim taken
	"--nodes=1", "--ntasks=1"}

// Argv returns the arguments of sbatch for the job, script last. They are complete: the script holds no #SBATCH line,
// and on the command line every option wins over SBATCH_ variables, which the environment of a send does not contain
// anyway. Every option not set here keeps the site's default, and no plan can set it.
func (r *Renderer) Argv(job run.JobSpec) ([]string, error) {
	if err := r.checkJob(job); err != nil {
		return nil, err
	}
	s, name := job.Spec, job.JobName
	if job.Array != nil {
		name = job.Array.Name
	}
	argv := append(slices.Clone(fixed),
		"--cpus-per-task="+strconv.Itoa(s.Resources.CPUs),
		"--mem="+strconv.Itoa(s.Resources.MemMB)+"M",
		"--time="+strconv.Itoa(r.minutes(s.Resources.TimeLimitSeconds)),
		"--job-name="+name,
		"--comment="+note(job),
		"--partition="+s.Placement.Partition,
		"--account="+s.Placement.Account,
	)
	if s.Placement.QOS != nil {
		argv = append(argv, "--qos="+*s.Placement.QOS)
	}
	if s.Placement.Constraint != nil {
		argv = append(argv, "--constraint="+*s.Placement.Constraint)
	}
	if len(job.Exclude) > 0 {
		argv = append(argv, "--exclude="+strings.Join(job.Exclude, ","))
	}
	if g := s.Resources.GPUs; g != nil {
		kind := ""
		if s.Resources.GPUType != nil {
			kind = *s.Resources.GPUType + ":"
		}
		argv = append(argv, fmt.Sprintf("--gres=gpu:%s%d", kind, *g))
	}
	return append(append(argv, own(job)...), "--open-mode=append", job.ControlPath(scriptFile(job))), nil
}
