package ledger

import (
	"context"
	"database/sql"

	"slurmgate/run"
)

// BatchCancelled counts what a cancel of a batch did.
type BatchCancelled struct {
	Dropped    int64       // rows that were not submitted, and never will be
	Cancelling int64       // rows whose runs are being cancelled
	Spared     int64       // rows whose runs go on, because they are asked for in another way too: by a call, by another caller or batch
	Held       []run.Asker // the remaining requesters of the batch: then nothing else was done
}

// cancelsTogether bounds how many runs are cancelled in one transaction, so that no other change waits long for it.
const cancelsTogether = 500

// CancelBatch withdraws askings of a batch. When none remains, its rows that were not submitted are dropped. Then the
// batch's askings of the runs of the others are withdrawn (with forAll: everyone's), and the request to cancel each
// run without a requester is recorded: none of these is sent from then on. The rows record that it is still to be
// carried out.
func (l *Ledger) CancelBatch(ctx context.Context, batchID, why string, by run.Withdrawal, forAll bool) (c BatchCancelled, err error) {
	ofRows := by
	ofRows.Of.Batch, ofRows.All = batchID, forAll
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) (err error) {
		if c.Held, _, err = l.withdraw(ctx, tx, batchID, by); err == nil && len(c.Held) > 0 {
			err = l.leaveBatch(ctx, tx, batchID, by, c.Held)
		}
		if err != nil || len(c.Held) > 0 {
			return err
		}
		if err = l.cancelWaiting(ctx, tx, batchID, ofRows); err != nil {
			return err
		}
		if c.Dropped, err = update(ctx, tx, `UPDATE batch_rows SET state = 'cancelled', todo = '', code = 'cancelled', message = 'cancelled with the batch'
 WHERE batch_id = ? AND run_id IS NULL AND (todo = 'submit' OR state = 'waiting')`, batchID); err != nil {
			return err
		}
		_, err = update(ctx, tx, "UPDATE batch_rows SET todo = '' WHERE batch_id = ? AND todo = 'retry'", batchID)
		return err
	})
	for last, more := 0, len(c.Held) == 0; more && err == nil; {
		var part BatchCancelled
		last, part, more, err = l.cancelRows(ctx, batchID, last, why, ofRows)
		c.Cancelling, c.Spared = c.Cancelling+part.Cancelling, c.Spared+part.Spared
	}
	return c, err
}

// openRows is the condition that the run of a row of batch ?1 is not over.
const openRows = "w.batch_id = ?1 AND w.state IN ('queued', 'running', 'blocked')"

// cancelRows does so for the first rows after a row. It returns the last of them, and whether there may be more.
func (l *Ledger) cancelRows(ctx context.Context, batchID string, after int, why string, by run.Withdrawal) (last int, c BatchCancelled,
	more bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		rows, err := list(ctx, tx, scanBatchRow, "SELECT "+rowColumns+" WHERE "+openRows+" AND w.row_n > ?2 ORDER BY w.row_n LIMIT ?3", batchID,
			after, cancelsTogether)
		last, c, more = after, BatchCancelled{}, len(rows) == cancelsTogether
		for _, w := range rows {
			var goesOn bool
			if err == nil {
				goesOn, err = l.askCancel(ctx, tx, w.RunID, why, by)
			}
			switch {
			case err != nil:
				return err
			case goesOn:
				c.Spared++
			default:
				c.Cancelling++
				_, err = tx.ExecContext(ctx, "UPDATE batch_rows SET todo = 'cancel', tries = 0 WHERE batch_id = ? AND row_n = ?", batchID, w.N)
			}
			last = w.N
		}
		return err
	})
	return last, c, more, err
}

// askCancel withdraws askings of a run and records the request to cancel it, unless it has other requesters, there is
// a request already, or the run has ended.
func (l *Ledger) askCancel(ctx context.Context, tx *sql.Conn, runID, why string, by run.Withdrawal) (goesOn bool, err error) {
	held, _, err := l.withdraw(ctx, tx, runID, by)
	if err != nil || len(held) > 0 {
		return len(held) > 0, err
	}
	v, err := view(ctx, tx, runID)
	if err != nil || v.Run.CancelAt != nil || v.Run.State.Terminal() {
		return false, err
	}
	_, err = l.apply(ctx, tx, run.CancelWrite(v, l.now(), why, by), nil)
	return false, err
}
