package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"

	"slurmgate/run"
)

// between opens connections that call a function before each query.
type between struct {
	noting
	f func(query string)
}

func (b *between) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := b.noting.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return betweenConn{c.(notingConn), b.f}, nil
}

type betweenConn struct {
	notingConn
	f func(query string)
}

func (c betweenConn) QueryContext(ctx context.Context, q string, args []driver.NamedValue) (driver.Rows, error) {
	c.f(q)
	return c.notingConn.QueryContext(ctx, q, args)
}

// While the chain of events is checked the log can be copied into the database again and again: no read transaction lasts for all of it.
func TestVerifyHoldsNoLog(t *testing.T) {
	l := fresh(t)
	const n = 2*partRows + 7
	must(t, l.tx(t.Context(), func(ctx context.Context, tx *sql.Conn) error {
		for range n {
			if err := l.appendEvent(ctx, tx, "", run.Event{Type: "test.event", Data: map[string]any{}}); err != nil {
				return err
			}
		}
		return nil
	}))
	parts, held := 0, 0
	must(t, l.r.Close())
	l.r = sql.OpenDB(&between{noting{source: source(l.Path(), "ro")}, func(q string) {
		if !strings.Contains(q, "FROM events WHERE seq >") {
			return
		}
		parts++
		must(t, l.Remark(t.Context(), run.Event{Type: "test.event", Data: map[string]any{}}))
		var busy, pages, copied int
		must(t, l.w.QueryRowContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &copied))
		held += busy
	}})
	got, err := l.VerifyEvents(t.Context())
	if err != nil || got < n+3 {
		t.Errorf("VerifyEvents checks %d events: %v; want at least the %d before it and those between its parts", got, err, n)
	}
	if parts < 3 || held > 0 {
		t.Errorf("VerifyEvents reads in %d parts, and %d times the log could not be copied between them; want at least 3 parts, and never",
			parts, held)
	}
}

// The log does not keep the size that it once had: SQLite cuts it when it has been copied into the database.
func TestLogIsCut(t *testing.T) {
	l := fresh(t)
	var limit int64
	must(t, l.w.QueryRowContext(t.Context(), "PRAGMA journal_size_limit").Scan(&limit))
	if limit != logBytes {
		t.Errorf("the log is cut to %d bytes, want %d", limit, logBytes)
	}
}
