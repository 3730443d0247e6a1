package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slurmgate/fault"
	"slurmgate/run"
)

// writeArray stores an array that is about to be sent. Its tasks are in the rows of their attempts.
func (l *Ledger) writeArray(ctx context.Context, tx *sql.Conn, a run.ArrayRow) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO arrays (name, run_id, attempt_n, token, k, size, created_at) VALUES (?,?,?,?,?,?,?)",
		a.Name, a.RunID, a.N, a.Token, a.K, a.Size, micros(l.now()))
	return err
}

// Array reads an array by its name; run.Index has the contract.
func (l *Ledger) Array(ctx context.Context, name string) (a run.ArrayRow, err error) {
	a.Name = name
	err = l.one(ctx, "SELECT a.run_id, r.executed_as, a.attempt_n, a.token, a.k, a.size FROM arrays a "+
		"JOIN runs r ON r.run_id = a.run_id WHERE a.name = ?", name).
		Scan(&a.RunID, &a.ExecutedAs, &a.N, &a.Token, &a.K, &a.Size)
	if errors.Is(err, sql.ErrNoRows) {
		return a, fault.New(fault.NotFound, "array_not_found", "this ledger has no array "+name)
	}
	if err != nil {
		return a, storage(err)
	}
	a.Jobs = make([]string, a.Size)
	err = each(ctx, l.r, func(row scanner) error {
		var task int
		var job string
		if err := row.Scan(&task, &job); err != nil {
			return err
		}
		if task < len(a.Jobs) {
			a.Jobs[task] = job
		}
		return nil
	}, "SELECT a.array_task, s.job_name FROM submissions s JOIN attempts a ON a.token = s.token "+
		"WHERE s.array_name = ? AND a.array_task >= 0", name)
	return a, err
}

// LeaderOf returns the run whose folder has the files of an array.
func (l *Ledger) LeaderOf(ctx context.Context, array string) (runID string, err error) {
	err = l.one(ctx, "SELECT run_id FROM arrays WHERE name = ?", array).Scan(&runID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.New(fault.NotFound, "array_not_found", "this ledger has no array "+array)
	}
	return runID, storage(err)
}

// SentAs returns the job name and the array under which an attempt was sent; run.Index has the contract.
func (l *Ledger) SentAs(ctx context.Context, runID string, n int) (jobName, array string, err error) {
	err = l.one(ctx, "SELECT s.job_name, coalesce(s.array_name, '') FROM attempts a JOIN submissions s ON s.token = a.token "+
		"WHERE a.run_id = ? AND a.n = ?", runID, n).Scan(&jobName, &array)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", fault.New(fault.NotFound, "attempt_not_found", fmt.Sprintf("this ledger has no attempt %d of %s", n, runID))
	}
	return jobName, array, storage(err)
}

// ArrayOf returns the array in which an attempt was last sent; run.Index has the contract.
func (l *Ledger) ArrayOf(ctx context.Context, jobName string) (name string, err error) {
	err = l.one(ctx, "SELECT coalesce(array_name, '') FROM submissions WHERE job_name = ?", jobName).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return name, storage(err)
}
