package run

import (
	"context"
)

// takeOver takes over an attempt that is in the workspace but not in this ledger, restored from a backup, if the
// attempt's job has succeeded: the holder of the claim left the exit record and a whole manifest. The folder is that of
// the run's id, so the job executed the same plan. From then on it is judged like any job that was found by its claim:
// nothing is computed again. whole is false without such a proof, and in a user's own folder, where that user could
// have written it without a job.
func (e *Engine) takeOver(ctx context.Context, v View) (whole bool, err error) {
	if v.Run.ExecutedAs != "" {
		return false, nil
	}
	x, err := e.readExit(ctx, v)
	if err != nil || x.Reason != "ok" {
		return false, unlessMissing(err)
	}
	data, err := e.readControl(ctx, v, ClaimFile)
	if err != nil {
		return false, unlessMissing(err)
	}
	c, err := ParseClaim(data)
	if err != nil || c.Void || c.Holder != x.Holder {
		return false, nil
	}
	if data, err = e.readManifest(ctx, v); err != nil {
		return false, unlessMissing(err)
	}
	if m, err := ParseManifest(data); err != nil || m.Holder != x.Holder {
		return false, nil
	}
	v.Attempt.Token = c.Token
	v.Submission = Submission{Token: c.Token, JobName: JobName(v.Run.ID, v.Attempt.N, c.Token), CreatedAt: v.Submission.CreatedAt}
	return e.adopt(ctx, v, c)
}
