package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"slurmgate/run"
)

// Unmeasured lists attempts whose usage is not recorded; run.Index has the contract.
func (l Index) Unmeasured(ctx context.Context, since, until time.Time, limit int) ([]run.Unmeasured, error) {
	return list(ctx, l.r, func(row scanner) (u run.Unmeasured, err error) {
		err = row.Scan(&u.Token, &u.ExecutedAs, &u.JobID, into{&u.Submitted}, into{&u.CreatedAt}, into{&u.EndedAt})
		return u, err
	}, `SELECT a.token, r.executed_as, s.job_id, s.submitted_at, s.created_at, a.ended_at
 FROM attempts a JOIN submissions s ON s.token = a.token JOIN runs r ON r.run_id = a.run_id
 WHERE a.ended_at BETWEEN ? AND ? AND a.ending <> '' AND a.started_at IS NOT NULL AND s.job_id <> '' AND NOT EXISTS (SELECT 1 FROM job_usage u WHERE u.token = a.token)
 AND r.site = ? ORDER BY a.ended_at LIMIT ?`, micros(since), micros(until), l.site, limit)
}

// Measure records what jobs used; run.Index has the contract.
func (l *Ledger) Measure(ctx context.Context, used map[string]*run.Usage) error {
	if len(used) == 0 {
		return nil
	}
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		for token, u := range used {
			values := []any{token, micros(l.now()), nil, nil, nil, nil}
			if u != nil {
				values = append(values[:2], u.ElapsedSeconds, u.CPUSeconds, sql.NullInt64{Int64: u.MaxRSSBytes, Valid: u.MaxRSSBytes > 0}, u.AllocCPUs)
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO job_usage VALUES (?,?,?,?,?,?) ON CONFLICT DO NOTHING", values...); err != nil {
				return err
			}
		}
		return nil
	})
}

// Used returns what accounting recorded about a submission's job; nil for nothing, or before accounting was queried.
func (l *Ledger) Used(ctx context.Context, token string) (*run.Usage, error) {
	return used(context.WithoutCancel(ctx), l.r, token)
}

func used(ctx context.Context, q queryer, token string) (*run.Usage, error) {
	var u run.Usage
	err := q.QueryRowContext(ctx, "SELECT elapsed_seconds, cpu_seconds, coalesce(max_rss_bytes, 0), alloc_cpus FROM job_usage "+
		"WHERE token = ? AND elapsed_seconds IS NOT NULL", token).Scan(&u.ElapsedSeconds, &u.CPUSeconds, &u.MaxRSSBytes, &u.AllocCPUs)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &u, storage(err)
}

// Attempts lists the attempts of a run, oldest first.
func (l *Ledger) Attempts(ctx context.Context, runID string) ([]run.Attempt, error) {
	return attempts(context.WithoutCancel(ctx), l.r, runID)
}

func attempts(ctx context.Context, q queryer, runID string) ([]run.Attempt, error) {
	return list(ctx, q, func(row scanner) (run.Attempt, error) {
		a := run.Attempt{RunID: runID}
		err := row.Scan(&a.N, into{&a.Token}, into{&a.CreatedAt}, into{&a.Placement}, into{&a.Resources}, &a.SlurmState,
			&a.Partition, &a.Account, into{&a.Avoid}, &a.Node, into{&a.StartedAt},
			into{&a.EndedAt}, &a.Ending, &a.ExitCode, into{&a.Usage})
		return a, err
	}, `SELECT n, token, created_at, placement, resources, slurm_state, slurm_partition, slurm_account, avoid, node, started_at, ended_at, ending, exit_code, usage
 FROM attempts WHERE run_id = ? ORDER BY n`, runID)
}
