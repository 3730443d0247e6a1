package ledger

import (
	"context"

	"slurmgate/run"
)

// RetryHelps reports whether another attempt of a row that failed may end better than its last one. One that waited
// in vain does so only if what it waited for is there or may come.
func (l *Ledger) RetryHelps(ctx context.Context, batchID string) (helps bool, err error) {
	err = each(ctx, l.r, func(row scanner) error {
		var again bool
		var ending run.Ending
		var reason string
		err := row.Scan(&again, &ending, &reason)
		helps = helps || !again || !run.FailsAgain(ending, reason)
		return err
	}, "SELECT "+deterministic+`, r.ending, r.reason FROM (SELECT DISTINCT r.state, r.pack_hash, r.reason, a.ending FROM batch_rows w
 JOIN runs r ON r.run_id = w.run_id JOIN attempts a ON a.run_id = r.run_id AND a.n = r.attempt_n WHERE w.batch_id = ? AND w.state = 'failed') r`, batchID)
	if err != nil || helps {
		return helps, err
	}
	err = l.one(ctx, `SELECT EXISTS (SELECT 1 FROM batch_rows w WHERE w.batch_id = ? AND w.state = 'failed' AND w.run_id IS NULL
 AND NOT EXISTS (SELECT 1`+sourceRuns+` WHERE i.run_id = w.waiting_id AND r.state IN ('failed','cancelled')))`, batchID).Scan(&helps)
	return helps, storage(err)
}
