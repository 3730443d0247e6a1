package ledger

import (
	"context"
	"database/sql"
	"encoding/json"

	"slurmgate/run"
)

// The requester of a run, of a waiting run or of an imported artifact is recorded in the transaction that answers,
// and the transaction that ends one checks whether there is still another requester. An asking is never deleted: a
// withdrawn one has the time of its withdrawal.

// own is the condition that an asking is that of a principal (name, id), or of its person.
const own = `((k.principal, k.principal_id) = (?, ?) OR k.person <> '' AND k.person = ?)`

func ownArgs(a run.Asking) []any { return []any{a.Name, a.ID, a.Person} }

const (
	putAsking = "INSERT INTO askings (thing, principal, principal_id, person, batch_id, call_id, caller, approval_id, asked_at) "
	askAgain  = ` ON CONFLICT (thing, principal_id, principal, batch_id) DO UPDATE SET withdrawn_at = NULL, withdrawn_by = '',
 caller = iif(excluded.caller = '', caller, excluded.caller), approval_id = iif(excluded.approval_id = '', approval_id, excluded.approval_id)`
)

// ask records an asking of a thing, or renews one that was withdrawn. What a batch asks for, each requester of the
// batch asks for. caller and approval are those with which the gateway later makes the call of a waiting run.
func (l *Ledger) ask(ctx context.Context, tx *sql.Conn, thing string, a run.Asking, caller json.RawMessage, approval string) error {
	now := micros(l.now())
	if a.Batch != "" {
		n, err := update(ctx, tx, putAsking+`SELECT ?1, k.principal, k.principal_id, k.person, k.thing, ?2, iif(?3 = '', '', k.caller), ?4, ?5
 FROM askings k WHERE k.thing = ?6 AND k.withdrawn_at IS NULL`+askAgain, thing, a.CallID, string(caller), approval, now, a.Batch)
		if err != nil || n > 0 {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, putAsking+"VALUES (?,?,?,?,?,?,?,?,?)"+askAgain, thing, a.Name, a.ID, a.Person, a.Batch, a.CallID,
		string(caller), approval, now)
	return err
}

// joinBatch records another requester of a batch, and of the runs of its rows.
func (l *Ledger) joinBatch(ctx context.Context, tx *sql.Conn, b Batch) error {
	a := b.Asking
	if asks, err := l.asksIn(ctx, tx, b.ID, a); err != nil || asks {
		return err
	}
	if err := l.ask(ctx, tx, b.ID, a, b.Caller, ""); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, putAsking+`SELECT DISTINCT coalesce(w.run_id, w.waiting_id), ?1, ?2, ?3, w.batch_id, ?4,
 iif(w.run_id IS NULL, ?5, ''), '', ?6 FROM batch_rows w WHERE w.batch_id = ?7 AND coalesce(w.run_id, w.waiting_id) IS NOT NULL`+askAgain,
		a.Name, a.ID, a.Person, a.CallID, string(b.Caller), micros(l.now()), b.ID)
	return err
}

