package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/run"
)

// The batch of a row that was read some time ago may have been cancelled, or asked for again, since. So each change
// on behalf of a row reads the row again in the same transaction.

// BatchTodo lists the rows with which the gateway still has to do something: at most perBatch of each batch, without the named batches.
func (l *Ledger) BatchTodo(ctx context.Context, perBatch int, without []string) (out []BatchRow, err error) {
	ids, err := list(ctx, l.r, column[string], "SELECT DISTINCT batch_id FROM batch_rows WHERE todo <> ''")
	for _, id := range ids {
		if err != nil || slices.Contains(without, id) {
			continue
		}
		var rows []BatchRow
		rows, err = list(ctx, l.r, scanBatchRow, "SELECT "+rowColumns+
			" INDEXED BY batch_rows_todo WHERE w.batch_id = ? AND w.todo <> '' ORDER BY w.row_n LIMIT ?", id, perBatch)
		out = append(out, rows...)
	}
	return out, err
}

// StillTodo reports whether what was left to do with a row when it was read still is.
func (l *Ledger) StillTodo(ctx context.Context, w BatchRow) (still bool, err error) {
	err = l.one(ctx, "SELECT todo = ? FROM batch_rows WHERE batch_id = ? AND row_n = ?", w.Todo, w.BatchID, w.N).Scan(&still)
	return still, storage(err)
}

// Ref names the row.
func (w BatchRow) Ref() run.RowRef { return run.RowRef{BatchID: w.BatchID, N: w.N} }

func readRow(ctx context.Context, tx *sql.Conn, r run.RowRef) (BatchRow, error) {
	w, err := scanBatchRow(tx.QueryRowContext(ctx, "SELECT "+rowColumns+" WHERE w.batch_id = ? AND w.row_n = ?", r.BatchID, r.N))
	if errors.Is(err, sql.ErrNoRows) {
		err = withdrawn(r)
	}
	return w, err
}

// openRow refuses a change for a row that is not to be submitted or retried any more.
func openRow(ctx context.Context, tx *sql.Conn, r run.RowRef) error {
	w, err := readRow(ctx, tx, r)
	if err == nil && w.Todo != TodoSubmit && w.Todo != TodoRetry {
		err = withdrawn(r)
	}
	return err
}

func withdrawn(r run.RowRef) error {
	return fault.New(fault.Conflict, run.RowWithdrawn, fmt.Sprintf("row %d of %s is no longer to be submitted; its batch was cancelled", r.N,
		r.BatchID)).WithSteps(fault.Do("batch.status", "batch", r.BatchID))
}

// RowIsRun records which run a row became: one that waits for outputs of others is that for as long as it waits. A row that is not to be
// submitted any more is a Conflict ([run.RowWithdrawn]).
func (l *Ledger) RowIsRun(ctx context.Context, r run.RowRef, runID string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error { return rowIsRun(ctx, tx, r, runID) })
}

