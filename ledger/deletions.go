package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"slurmgate/fault"
	"slurmgate/retention"
)

var _ retention.DeletionLedger = (*Ledger)(nil)

// beginDeletion records that a deletion begins. hmac is that of an erased secret; nil for a removal.
func beginDeletion(ctx context.Context, tx *sql.Conn, id, by, byID, reason string, hmac *string, now int64) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO deletions VALUES (?,?,?,?,?,?,NULL)", id, by, byID, reason, hmac, now)
	return err
}

// leftToDelete records what is left to do of a deletion after its transaction.
func leftToDelete(ctx context.Context, tx *sql.Conn, id, kind string, names ...string) error {
	for _, name := range names {
		if _, err := tx.ExecContext(ctx, "INSERT INTO deletion_items VALUES (?,?,?,NULL) ON CONFLICT DO NOTHING", id, kind, name); err != nil {
			return err
		}
	}
	return nil
}

// endDeletion ends a deletion of which nothing is left to do.
func endDeletion(ctx context.Context, tx *sql.Conn, id string, now int64) error {
	_, err := tx.ExecContext(ctx, "UPDATE deletions SET ended_at = ?1 WHERE deletion_id = ?2 AND NOT EXISTS "+
		"(SELECT 1 FROM deletion_items i WHERE i.deletion_id = ?2 AND i.done_at IS NULL)", now, id)
	return err
}

// Unfinished lists the deletions of which something is left to do.
func (l *Ledger) Unfinished(ctx context.Context) ([]string, error) {
	return list(ctx, l.r, column[string], "SELECT deletion_id FROM deletions WHERE ended_at IS NULL ORDER BY begun_at, deletion_id")
}

// Rest returns what remains to be done of a deletion.
func (l *Ledger) Rest(ctx context.Context, id string) (r retention.Rest, err error) {
	err = each(ctx, l.r, func(row scanner) error {
		var kind, name string
		if err := row.Scan(&kind, &name); err != nil {
			return err
		}
		switch kind {
		case retention.ItemObject:
			r.Objects = append(r.Objects, name)
		case retention.ItemWorkspace:
			r.Workspaces = append(r.Workspaces, retention.Workspace{RunID: name})
		default:
			r.Compact = true
		}
		return nil
	}, "SELECT kind, name FROM deletion_items WHERE deletion_id = ? AND done_at IS NULL ORDER BY kind, name", id)
	for i := range r.Workspaces {
		w := &r.Workspaces[i]
		v, verr := l.View(ctx, w.RunID)
		attempts, aerr := l.Attempts(ctx, w.RunID)
		if err = errors.Join(err, verr, aerr); err != nil {
			return r, err
		}
		w.AttemptN, w.Tokens = v.Run.AttemptN, map[int]string{}
		for _, a := range attempts {
			w.Tokens[a.N] = a.Token
		}
	}
	return r, err
}

// Done records that parts of a deletion were carried out; with the last one the deletion has ended.
func (l *Ledger) Done(ctx context.Context, id, kind string, names ...string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		now := micros(l.now())
		for _, name := range names {
			if _, err := tx.ExecContext(ctx, "UPDATE deletion_items SET done_at = ? WHERE deletion_id = ? AND kind = ? AND name = ?",
				now, id, kind, name); err != nil {
				return err
			}
		}
		return endDeletion(ctx, tx, id, now)
	})
}

// Compact rewrites the ledger's file without anything that was deleted or overwritten, and empties its log. Nothing is written meanwhile.
func (l *Ledger) Compact(ctx context.Context) error {
	conn, err := l.w.Conn(ctx)
	if err != nil {
		return storage(err)
	}
	defer conn.Close()
	for _, q := range []string{"VACUUM", "PRAGMA secure_delete = OFF"} {
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), q); err != nil {
			return storage(err)
		}
	}
	for range compactTries {
		var busy, pages, copied int
		err := conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &copied)
		if err != nil || busy == 0 {
			return storage(err)
		}
		select {
		case <-time.After(compactPause): // a reader holds the database
		case <-ctx.Done():
			return fault.Wrap(fault.Canceled, "", "the caller gave up", ctx.Err())
		}
	}
	return fault.New(fault.Transport, "ledger_busy", "the ledger's log could not be emptied because it is being read")
}