// leaveBatch takes a caller's askings of a batch and of its runs back, where others ask for the batch still. Its rows
// are submitted with the rights of one of those from then on.
func (l *Ledger) leaveBatch(ctx context.Context, tx *sql.Conn, batchID string, w run.Withdrawal, held []run.Asker) error {
	if _, err := update(ctx, tx, `UPDATE askings AS k SET withdrawn_at = ?, withdrawn_by = ? WHERE k.batch_id = ? AND k.withdrawn_at IS NULL
 AND `+own, append([]any{micros(l.now()), w.By.ID, batchID}, ownArgs(w.Of)...)...); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE batches AS b SET (principal, principal_id, caller) = (SELECT k.principal, k.principal_id, k.caller
 FROM askings k WHERE k.thing = b.batch_id AND k.withdrawn_at IS NULL AND k.caller <> '' ORDER BY k.principal_id = b.principal_id DESC, k.asking_id
 LIMIT 1) WHERE b.batch_id = ?1 AND EXISTS (SELECT 1 FROM askings k WHERE k.thing = b.batch_id AND k.withdrawn_at IS NULL AND k.caller <> '')`,
		batchID); err != nil {
		return err
	}
	return l.sayWithdrawn(ctx, tx, batchID, w, held)
}

// AskFor records an asking of a run; run.Store has the contract. Nothing is written where the asking holds already
// and there is no row.
func (l *Ledger) AskFor(ctx context.Context, runID string, a run.Asking, row *run.RowRef) (v run.View, err error) {
	if row == nil {
		if holds, err := l.asksIn(ctx, l.r, runID, a); err != nil || holds {
			if err == nil {
				v, err = l.View(ctx, runID)
			}
			return v, err
		}
	}
	if v, err = l.View(ctx, runID); err != nil { // without waiting for the writer
		return v, err
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		if row != nil {
			if err := rowIsRun(ctx, tx, *row, runID); err != nil {
				return err
			}
		}
		if err := l.ask(ctx, tx, runID, a, nil, ""); err != nil {
			return err
		}
		v, err = view(ctx, tx, runID)
		return err
	})
	return v, err
}

// asksIn reports whether exactly this asking holds.
func (l *Ledger) asksIn(ctx context.Context, q queryer, thing string, a run.Asking) (holds bool, err error) {
	err = q.QueryRowContext(context.WithoutCancel(ctx), `SELECT EXISTS (SELECT 1 FROM askings k WHERE k.thing = ?
 AND (k.principal, k.principal_id, k.batch_id) = (?, ?, ?) AND k.withdrawn_at IS NULL)`, thing, a.Name, a.ID, a.Batch).Scan(&holds)
	return holds, storage(err)
}

// HasAsked reports whether the principal, or its person, ever asked for a thing.
func (l *Ledger) HasAsked(ctx context.Context, thing string, a run.Asking) (asked bool, err error) {
	err = l.one(ctx, "SELECT EXISTS (SELECT 1 FROM askings k WHERE k.thing = ? AND "+own+")",
		append([]any{thing}, ownArgs(a)...)...).Scan(&asked)
	return asked, storage(err)
}

func scanAsker(row scanner) (a run.Asker, err error) {
	err = row.Scan(&a.Name, &a.ID, &a.Person, &a.Batch, &a.CallID, into{&a.AskedAt}, into{&a.WithdrawnAt})
	return a, err
}

const askings = `SELECT k.principal, k.principal_id, k.person, k.batch_id, k.call_id, k.asked_at, k.withdrawn_at FROM askings k
 WHERE k.thing = ?`

// Askings lists who asked for a thing, those first who asked first.
func (l *Ledger) Askings(ctx context.Context, thing string) ([]run.Asker, error) {
	return askers(context.WithoutCancel(ctx), l.r, thing)
}

func askers(ctx context.Context, q queryer, thing string) ([]run.Asker, error) {
	return list(ctx, q, scanAsker, askings+" ORDER BY k.asking_id", thing)
}

// holders lists the askings of a thing that hold.
func holders(ctx context.Context, q queryer, thing string) ([]run.Asker, error) {
	return list(ctx, q, scanAsker, askings+" AND k.withdrawn_at IS NULL ORDER BY k.asking_id", thing)
}

// withdraw takes askings of a thing back and lists those that hold still.
func (l *Ledger) withdraw(ctx context.Context, tx *sql.Conn, thing string, w run.Withdrawal) (held []run.Asker, n int64, err error) {
	q := "UPDATE askings AS k SET withdrawn_at = ?, withdrawn_by = ? WHERE k.thing = ? AND k.withdrawn_at IS NULL"
	args := []any{micros(l.now()), w.By.ID, thing}
	switch {
	case w.All:
	case w.Of.Batch != "":
		q, args = q+" AND k.batch_id = ?", append(args, w.Of.Batch)
	default:
		q, args = q+" AND "+own, append(args, ownArgs(w.Of)...)
	}
	if n, err = update(ctx, tx, q, args...); err != nil {
		return nil, n, err
	}
	held, err = holders(ctx, tx, thing)
	return held, n, err
}

// Withdraw withdraws askings of the run of a write and carries the write out if no asking of the run remains, in one
// transaction. held lists the remaining requesters; if there are any, the write was not carried out.
func (l *Ledger) Withdraw(ctx context.Context, write run.Write, w run.Withdrawal) (v run.View, held []run.Asker, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		v, held, err = l.withdrawOr(ctx, tx, write, w)
		return err
	})
	return v, held, err
}

// withdrawOr is Withdraw within a transaction.
func (l *Ledger) withdrawOr(ctx context.Context, tx *sql.Conn, write run.Write, w run.Withdrawal) (v run.View, held []run.Asker,
	err error) {
	held, n, err := l.withdraw(ctx, tx, write.Run.ID, w)
	if err == nil && len(held) == 0 {
		v, err = l.apply(ctx, tx, write, nil)
		return v, nil, err
	}
	if err == nil && n > 0 && write.From != nil && write.From.Waiting != nil {
		err = l.startForAnother(ctx, tx, write.Run.ID)
	}
	if err == nil && n > 0 {
		err = l.sayWithdrawn(ctx, tx, write.Run.ID, w, held)
	}
	if err == nil {
		v, err = view(ctx, tx, write.Run.ID)
	}
	if err == nil && v.Run.ID != write.Run.ID { // it has started: those who ask for it ask for that run
		err = stale(write.Run)
	}
	return v, held, err
}

// startForAnother makes the call of a waiting run due with the rights of a remaining requester.
func (l *Ledger) startForAnother(ctx context.Context, tx *sql.Conn, runID string) error {
	_, err := tx.ExecContext(ctx, `UPDATE waits AS w SET (principal, principal_id, caller, approval_id) =
 (SELECT k.principal, k.principal_id, k.caller, k.approval_id FROM askings k WHERE k.thing = w.run_id AND k.withdrawn_at IS NULL AND k.caller <> ''
  ORDER BY k.principal_id = w.principal_id DESC, k.approval_id <> '' DESC, k.asking_id LIMIT 1), due = 1, due_at = 0
 WHERE w.run_id = ?1 AND EXISTS (SELECT 1 FROM askings k WHERE k.thing = w.run_id AND k.withdrawn_at IS NULL AND k.caller <> '')`, runID)
	return err
}

// sayWithdrawn appends to the history that askings were taken back and the thing stays. It is no event of a run:
// those are one for each of its revisions.
func (l *Ledger) sayWithdrawn(ctx context.Context, tx *sql.Conn, thing string, w run.Withdrawal, held []run.Asker) error {
	data := w.Event()
	data["thing"], data["askings_left"] = thing, len(held)
	return l.appendEvent(ctx, tx, "", run.Event{Type: "asking.withdrawn", Data: data})
}

// moveAskings copies the askings of a run that waited to the run that replaces it: those in force stay in force.
func (l *Ledger) moveAskings(ctx context.Context, tx *sql.Conn, from, to string) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO askings (thing, principal, principal_id, person, batch_id, call_id, asked_at, withdrawn_at, withdrawn_by)
 SELECT ?2, principal, principal_id, person, batch_id, call_id, asked_at, withdrawn_at, withdrawn_by FROM askings WHERE thing = ?1
 ON CONFLICT (thing, principal_id, principal, batch_id) DO UPDATE SET withdrawn_at = NULL, withdrawn_by = '' WHERE excluded.withdrawn_at IS NULL`,
		from, to)
	return err
}

// askedFor returns the condition that a principal, by name or id, asks for the thing with an id, or did while it has
// no requester any more.
func askedFor(id string) string {
	return "EXISTS (SELECT 1 FROM askings k WHERE k.thing = " + id + ` AND ? IN (k.principal, k.principal_id)
 AND (k.withdrawn_at IS NULL OR NOT EXISTS (SELECT 1 FROM askings h WHERE h.thing = k.thing AND h.withdrawn_at IS NULL)))`
}
