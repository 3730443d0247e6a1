package run

import (
	"context"
	"fmt"
	"time"
)

// Unlimited is the limit of a job without one, in seconds.
const Unlimited = 999_999_999

// isAt reports whether the record shows the partition, the account and the limit, as far as it shows any.
func (j *Job) isAt(partition, account string, limit int64) bool {
	return (j.Partition == "" || j.Partition == partition) && (j.Account == "" || j.Account == account) && (j.Limit == 0 || j.Limit == limit)
}

// sentLimit returns the limit with which a job is sent, in seconds.
func (c Config) sentLimit(job JobSpec) int64 {
	seconds := int64(job.Spec.Resources.TimeLimitSeconds) + int64(c.Allowance/time.Second)
	return (seconds + 59) / 60 * 60
}

// leaveLimit writes the job's limit where its script reads it, if Slurm shows a higher one than before, or than the job
// was sent with: the script would otherwise end the program by the lower one.
func (e *Engine) leaveLimit(ctx context.Context, v View, j Job) error {
	a := v.Attempt
	if a.Limit == 0 || j.Limit <= a.Limit || j.Class == ClassEnded || v.Submission.JobID != j.ID {
		return nil
	}
	if _, err := e.readControl(ctx, v, PinnedFile); err != nil {
		return unlessMissing(err) // a folder that is gone is not made again
	}
	text := fmt.Sprintf("slurmgate-limit 1 token=%s seconds=%d\n", v.Submission.Token, min(j.Limit, Unlimited))
	return e.Workspace.OpenAttempt(ctx, v.Run.ID, a.N, v.Submission.Token, ControlFile{LimitFile, []byte(text)})
}
