package main

import (
	"context"

	"slurmgate/fault"
	"slurmgate/local"
	"slurmgate/plan"
	"slurmgate/run"
)

// backends combines Slurm and the gateway's own host: a plan says which of the two it is for.
type backends struct {
	run.Sender
	run.Observer
	local *local.Backend
}

func (b backends) of(job run.JobSpec) run.Sender {
	if job.Spec.Local() {
		return b.local
	}
	return b.Sender
}

// Render returns the job script.
func (b backends) Render(job run.JobSpec) ([]byte, error) { return b.of(job).Render(job) }

// Pinned returns the list of pinned files.
func (b backends) Pinned(job run.JobSpec) []byte { return b.of(job).Pinned(job) }

// Send submits a job to the backend that its plan names.
func (b backends) Send(ctx context.Context, job run.JobSpec, k int) run.SendResult {
	return b.of(job).Send(ctx, job, k)
}

// Receipt reads what an earlier send left.
func (b backends) Receipt(ctx context.Context, job run.JobSpec, k int) (run.SendResult, bool) {
	return b.of(job).Receipt(ctx, job, k)
}

// Queue is Slurm's complete answer together with the local runs.
func (b backends) Queue(ctx context.Context, sought map[string]bool) ([]run.Job, error) {
	jobs, err := b.Observer.Queue(ctx, sought)
	if err != nil {
		return nil, err
	}
	return append(jobs, b.local.Jobs()...), nil
}

// Cancel calls both: only one has a job with this id and name.
func (b backends) Cancel(ctx context.Context, jobID, name string) error {
	for _, j := range b.local.Jobs() {
		if j.ID == jobID && j.Name == name {
			return b.local.Cancel(jobID, name)
		}
	}
	return b.Observer.Cancel(ctx, jobID, name)
}

// allowOrder checks with policy whether a plan made by a tool is allowed, wherever it is to run.
func (g *gateway) allowOrder(spec plan.Spec, tool, image string, inputBytes int64) error {
	if spec.Local() {
		return g.policy.AllowLocal(spec, tool, image, inputBytes)
	}
	return g.policy.AllowPlan(spec, false, image)
}

// pickLocal decides where a hybrid tool runs: here if policy has room for it, else in Slurm.
func (g *gateway) pickLocal(tool, image string) func(plan.Spec, int64) bool {
	return func(spec plan.Spec, inputBytes int64) bool {
		return !fault.Is(g.policy.AllowLocal(spec, tool, image, inputBytes), fault.Policy)
	}
}
