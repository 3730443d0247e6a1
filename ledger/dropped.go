package ledger

import (
	"context"
	"database/sql"
	"time"

	"slurmgate/gate"
	"slurmgate/run"
)

// CallLimits bounds a chain of calls: records are dropped, oldest first, until all limits hold.
type CallLimits struct {
	Since time.Time // no records from before
	Keep  int64     // at most so many
	Bytes int64     // at most so many bytes of events and payloads
}

// dropAtOnce bounds one transaction of [Ledger.DropCalls].
const dropAtOnce = 2000

// DropCalls drops the oldest records of a chain that exceed its limits; those of effects are never dropped. The history records the last
// one dropped and its hash, so that the rest can still be verified. It returns how many were dropped.
func (l *Ledger) DropCalls(ctx context.Context, chain string, limits CallLimits) (dropped int64, err error) {
	if chain == gate.Effects {
		return 0, nil
	}
	for {
		n, err := l.dropSome(ctx, chain, limits)
		dropped += n
		if err != nil || n < dropAtOnce {
			return dropped, err
		}
	}
}

// droppable is the last record of the oldest that exceed a limit. From the oldest on, as long as each is old enough or beyond a limit: a
// chain loses its beginning, never its middle.
const droppable = `SELECT max(seq) FROM (SELECT seq, at, sum(size) OVER (ORDER BY seq) AS freed, max(at) OVER (ORDER BY seq) AS newest
 FROM (SELECT e.seq, e.at, length(CAST(e.event AS BLOB)) + coalesce((SELECT sum(length(CAST(payload_redacted AS BLOB))) FROM tool_payloads p WHERE p.chain = e.chain AND p.seq = e.seq), 0) AS size
 FROM tool_call_events e WHERE e.chain = ?1 AND e.seq > ?2 AND e.seq <= ?2 + ?3))
 WHERE newest < ?4 OR seq <= ?5 OR freed <= ?6`

func (l *Ledger) dropSome(ctx context.Context, chain string, limits CallLimits) (n int64, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n = 0
		var head, horizon, bytes int64
		if err := tx.QueryRowContext(ctx, "SELECT seq, horizon_seq, bytes FROM call_chains WHERE chain = ?", chain).
			Scan(&head, &horizon, &bytes); err != nil {
			return err
		}
		var through sql.NullInt64
		if err := tx.QueryRowContext(ctx, droppable, chain, horizon, dropAtOnce, micros(limits.Since), head-limits.Keep, bytes-limits.Bytes).
			Scan(&through); err != nil || !through.Valid {
			return err
		}
		var hash string
		if err := tx.QueryRowContext(ctx, `UPDATE call_chains SET horizon_seq = e.seq, horizon_hash = e.hash FROM tool_call_events e
 WHERE call_chains.chain = ?1 AND e.chain = ?1 AND e.seq = ?2 RETURNING horizon_hash`, chain, through.Int64).Scan(&hash); err != nil {
			return err
		}
		var freed int64
		for _, q := range []string{
			"SELECT coalesce(sum(length(CAST(payload_redacted AS BLOB))), 0) FROM tool_payloads WHERE chain = ? AND seq <= ?",
			"SELECT coalesce(sum(length(CAST(event AS BLOB))), 0) FROM tool_call_events WHERE chain = ? AND seq <= ?",
		} {
			var size int64
			if err := tx.QueryRowContext(ctx, q, chain, through.Int64).Scan(&size); err != nil {
				return err
			}
			freed += size
		}
		if _, err := tx.ExecContext(ctx, "UPDATE call_chains SET bytes = max(0, bytes - ?) WHERE chain = ?", freed, chain); err != nil {
			return err
		}
		for _, table := range []string{"tool_payloads", "call_runs", "call_about", "tool_call_events"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE chain = ? AND seq <= ?", chain, through.Int64); err != nil {
				return err
			}
		}
		n = through.Int64 - horizon
		err := l.appendEvent(ctx, tx, "", run.Event{Type: pruned, Data: map[string]any{"chain": chain, "through": through.Int64,
			"hash": hash, "calls": n}})
		return err
	})
	if err != nil {
		n = 0
	}
	return n, err
}