func rowIsRun(ctx context.Context, tx *sql.Conn, r run.RowRef, runID string) error {
	row, err := readRow(ctx, tx, r)
	switch {
	case err != nil:
		return err
	case row.Todo == "" && (row.RunID == runID || row.WaitingID == runID): // recorded before
		return nil
	case row.Todo != TodoSubmit:
		return withdrawn(r)
	}
	v, err := view(ctx, tx, runID)
	switch {
	case err != nil:
		return err
	case v.Waiting != nil:
		state, code, message := "waiting", "", ""
		if !v.Waits() {
			state, code, message = string(v.Run.State), v.Run.Reason, v.Run.Detail
		}
		_, err := tx.ExecContext(ctx, `UPDATE batch_rows SET waiting_id = ?3, state = ?4, code = ?5, message = ?6, tries = 0, todo = ''
 WHERE batch_id = ?1 AND row_n = ?2`, r.BatchID, r.N, runID, state, code, message)
		return err
	case v.Run.ID != runID: // an alias
		if _, err := tx.ExecContext(ctx, "UPDATE batch_rows SET waiting_id = ? WHERE batch_id = ? AND row_n = ?", runID, r.BatchID,
			r.N); err != nil {
			return err
		}
		runID = v.Run.ID
	}
	_, err = tx.ExecContext(ctx, `UPDATE batch_rows SET (run_id, run_at, state) = (SELECT run_id, created_at, state FROM runs WHERE run_id = ?3),
 todo = '', tries = 0, code = '', message = '' WHERE batch_id = ?1 AND row_n = ?2`, r.BatchID, r.N, runID)
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE batch_tags SET (run_id, run_at) = (SELECT run_id, created_at FROM runs WHERE run_id = ?3)
 WHERE batch_id = ?1 AND row_n = ?2`, r.BatchID, r.N, runID)
	}
	return err
}

// RowDone records that a retry or a cancel of a row was carried out. A newer request for the row stays.
func (l *Ledger) RowDone(ctx context.Context, w BatchRow) error {
	return l.write(ctx, "UPDATE batch_rows SET todo = '', tries = 0 WHERE batch_id = ? AND row_n = ? AND todo = ?", w.BatchID, w.N, w.Todo)
}

// RowRefused records that a row was refused permanently: it is not tried again, unless a caller retries it.
func (l *Ledger) RowRefused(ctx context.Context, w BatchRow, code, message string) error {
	return l.write(ctx, `UPDATE batch_rows SET todo = '', tries = 0, code = ?, message = ?, state = iif(run_id IS NULL, 'refused', state)
 WHERE batch_id = ? AND row_n = ? AND todo = ?`, code, message, w.BatchID, w.N, w.Todo)
}

// RowPutOff counts that a row could not be carried out for now.
func (l *Ledger) RowPutOff(ctx context.Context, w BatchRow) error {
	return l.write(ctx, "UPDATE batch_rows SET tries = tries + 1 WHERE batch_id = ? AND row_n = ? AND todo = ?", w.BatchID, w.N,
		w.Todo)
}

// RetryRow is a row of a batch that a retry takes, with its run.
type RetryRow struct {
	BatchID string `json:"batch_id"`
	N       int    `json:"row"` // line of the sheet
	Sample  string `json:"sample"`
	RunID   string `json:"run_id"`
	Attempt int    `json:"after_attempt"` // that the new one follows
}

// RetryApproval is the approval of a retry, and the rows that it is of: those with a run, in the order of [Ledger.RetryRows].
type RetryApproval struct {
	ID   string
	Rows []RetryRow
}

// retried is the condition of a row that a retry takes: of a batch, with cancelled ones or without.
const retried = " w.batch_id = ? AND (w.state IN ('failed', 'refused') OR ? AND w.state = 'cancelled') AND w.todo IN ('', 'cancel')"

// RetryRows lists the rows of batches that have a run and that a retry would take.
func (l *Ledger) RetryRows(ctx context.Context, batchIDs []string, cancelled bool) ([]RetryRow, error) {
	return retryRows(context.WithoutCancel(ctx), l.r, batchIDs, cancelled)
}

func retryRows(ctx context.Context, q queryer, batchIDs []string, cancelled bool) (out []RetryRow, err error) {
	for _, id := range batchIDs {
		rows, err := list(ctx, q, func(row scanner) (w RetryRow, err error) {
			err = row.Scan(&w.BatchID, &w.N, &w.Sample, &w.RunID, &w.Attempt)
			return w, err
		}, "SELECT w.batch_id, w.row_n, w.sample, r.run_id, r.attempt_n FROM batch_rows w JOIN runs r ON r.run_id = w.run_id WHERE"+retried+
			" ORDER BY w.row_n", id, cancelled)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

// RetryBatches has the rows of batches that failed or were refused submitted again, on request also cancelled ones, and returns how
// many: all of them or none. cancelling is how many rows have a run that is still being cancelled, which cannot be retried yet. under is
// the approval of the retry; nil: it needs none. If the rows are others by now than the approval is of, it is a Policy fault
// (approval_void).
func (l *Ledger) RetryBatches(ctx context.Context, batchIDs []string, cancelled bool, under *RetryApproval) (n, cancelling int64,
	err error) {
	approval := ""
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n, cancelling = 0, 0
		if under != nil {
			now, err := retryRows(ctx, tx, batchIDs, cancelled)
			if err != nil {
				return err
			}
			if approval = under.ID; !slices.Equal(now, under.Rows) {
				return fault.New(fault.Policy, "approval_void", "other rows have failed since, so the approval is not of these").
					WithNext("repeat the call, which requests another approval")
			}
		}
		for _, id := range batchIDs {
			more, err := update(ctx, tx, `UPDATE batch_rows AS w SET tries = 0, code = '', message = '', todo = iif(run_id IS NULL, 'submit', 'retry'),
 after_n = coalesce((SELECT r.attempt_n FROM runs r WHERE r.run_id = w.run_id), 0), state = iif(run_id IS NULL, 'waiting', state),
 approval_id = ? WHERE`+retried, approval, id, cancelled)
			if err != nil {
				return err
			}
			var still int64
			err = tx.QueryRowContext(ctx, "SELECT count(*) FROM batch_rows w JOIN runs r ON r.run_id = w.run_id WHERE "+openRows+
				" AND r.cancel_at IS NOT NULL", id).Scan(&still)
			if n, cancelling = n+more, cancelling+still; err != nil {
				return err
			}
		}
		return nil
	})
	return n, cancelling, err
}
