package ledger

import (
	"context"
	"database/sql"

	"slurmgate/run"
)

// Drains lists the drained sites.
func (l *Ledger) Drains(ctx context.Context) ([]run.Drain, error) {
	return list(ctx, l.r, func(row scanner) (d run.Drain, err error) {
		err = row.Scan(&d.Site, &d.Queue, &d.Reason, &d.By, into{&d.Since})
		return d, err
	}, "SELECT site, queue, reason, principal, since FROM drains ORDER BY site")
}

// SetDrain drains a site, or changes how it is drained, with an event. The time is the ledger's.
func (l *Ledger) SetDrain(ctx context.Context, d run.Drain) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO drains VALUES (?,?,?,?,?)
 ON CONFLICT (site) DO UPDATE SET queue = excluded.queue, reason = excluded.reason, principal = excluded.principal`,
			d.Site, d.Queue, d.Reason, d.By, micros(l.now())); err != nil {
			return err
		}
		err := l.appendEvent(ctx, tx, "", run.Event{Type: "gateway.drained", Data: map[string]any{"site": d.Site, "queue": d.Queue,
			"reason": d.Reason, "by": d.By}})
		return err
	})
}

// Undrain resumes a site, with an event, and reports whether it was drained.
func (l *Ledger) Undrain(ctx context.Context, site, by string) (was bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		res, err := tx.ExecContext(ctx, "DELETE FROM drains WHERE site = ?", site)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if was = n > 0; err != nil || !was {
			return err
		}
		err = l.appendEvent(ctx, tx, "", run.Event{Type: "gateway.resumed", Data: map[string]any{"site": site, "by": by}})
		return err
	})
	return was, err
}
