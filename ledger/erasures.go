package ledger

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/retention"
)

// Unfinished lists the erasures of which something is left to do.
func (l *Ledger) Unfinished(ctx context.Context) ([]string, error) {
	return list(ctx, l.r, column[string], "SELECT erasure_id FROM erasures WHERE ended_at IS NULL ORDER BY begun_at, erasure_id")
}

// kept are the table and the column of an erasure's or a removal's rows, by its id.
func kept(id string) string {
	if strings.HasPrefix(id, "rmv_") {
		return "removal"
	}
	return "erasure"
}

// Rest is what is left to do of an erasure.
func (l *Ledger) Rest(ctx context.Context, id string) (r retention.Rest, err error) {
	err = each(ctx, l.r, func(row scanner) error {
		var kind, name string
		if err := row.Scan(&kind, &name); err != nil {
			return err
		}
		switch kind {
		case itemObject:
			r.Objects = append(r.Objects, name)
		case itemWorkspace:
			r.Workspaces = append(r.Workspaces, retention.Workspace{RunID: name})
		default:
			r.Compact = true
		}
		return nil
	}, "SELECT kind, name FROM "+kept(id)+"_items WHERE "+kept(id)+"_id = ? AND done_at IS NULL ORDER BY kind, name", id)
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

// Done records that parts of an erasure were carried out; with the last one the erasure has ended.
func (l *Ledger) Done(ctx context.Context, id, kind string, names ...string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		now, what := micros(l.now()), kept(id)
		for _, name := range names {
			if _, err := tx.ExecContext(ctx, "UPDATE "+what+"_items SET done_at = ? WHERE "+what+"_id = ? AND kind = ? AND name = ?", now, id,
				kind, name); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "UPDATE "+what+"s SET ended_at = ?1 WHERE "+what+"_id = ?2 AND NOT EXISTS "+
			"(SELECT 1 FROM "+what+"_items i WHERE i."+what+"_id = ?2 AND i.done_at IS NULL)", now, id)
		return err
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
		case <-time.After(compactPause): // somebody reads
		case <-ctx.Done():
			return fault.Wrap(fault.Canceled, "", "the caller gave up", ctx.Err())
		}
	}
	return fault.New(fault.Transport, "ledger_busy", "the ledger's log could not be emptied because it is being read")
}
