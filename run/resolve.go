package run

import (
	"cmp"
	"context"
	"fmt"

	"slurmgate/fault"
)

// resolve settles a run in doubt once complete answers of squeue and of accounting (if there is any) show no job with
// its name: absence is enforced, not observed. If sbatch has ended without a receipt, the gateway takes the claim
// itself. If it gets the claim, no job of this attempt can ever execute, however late it arrives.
func (e *Engine) resolve(ctx context.Context, v View) (moved bool, err error) {
	p, err := e.params(ctx, v)
	if err != nil {
		return false, err
	}
	job := e.job(v, p)
	res, held := e.receipt(ctx, v, job)
	if held && e.believesHeld(v) {
		return false, e.note(ctx, v, SendHeld, heldDetail(res)) // it may still succeed
	}
	if held {
		return e.makeAbsent(ctx, v, "sbatch did not end, and Slurm shows no such job")
	}
	if res.Outcome != SendDoubt {
		return true, e.settleSend(ctx, v, job, v.Sends, res)
	}
	if v.Run.Reason == RefusedInWords { // slurmrestd's answer is stored nowhere else
		res.Code, res.Text = v.Run.Reason, v.Run.Detail
	}
	switch {
	case res.Code != RefusedInWords:
		return e.makeAbsent(ctx, v, "sbatch left no receipt and Slurm shows no such job")
	case v.Submission.Array != "":
		return e.makeAbsent(ctx, v, "Slurm refused the array that the run was sent in: "+res.Text)
	case v.Run.CancelAt != nil:
		return e.makeAbsent(ctx, v, "Slurm refused the job: "+res.Text)
	}
	return e.makeVoid(ctx, v, verdict{ending: EndedRejected, detail: "Slurm refused the job: " + res.Text})
}

func cancelledOrAbsent(v View) Ending {
	if v.Run.CancelAt != nil {
		return EndedCancelled
	}
	return EndedAbsent
}

// adopt makes the job that the claim names the run's job: it has started, whatever Slurm has shown so far.
func (e *Engine) adopt(ctx context.Context, v View, c Claim) (bool, error) {
	now := e.Now()
	v = withJob(v, c.Holder.Job)
	v.Submission.JobID = c.Holder.Job
	a := v.Attempt
	a.SlurmState, a.SlurmWhy, a.Node, a.StartedAt, a.EndedAt, a.MissedAt = "", "", c.Node, cmp.Or(a.StartedAt, &now), nil, nil
	v.Run.enter(InJob, "", "")
	setCancelling(&v.Run, c.Holder.Job)
	_, err := e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Submission: &v.Submission,
		Event: Event{Type: "run.adopted", Data: map[string]any{"job_id": c.Holder.Job, "by": "claim", "node": c.Node}}})
	e.watcher.wake()
	return err == nil, err
}

// withJob sets the run's job to the one with this id. If that is another job than before, it clears what was known of
// the former.
func withJob(v View, id string) View {
	if v.Submission.JobID == id {
		return v
	}
	s, a := &v.Submission, &v.Attempt
	s.JobID, s.Cluster, s.SubmittedAt, s.SLUID = "", "", nil, ""
	a.SlurmState, a.SlurmWhy, a.Node, a.StartedAt, a.EndedAt, a.MissedAt = "", "", "", nil, nil, nil
	return v
}

// blockForeignClaim blocks a run whose attempt's claim belongs to another submission, or is not a claim at all. No job
// of this submission can execute any more, but it is unknown what did; a person decides.
func (e *Engine) blockForeignClaim(ctx context.Context, v View) error {
	return e.block(ctx, v, NeedsOperator, "the claim in the attempt's folder belongs to another submission; look into the folder before "+
		"you cancel the run")
}

