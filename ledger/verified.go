package ledger

import (
	"context"

	"slurmgate/run"
)

// Unverified lists the inputs of a run whose bytes did not pass every check of their type; run.Index has the contract.
func (l *Ledger) Unverified(ctx context.Context, runID string) ([]run.Output, error) {
	return list(ctx, l.r, scanLinked, `SELECT i.role, i.relpath, `+artifactColumns+
		` FROM run_inputs i JOIN artifacts a ON a.artifact_id = i.artifact_id
 WHERE i.run_id = ? AND NOT EXISTS (SELECT 1 FROM verified v WHERE v.sha256 = a.sha256 AND v.type = a.type) ORDER BY i.role, i.relpath`, runID)
}

// Verified records that bytes passed every check of a type; run.Index has the contract.
func (l *Ledger) Verified(ctx context.Context, sha256, typ string) error {
	return l.write(ctx, "INSERT INTO verified VALUES (?,?,?) ON CONFLICT DO NOTHING", sha256, typ, micros(l.now()))
}
