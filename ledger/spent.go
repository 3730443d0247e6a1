package ledger

import (
	"context"
	"database/sql"

	"slurmgate/run"
)

// had reads what a run's project and caller have had today, and of CPU time this month (UTC), within a transaction.
func (l *Ledger) had(ctx context.Context, tx *sql.Conn, r run.Run) (project, caller run.Spent, err error) {
	day := stored(l.now()).Format("2006-01-02")
	for _, of := range []struct {
		scope, name string
		into        *run.Spent
	}{{"project", r.ProjectID, &project}, {"caller", run.ShareOf(r).Caller, &caller}} {
		err := tx.QueryRowContext(ctx, `SELECT coalesce(sum(runs) FILTER (WHERE day = ?3), 0), coalesce(sum(cpu_seconds), 0) FROM spent
 WHERE scope = ?1 AND name = ?2 AND day >= ?4`, of.scope, of.name, day, day[:8]+"01").Scan(&of.into.RunsToday, &of.into.CPUSecondsThisMonth)
		if err != nil {
			return project, caller, err
		}
	}
	return project, caller, nil
}

// admit has the caller of a write decide whether the attempt that it has just opened is one too many.
func (l *Ledger) admit(ctx context.Context, tx *sql.Conn, r run.Run, decide func(project, caller run.Spent) error) error {
	if decide == nil {
		return nil
	}
	project, caller, err := l.had(ctx, tx, r)
	if err != nil {
		return err
	}
	return decide(project, caller)
}
