package run

import "context"

// The folder of an attempt may disappear before its run has ended: a person removed it, or the ledger was restored from
// a backup older than the removal of the workspace. No job can execute the attempt any more, because nothing is pinned
// there; but it is unknown whether one did and what it produced. So the attempt is neither absent nor lost, no new
// attempt is opened automatically, and a person decides.

// WorkspaceGone is the reason of a run that was given up because its attempt's folder is gone.
const WorkspaceGone = "workspace_gone"

func (e *Engine) blockFolderGone(ctx context.Context, v View) error {
	return e.block(ctx, v, NeedsOperator, "the attempt's folder is gone, so it is unknown whether it was executed; no job of it can "+
		"execute any more; restore the newer ledger or cancel the run")
}

// giveUpGone ends such a run on request.
func (e *Engine) giveUpGone(ctx context.Context, v View) error {
	return e.finish(ctx, v, verdict{ending: EndedCancelled, reason: WorkspaceGone,
		detail: "given up: the attempt's folder is gone, and it is unknown whether it was executed", exit: v.Attempt.ExitCode})
}
