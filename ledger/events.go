package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

// Entry is one stored event.
type Entry struct {
	Seq   int64           `json:"seq"`
	At    time.Time       `json:"at"`
	Type  string          `json:"type"`
	RunID string          `json:"run_id"`
	Data  json.RawMessage `json:"data"`
	Hash  string          `json:"hash"`
}

const genesis = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// eventHash chains one event to its predecessor. It writes the canonical JSON itself, in 1 µs instead of 40; the data are canonical.
func eventHash(prev string, seq, at int64, typ, runID string, data []byte) string {
	const form = `%s{"at":%d,"data":%s,"run_id":%s,"seq":%d,"type":%s}`
	return plan.Hash(fmt.Appendf(nil, form, prev, at, data, word(runID), seq, word(typ)))
}

// word returns a string as canonical JSON.
func word(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" {
		return `"` + s + `"`
	}
	quoted, err := plan.Marshal(s)
	if err != nil {
		return strconv.Quote(s) // it is not UTF-8, so it has no JSON
	}
	return string(quoted)
}

// tail is the newest event, cached for the duration of a transaction.
type tail struct {
	seq  int64
	hash string
}

// newest reads the tail, once per transaction. The single writer makes "the last one" unambiguous.
func (l *Ledger) newest(ctx context.Context, tx *sql.Conn) (tail, error) {
	if l.group.tail != nil {
		return *l.group.tail, nil
	}
	t := tail{hash: genesis}
	err := tx.QueryRowContext(ctx, "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").Scan(&t.seq, &t.hash)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return t, err
}

// appendEvent appends an event to the chain within a transaction.
func (l *Ledger) appendEvent(ctx context.Context, tx *sql.Conn, runID string, e run.Event) error {
	data, err := plan.Marshal(e.Data)
	if err != nil {
		return err
	}
	last, err := l.newest(ctx, tx)
	if err != nil {
		return err
	}
	at, next := micros(l.now()), tail{seq: last.seq + 1}
	next.hash = eventHash(last.hash, next.seq, at, e.Type, runID, data)
	if _, err = tx.ExecContext(ctx, "INSERT INTO events (seq, at, type, run_id, data, prev_hash, hash) VALUES (?,?,?,?,?,?,?)",
		next.seq, at, e.Type, runID, string(data), last.hash, next.hash); err != nil {
		return err
	}
	l.group.tail = &next
	return nil
}

// Remark records an event that belongs to no change of a run; run.Index has the contract.
func (l *Ledger) Remark(ctx context.Context, e run.Event) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error { return l.appendEvent(ctx, tx, "", e) })
}

// Events lists the events of a run, oldest first.
func (l *Ledger) Events(ctx context.Context, runID string) ([]Entry, error) {
	return events(ctx, l.r, 0, -1, runID)
}

// EventsAfter lists at most limit events with a number above after of a run and of its aliases, oldest first; a
// negative limit is no limit.
func (l *Ledger) EventsAfter(ctx context.Context, after int64, limit int, ids ...string) ([]Entry, error) {
	return events(ctx, l.r, after, limit, ids...)
}

func events(ctx context.Context, q queryer, after int64, limit int, ids ...string) ([]Entry, error) {
	in, args := among("run_id", ids)
	return list(ctx, q, func(row scanner) (e Entry, err error) {
		err = row.Scan(&e.Seq, into{&e.At}, &e.Type, &e.RunID, into{&e.Data}, &e.Hash)
		return e, err
	}, "SELECT seq, at, type, run_id, data, hash FROM events WHERE "+in+" AND seq > ? ORDER BY seq LIMIT ?", append(args, after, limit)...)
}

// Seq returns the number of the newest event of a run, 0 for a run without events.
func (l *Ledger) Seq(ctx context.Context, runID string) (seq int64, err error) {
	err = l.one(ctx, "SELECT coalesce(max(seq), 0) FROM events WHERE run_id = ?", runID).Scan(&seq)
	return seq, storage(err)
}

// newestEvent is the number of the newest event of any run, 0 if absent.
const newestEvent = "SELECT coalesce(max(seq), 0) FROM events"

// Newest returns the number of the newest event of any run, 0 for a ledger without events.
func (l *Ledger) Newest(ctx context.Context) (seq int64, err error) {
	err = l.one(ctx, newestEvent).Scan(&seq)
	return seq, storage(err)
}

// VerifyEvents recomputes the whole chain and returns its length. A changed, missing or reordered event
// is an Internal fault naming the first bad number. An event that an erasure changed must have the content that the erasure left.
func (l *Ledger) VerifyEvents(ctx context.Context) (n int64, err error) {
	broken := func(at any) error {
		return fault.New(fault.Internal, "event_chain_broken", fmt.Sprintf("the event chain is broken at event %v", at))
	}
	prev := genesis
	err = l.inParts(ctx, func(rows int) (read int, changed []erasedRecord, err error) {
		err = each(ctx, l.r, func(row scanner) error {
			var seq, at int64
			var typ, runID, data, before, hash string
			if err := row.Scan(&seq, &at, &typ, &runID, &data, &before, &hash); err != nil {
				return err
			}
			if seq != n+1 || before != prev {
				return broken(n + 1)
			}
			if got := eventHash(prev, seq, at, typ, runID, []byte(data)); got != hash {
				changed = append(changed, erasedRecord{fmt.Sprint("history/", seq), hash, got})
			}
			prev, n, read = hash, seq, read+1
			return nil
		}, "SELECT seq, at, type, run_id, data, prev_hash, hash FROM events WHERE seq > ? ORDER BY seq LIMIT ?", n, rows)
		return read, changed, err
	}, func(r erasedRecord) error { return broken(strings.TrimPrefix(r.Record, "history/")) })
	return n, err
}

// partRows is how many rows of a table that grows are read in one read transaction.
const partRows = 5000

// inParts has next read a table in parts until one has fewer rows than it may have. Between the parts no read transaction is open: one
// that lasted for minutes would keep the log from being copied into the database, and let it grow. next returns the records whose hash is
// not that of their content. What no erasure explains, not even one during the reading, is an error, which broken makes.
func (l *Ledger) inParts(ctx context.Context, next func(rows int) (read int, changed []erasedRecord, err error),
	broken func(erasedRecord) error) error {
	for {
		read, changed, err := next(partRows)
		if err != nil {
			return err
		}
		if len(changed) > 0 {
			erased, _, err := erasedRecords(ctx, l.r)
			if err != nil {
				return err
			}
			for _, r := range changed {
				if erased[r.Record] != r {
					return broken(r)
				}
			}
		}
		if read < partRows {
			return nil
		}
	}
}