// chooseAmong handles a run if more than one job has its name, or the one that has it has another id. Only pending jobs
// are cancelled; the job that holds the claim is the execution.
func (c *cycle) chooseAmong(ctx context.Context, v View, found []Job) (bool, error) {
	if c.seen != nil { // an unreadable record may be another one
		if lost := mayBeOf(c.userOf(v.Run.ExecutedAs), c.seen.lost); lost != nil {
			return false, c.cannotTell(ctx, v, lost)
		}
	}
	claim, who, err := c.readClaim(ctx, v)
	if who == notHeld {
		var keep *Job
		for i, j := range found {
			if j.Class == ClassPending && keep != nil && j.Attempt == "" { // the folder alone does not prove that it is the run's
				c.cancels.cancel(v.Run, jobAsShown(v, j))
				continue
			}
			if j.Class != ClassEnded {
				keep = &found[i]
			}
		}
		switch {
		case keep != nil && keep.Attempt != "":
			return false, c.note(ctx, v, JobRenamed, renamedDetail(v, *keep))
		case keep != nil:
			return false, nil // the next cycle sees fewer of them
		}
		return c.makeAbsent(ctx, v, fmt.Sprintf("%d jobs of the attempt ended, and none took the claim", len(found)))
	}
	switch {
	case err != nil:
		return false, err
	case who == heldByOther:
		return true, c.blockForeignClaim(ctx, v)
	case who == heldByGateway:
		return true, c.finish(ctx, v, verdict{ending: cancelledOrAbsent(v), detail: "the gateway has the claim: nothing was executed"})
	}
	for _, j := range found {
		if j.ID == claim.Holder.Job && v.Submission.JobID != j.ID {
			return c.observe(ctx, withJob(v, j.ID), []Job{j})
		}
	}
	if v.Submission.JobID == claim.Holder.Job {
		return c.countAbsence(ctx, v, nil)
	}
	return c.adopt(ctx, v, claim)
}

// RefusedInWords is the code of a doubt: slurmctld has answered with an error that is not in Slurm's table, as a site's
// job_submit plugin makes it do; the text has the plugin's message. It does not show whether the same job may be
// accepted later, so the attempt is rejected once no job can execute it. After an array the next attempts are sent
// alone: the message may be about the array.
const RefusedInWords = "refused_in_words"

// makeAbsent ends an attempt by taking its claim, unless a job has it.
func (e *Engine) makeAbsent(ctx context.Context, v View, detail string) (bool, error) {
	return e.makeVoid(ctx, v, verdict{ending: cancelledOrAbsent(v), detail: detail + "; the gateway took the claim, so none can execute"})
}

// makeVoid does what makeAbsent does, with d as the verdict.
func (e *Engine) makeVoid(ctx context.Context, v View, d verdict) (bool, error) {
	claim, who, err := e.takeClaim(ctx, v)
	switch {
	case err != nil:
		return false, err
	case who == folderMissing:
		return true, e.blockFolderGone(ctx, v)
	case who == heldByOther:
		return true, e.blockForeignClaim(ctx, v)
	case who == heldByGateway:
		return true, e.finish(ctx, v, d)
	}
	return e.adopt(ctx, v, claim)
}

// claimHolder is the kind of holder of an attempt's claim.
type claimHolder int

const (
	heldByJob     claimHolder = iota // the claim names it
	heldByGateway                    // no job can execute the attempt, now or later
	heldByOther                      // another submission, or the file is not a claim
	notHeld
	folderMissing // the attempt has no folder
)

// takeClaim takes the claim for the gateway, unless it is taken already, and returns the holder.
func (e *Engine) takeClaim(ctx context.Context, v View) (Claim, claimHolder, error) {
	data, err := e.Workspace.TakeClaim(ctx, v.Run.ID, v.Attempt.N, VoidClaim(v.Submission.Token))
	switch {
	case fault.CodeOf(err) == "attempt_missing":
		return Claim{}, folderMissing, nil
	case ctx.Err() != nil:
		return Claim{}, heldByOther, err
	case err != nil:
		return Claim{}, heldByOther, e.ofFiles(v, "the holder of the claim cannot be determined", err)
	}
	return holderOf(v, data)
}

// readClaim returns the holder of the claim without taking it.
func (e *Engine) readClaim(ctx context.Context, v View) (Claim, claimHolder, error) {
	data, err := e.readControl(ctx, v, ClaimFile)
	switch {
	case fault.Is(err, fault.NotFound):
		return Claim{}, notHeld, nil
	case err != nil:
		return Claim{}, heldByOther, err
	}
	return holderOf(v, data)
}

func holderOf(v View, data []byte) (Claim, claimHolder, error) {
	c, err := ParseClaim(data)
	switch {
	case err != nil || c.Token != v.Submission.Token:
		return Claim{}, heldByOther, nil
	case c.Void:
		return c, heldByGateway, nil
	}
	return c, heldByJob, nil
}
