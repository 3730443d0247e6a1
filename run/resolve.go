package run

import (
	"context"
	"fmt"

	"slurmgate/fault"
)

// resolve settles a run in doubt once complete answers of squeue and of accounting (if there is any) show
// no job with its name: absence is enforced, not observed. If sbatch has ended without a receipt, the gateway takes
// the claim itself. If it wins, no job of this attempt can ever execute, however late it arrives.
func (e *Engine) resolve(ctx context.Context, v View) (moved bool, err error) {
	p, err := e.params(ctx, v)
	if err != nil {
		return false, err
	}
	job := e.job(v, p)
	res, held := e.Submitter.Receipt(ctx, job, v.Sends)
	if held {
		return false, nil // its sbatch may still succeed
	}
	if res.Outcome != SendDoubt {
		return true, e.settleSend(ctx, v, job, v.Sends, res)
	}
	return e.noneExecuted(ctx, v, "sbatch left no receipt and Slurm shows no such job")
}

func orEnding(v View) Ending {
	if v.Run.CancelAt != nil {
		return EndedCancelled
	}
	return EndedAbsent
}

// adopt takes over the job that the claim names: it has started, whatever Slurm showed so far.
func (e *Engine) adopt(ctx context.Context, v View, c Claim) (bool, error) {
	if c.Token != v.Submission.Token {
		return true, e.foreignClaim(ctx, v)
	}
	now := e.Now()
	v = withJob(v, c.Holder.Job)
	v.Submission.JobID = c.Holder.Job
	a := v.Attempt
	a.SlurmState, a.SlurmWhy, a.Node, a.StartedAt, a.EndedAt, a.MissedAt = "", "", c.Node, orTime(a.StartedAt, now), nil, nil
	v.Run.enter(InJob, "", "")
	sayCancelling(&v.Run, c.Holder.Job)
	_, err := e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Submission: &v.Submission,
		Event: Event{Type: "run.adopted", Data: map[string]any{"job_id": c.Holder.Job, "by": "claim", "node": c.Node}}})
	return err == nil, err
}

// withJob makes room for the job with this id: if it is another one than before, nothing that was known of the former is true of it.
func withJob(v View, id string) View {
	if v.Submission.JobID == id {
		return v
	}
	s, a := &v.Submission, &v.Attempt
	s.JobID, s.Cluster, s.SubmittedAt, s.SLUID = "", "", nil, ""
	a.SlurmState, a.SlurmWhy, a.Node, a.StartedAt, a.EndedAt, a.MissedAt = "", "", "", nil, nil, nil
	return v
}

// foreignClaim: the attempt's claim belongs to another submission, or is not a claim at all. No job of this one can execute any
// more, but it is unknown what did; a person decides.
func (e *Engine) foreignClaim(ctx context.Context, v View) error {
	return e.block(ctx, v, NeedsOperator, "the claim in the attempt's folder belongs to another submission; look into the folder before "+
		"you cancel the run")
}

// several: more than one job has the run's name, or the one that has it has another id. Only pending ones
// are cancelled; the job that holds the claim is the execution.
func (c *cycle) several(ctx context.Context, v View, found []Job) (bool, error) {
	claim, err := c.readClaim(ctx, v)
	if fault.Is(err, fault.NotFound) {
		var keep string
		for _, j := range found {
			if j.Class == ClassPending && keep != "" {
				c.cancels.cancel(j.ID, j.Name)
				continue
			}
			if j.Class != ClassEnded {
				keep = j.ID
			}
		}
		if keep != "" {
			return false, nil // the next cycle sees fewer of them
		}
		return c.noneExecuted(ctx, v, fmt.Sprintf("%d jobs of the attempt ended, and none took the claim", len(found)))
	}
	if err != nil {
		return false, err
	}
	switch {
	case claim.Token != v.Submission.Token:
		return true, c.foreignClaim(ctx, v)
	case claim.Void:
		return true, c.finish(ctx, v, verdict{ending: orEnding(v), detail: "the gateway has the claim: nothing was executed"})
	}
	for _, j := range found {
		if j.ID == claim.Holder.Job && v.Submission.JobID != j.ID {
			return c.observe(ctx, withJob(v, j.ID), []Job{j})
		}
	}
	if v.Submission.JobID == claim.Holder.Job {
		return c.missed(ctx, v)
	}
	return c.adopt(ctx, v, claim)
}

// noneExecuted ends an attempt by taking its claim, unless a job has it.
func (e *Engine) noneExecuted(ctx context.Context, v View, detail string) (bool, error) {
	claim, won, err := e.takeClaim(ctx, v)
	switch {
	case isGone(err):
		return true, e.folderGone(ctx, v)
	case err != nil:
		return false, err
	case won:
		return true, e.finish(ctx, v, verdict{ending: orEnding(v), detail: detail + "; the gateway took the claim, so none can execute"})
	}
	return e.adopt(ctx, v, claim)
}

// takeClaim tries to take the claim for the gateway. won is true when this attempt can never execute (now, or
// since an earlier call); otherwise the claim names the job that has it. One that cannot be read has no token.
func (e *Engine) takeClaim(ctx context.Context, v View) (c Claim, won bool, err error) {
	data, err := e.Workspace.TakeClaim(ctx, v.Run.ID, v.Attempt.N, VoidClaim(v.Submission.Token))
	switch {
	case isGone(err), ctx.Err() != nil:
		return Claim{}, false, err
	case err != nil:
		return Claim{}, false, e.ofFiles(v, "the holder of the claim cannot be determined", err)
	}
	if c, err = ParseClaim(data); err != nil {
		return Claim{}, false, nil
	}
	return c, c.Void && c.Token == v.Submission.Token, nil
}
