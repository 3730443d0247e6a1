package main

import (
	"context"

	"slurmgate/local"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
)

// backends combines Slurm and the gateway's own host: a plan says which of the two it is for.
type backends struct {
	*slurm.CLI
	local   *local.Backend
	scripts *slurm.Renderer // of docker plans
}

// Render returns the script and the pinned files of a job.
func (b backends) Render(job run.JobSpec) (script, pinned []byte, err error) {
	if job.Spec.Placement == (plan.Placement{}) {
		return b.scripts.Render(job)
	}
	return b.CLI.Render(job)
}

func (b backends) of(job run.JobSpec) run.Submitter {
	if job.Spec.Placement == (plan.Placement{}) {
		return b.local
	}
	return b.CLI
}

// Send submits a job to the backend that its plan names.
func (b backends) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	return b.of(job).Send(ctx, job, k)
}

// Receipt reads what an earlier send left.
func (b backends) Receipt(ctx context.Context, job run.JobSpec, k int) (run.SendResult, bool) {
	return b.of(job).Receipt(ctx, job, k)
}

// Jobs is Slurm's complete answer together with the local runs.
func (b backends) Jobs(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	jobs, err := b.CLI.Jobs(ctx, sought)
	if err != nil {
		return nil, err
	}
	here, err := b.local.Jobs(ctx, sought)
	return append(jobs, here...), err
}

// Cancel calls both: only one has a job with this id and name.
func (b backends) Cancel(ctx context.Context, jobID, name string) error {
	here, err := b.local.Jobs(ctx, nil)
	if err != nil {
		return err
	}
	for _, j := range here {
		if j.ID == jobID && j.Name == name {
			return b.local.Cancel(ctx, jobID, name)
		}
	}
	return b.CLI.Cancel(ctx, jobID, name)
}
