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
	rows, err := l.r.QueryContext(brief(ctx), `SELECT a.token, s.job_id, s.submitted_at, s.created_at, a.ended_at FROM attempts a JOIN submissions s ON s.token = a.token
 WHERE a.ended_at BETWEEN ? AND ? AND a.ending <> '' AND a.started_at IS NOT NULL AND s.job_id <> '' AND NOT EXISTS (SELECT 1 FROM job_usage u WHERE u.token = a.token)
 AND EXISTS (SELECT 1 FROM runs r WHERE r.run_id = a.run_id AND r.site = ?) ORDER BY a.ended_at LIMIT ?`, micros(since), micros(until), l.site, limit)
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	var out []run.Unmeasured
	for rows.Next() {
		var u run.Unmeasured
		var submitted sql.NullInt64
		var created, ended int64
		if err := rows.Scan(&u.Token, &u.JobID, &submitted, &created, &ended); err != nil {
			return nil, storage(err)
		}
		u.Submitted, u.CreatedAt, u.EndedAt = optTime(submitted), time.UnixMicro(created).UTC(), time.UnixMicro(ended).UTC()
		out = append(out, u)
	}
	return out, storage(rows.Err())
}

// Measure records what jobs used; run.Index has the contract.
func (l *Ledger) Measure(ctx context.Context, used map[string]*run.Usage) error {
	if len(used) == 0 {
		return nil
	}
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		for token, u := range used {
			var elapsed, cpu, rss, cpus any
			if u != nil {
				elapsed, cpu, cpus = u.ElapsedSeconds, u.CPUSeconds, u.AllocCPUs
				if u.MaxRSSBytes > 0 {
					rss = u.MaxRSSBytes
				}
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO job_usage VALUES (?,?,?,?,?,?) ON CONFLICT DO NOTHING", token, micros(l.now()), elapsed,
				cpu, rss, cpus); err != nil {
				return err
			}
		}
		return nil
	})
}

// Usage is what accounting recorded about a submission's job; nil when there is nothing, or accounting was not queried yet.
func (l *Ledger) Usage(ctx context.Context, token string) (*run.Usage, error) {
	var elapsed, rss, cpus sql.NullInt64
	var cpu sql.NullFloat64
	err := l.r.QueryRowContext(brief(ctx), "SELECT elapsed_seconds, cpu_seconds, max_rss_bytes, alloc_cpus FROM job_usage WHERE token = ?",
		token).Scan(&elapsed, &cpu, &rss, &cpus)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !elapsed.Valid {
		return nil, nil
	}
	if err != nil {
		return nil, storage(err)
	}
	return &run.Usage{ElapsedSeconds: elapsed.Int64, CPUSeconds: cpu.Float64, MaxRSSBytes: rss.Int64, AllocCPUs: int(cpus.Int64)}, nil
}

// Attempts lists a run's attempts in order.
func (l *Ledger) Attempts(ctx context.Context, runID string) ([]run.Attempt, error) {
	rows, err := l.r.QueryContext(brief(ctx), `SELECT n, token, created_at, placement, slurm_state, node, started_at, ended_at, ending, exit_code, usage FROM attempts WHERE run_id = ? ORDER BY n`, runID)
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	var out []run.Attempt
	for rows.Next() {
		a := run.Attempt{RunID: runID}
		var token, placement, usage sql.NullString
		var started, ended, exit sql.NullInt64
		var created int64
		if err := rows.Scan(&a.N, &token, &created, &placement, &a.SlurmState, &a.Node, &started, &ended, &a.Ending, &exit, &usage); err != nil {
			return nil, storage(err)
		}
		if a.Placement, err = readPlacement(placement); err != nil {
			return nil, err
		}
		a.Token, a.CreatedAt, a.StartedAt, a.EndedAt, a.ExitCode, a.Usage = token.String, time.UnixMicro(created).
			UTC(), optTime(started), optTime(ended), optInt(exit), raw(usage)
		out = append(out, a)
	}
	return out, storage(rows.Err())
}
