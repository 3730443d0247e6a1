package run

import (
	"context"
	"fmt"
)

// requeued is what accounting shows for a start of a job that was given up for another one. The watcher records it for
// an attempt whose job waits for such a start in vain.
const requeued = "REQUEUED"

// startedBefore reports whether the job, which waits in Slurm for another start, has already had the start that took
// the attempt's claim: the next start can only find that and end with 90, so the attempt has ended.
func (e *Engine) startedBefore(ctx context.Context, v View, j Job) (bool, error) {
	if j.Class != ClassPending || j.Restarts < 1 || v.Run.CancelAt != nil {
		return false, nil
	}
	claim, who, err := e.readClaim(ctx, v)
	return err == nil && who == heldByJob && claim.Holder.Job == j.ID && claim.Holder.Restart < j.Restarts, err
}

// requeuedDetail returns the detail of such an attempt's end.
func requeuedDetail(j Job) string {
	return fmt.Sprintf("Slurm stopped job %s and queued it again; its script had the claim already, so the next start could only end with %d",
		j.ID, ExitClaimNotOurs)
}
