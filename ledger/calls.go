package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

var (
	_ gate.Journal  = (*Ledger)(nil)
	_ gate.Promises = (*Ledger)(nil)
	_ gate.Owners   = (*Ledger)(nil)
)

// CallEvent is one recorded tool call.
type CallEvent struct {
	Chain     string          `json:"chain"` // effects or looks
	Seq       int64           `json:"seq"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`
	Event     json.RawMessage `json:"event"` // the ToolCallEvent
	Hash      string          `json:"hash"`
}

// CallPayload is the redacted input or output of a call.
type CallPayload struct {
	Kind    string          `json:"kind"`
	SHA256  string          `json:"payload_sha256"`
	Payload json.RawMessage `json:"payload_redacted"`
}

// callHash chains one call to the one before it.
func callHash(prev, chain string, seq, at int64, principal string, event []byte) (string, error) {
	body, err := plan.Marshal(map[string]any{"chain": chain, "seq": seq, "at": at, "principal": principal, "event": json.RawMessage(event)})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(prev), body...))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// Record appends calls to their chains and settles idempotency keys in one transaction.
func (l *Ledger) Record(ctx context.Context, records []gate.Record) error {
	if len(records) == 0 {
		return nil
	}
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		heads := map[string]*chainHead{}
		for _, r := range records {
			if heads[r.Chain] == nil {
				h := &chainHead{}
				if err := tx.QueryRowContext(ctx, "SELECT seq, hash FROM call_chains WHERE chain = ?", r.Chain).Scan(&h.seq, &h.hash); err != nil {
					return err
				}
				heads[r.Chain] = h
			}
			if err := record(ctx, tx, r, heads[r.Chain]); err != nil {
				return err
			}
		}
		for chain, h := range heads {
			if _, err := tx.ExecContext(ctx, "UPDATE call_chains SET seq = ?, hash = ? WHERE chain = ?", h.seq, h.hash, chain); err != nil {
				return err
			}
		}
		return nil
	})
}

// chainHead is the newest record of a chain.
type chainHead struct {
	seq  int64
	hash string
}

// record appends one record to the chain and moves the head.
func record(ctx context.Context, tx *sql.Conn, r gate.Record, h *chainHead) error {
	seq, at := h.seq+1, micros(r.At)
	hash, err := callHash(h.hash, r.Chain, seq, at, r.Principal, r.Event)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO tool_call_events (chain, seq, at, tool_call_id, tool_id, principal, ok, event, "+
		"prev_hash, hash) VALUES (?,?,?,?,?,?,?,?,?,?)",
		r.Chain, seq, at, r.ToolCallID, r.ToolID, r.Principal, r.OK, string(r.Event), h.hash, hash); err != nil {
		return err
	}
	h.seq, h.hash = seq, hash
	var args []any
	for _, p := range r.Payloads {
		args = append(args, r.Chain, seq, r.ToolCallID, p.Kind, string(p.JSON), p.SHA256, at)
	}
	if n := len(r.Payloads); n > 0 {
		if _, err := tx.ExecContext(ctx, "INSERT INTO tool_payloads (chain, seq, tool_call_id, kind, payload_redacted, payload_sha256, "+
			"created_at) VALUES (?,?,?,?,?,?,?)"+strings.Repeat(",(?,?,?,?,?,?,?)", n-1), args...); err != nil {
			return err
		}
	}
	if p := r.Provenance; p != nil {
		if _, err := tx.ExecContext(ctx, "INSERT INTO call_runs (chain, seq, run_id, identity) VALUES (?,?,?,?)", r.Chain, seq, p.RunID,
			string(p.Identity)); err != nil {
			return err
		}
	}
	if o := r.Outcome; o != nil {
		_, err = tx.ExecContext(ctx, "UPDATE idempotency_keys SET outcome = ?, settled_at = ? WHERE principal = ? AND key_hash = ? AND "+
			"outcome IS NULL", string(o.Response), at, o.Principal, o.KeyHash)
	}
	return err
}

// CallFilter selects calls. Empty fields select all.
type CallFilter struct {
	RunID     string // those that are this run, see [CallRun]
	ToolID    string
	Principal string
	Chain     string
	Failed    bool   // only those that were not ok
	Cursor    string // from the page before
	Limit     int    // 1..500, 50 when 0
}

// CallPage is one page of recorded calls, newest first.
type CallPage struct {
	Calls  []CallEvent
	Cursor string // of the next page; empty on the last
	Total  Total  // of all pages
}

// Calls returns one page of recorded calls.
func (l *Ledger) Calls(ctx context.Context, f CallFilter) (p CallPage, err error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, 500)
	where, args := []string{"1"}, []any{}
	for _, c := range []struct{ cond, v string }{{"tool_id = ?", f.ToolID}, {"principal = ?", f.Principal}, {"chain = ?", f.Chain},
		{"(chain, seq) IN (SELECT chain, seq FROM call_runs WHERE run_id = ?)", f.RunID}} {
		if c.v != "" {
			where, args = append(where, c.cond), append(args, c.v)
		}
	}
	if f.Failed {
		where = append(where, "ok = 0")
	}
	tx, err := l.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // page and total are of the same moment
	if err != nil {
		return p, storage(err)
	}
	defer tx.Rollback()
	if f.RunID+f.ToolID+f.Principal == "" && !f.Failed {
		p.Total.Exact = true
		err = tx.QueryRowContext(ctx, "SELECT sum(seq - horizon_seq) FROM call_chains WHERE ? IN ('', chain)", f.Chain).Scan(&p.Total.N)
	} else {
		p.Total, err = countSome(ctx, tx, "SELECT 1 FROM tool_call_events WHERE "+strings.Join(where, " AND "), args...)
	}
	if err != nil {
		return p, storage(err)
	}
	if f.Cursor != "" {
		at, place, err := decodeCursor(f.Cursor)
		chain, num, ok := strings.Cut(place, "/")
		var seq int64
		if _, scan := fmt.Sscan(num, &seq); err != nil || !ok || scan != nil {
			return p, fault.Invalid("ledger.Calls", "", fault.Problem{Code: "LIST-CURSOR", Field: "cursor",
				Rule: "a cursor of an earlier page", Msg: "it is not a cursor", Hint: "leave the cursor out to start from the beginning"})
		}
		where, args = append(where, "(at, chain, seq) < (?, ?, ?)"), append(args, at, chain, seq)
	}
	p.Calls, err = calls(ctx, tx, "WHERE "+strings.Join(where, " AND ")+fmt.Sprintf(" ORDER BY at DESC, chain DESC, seq DESC LIMIT %d",
		f.Limit+1), args...)
	if err != nil || len(p.Calls) <= f.Limit {
		return p, err
	}
	last := p.Calls[f.Limit-1]
	p.Calls, p.Cursor = p.Calls[:f.Limit], encodeCursor(micros(last.At), fmt.Sprintf("%s/%d", last.Chain, last.Seq))
	return p, nil
}

type rowsQueryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func calls(ctx context.Context, db rowsQueryer, where string, args ...any) ([]CallEvent, error) {
	rows, err := db.QueryContext(ctx, "SELECT chain, seq, at, principal, event, hash FROM tool_call_events "+where, args...)
	if err != nil {
		return nil, storage(err)
	}
	defer rows.Close()
	out := []CallEvent{}
	for rows.Next() {
		var e CallEvent
		var at int64
		var event string
		if err := rows.Scan(&e.Chain, &e.Seq, &at, &e.Principal, &event, &e.Hash); err != nil {
			return nil, storage(err)
		}
		e.At, e.Event = time.UnixMicro(at).UTC(), json.RawMessage(event)
		out = append(out, e)
	}
	return out, storage(rows.Err())
}

// Call returns the newest record of a tool call with its input and output. NotFound when there is no record.
func (l *Ledger) Call(ctx context.Context, toolCallID string) (CallEvent, []CallPayload, error) {
	found, err := calls(ctx, l.r, "WHERE tool_call_id = ? ORDER BY at DESC LIMIT 1", toolCallID)
	if err != nil {
		return CallEvent{}, nil, err
	}
	if len(found) == 0 {
		return CallEvent{}, nil, fault.New(fault.NotFound, "ledger.Call", "call_not_found", "there is no record of the call "+toolCallID).
			WithNext("records of read-only calls are removed after a while; list the recorded calls").WithSteps(fault.Do("event.list"))
	}
	e := found[0]
	rows, err := l.r.QueryContext(ctx, "SELECT kind, payload_sha256, payload_redacted FROM tool_payloads WHERE chain = ? AND seq = ? ORDER "+
		"BY kind", e.Chain, e.Seq)
	if err != nil {
		return e, nil, storage(err)
	}
	defer rows.Close()
	payloads := []CallPayload{}
	for rows.Next() {
		var p CallPayload
		var doc string
		if err := rows.Scan(&p.Kind, &p.SHA256, &doc); err != nil {
			return e, nil, storage(err)
		}
		p.Payload = json.RawMessage(doc)
		payloads = append(payloads, p)
	}
	return e, payloads, storage(rows.Err())
}

// ChainState is the result of checking one chain of calls.
type ChainState struct {
	Chain   string `json:"chain"`
	Kept    int64  `json:"kept"`    // records checked
	Dropped int64  `json:"dropped"` // older ones that retention dropped; the history records the hash of the last of them
	Head    string `json:"head"`    // hash of the newest; keep a copy elsewhere to prove later that nothing was changed
}

const pruned = "tool_calls.pruned"

// VerifyCalls checks both chains of calls: each record against its predecessor, the newest against the head, the oldest against what the
// history says was dropped, and each payload against its hash and its event. A mismatch is an Internal fault.
func (l *Ledger) VerifyCalls(ctx context.Context) ([]ChainState, error) {
	var out []ChainState
	for _, chain := range []string{gate.Effects, gate.Looks} {
		s, err := l.verifyChain(ctx, chain)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, l.verifyPayloads(ctx)
}

func chainBroken(chain string, seq int64, msg string) error {
	return fault.New(fault.Internal, "ledger.VerifyCalls", "call_chain_broken",
		fmt.Sprintf("the chain of calls %q is broken at record %d: %s", chain, seq, msg)).
		WithNext("the ledger's file was changed by something other than slurmgate; compare it with a backup")
}

func (l *Ledger) verifyChain(ctx context.Context, chain string) (ChainState, error) {
	tx, err := l.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true}) // everything is read from one snapshot
	if err != nil {
		return ChainState{}, storage(err)
	}
	defer tx.Rollback()
	var head, horizon int64
	var headHash, prev string
	if err := tx.QueryRowContext(ctx, "SELECT seq, hash, horizon_seq, horizon_hash FROM call_chains WHERE chain = ?", chain).
		Scan(&head, &headHash, &horizon, &prev); err != nil {
		return ChainState{}, storage(err)
	}
	s := ChainState{Chain: chain, Dropped: horizon, Head: headHash}
	if horizon > 0 {
		var data string
		err := tx.QueryRowContext(ctx, "SELECT data FROM events WHERE type = ? ORDER BY seq DESC LIMIT 1", pruned).Scan(&data)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return s, storage(err)
		}
		var said struct {
			Through int64
			Hash    string
		}
		if json.Unmarshal([]byte(data), &said) != nil || said.Through != horizon || said.Hash != prev {
			return s, chainBroken(chain, horizon, "the history does not record that earlier records were dropped")
		}
	}
	rows, err := tx.QueryContext(ctx, "SELECT seq, at, principal, event, prev_hash, hash FROM tool_call_events WHERE chain = ? AND seq > ? "+
		"ORDER BY seq", chain, horizon)
	if err != nil {
		return s, storage(err)
	}
	defer rows.Close()
	next := horizon
	for rows.Next() {
		var seq, at int64
		var principal, event, before, hash string
		if err := rows.Scan(&seq, &at, &principal, &event, &before, &hash); err != nil {
			return s, storage(err)
		}
		next++
		want, err := callHash(prev, chain, seq, at, principal, []byte(event))
		if err != nil || seq != next || before != prev || hash != want {
			return s, chainBroken(chain, next, "the record is missing or was changed")
		}
		prev = hash
		s.Kept++
	}
	if err := rows.Err(); err != nil {
		return s, storage(err)
	}
	if next != head || prev != headHash {
		return s, chainBroken(chain, next+1, "the newest records are missing")
	}
	return s, nil
}

// verifyPayloads checks each payload against its hash, and its hash against its event.
func (l *Ledger) verifyPayloads(ctx context.Context) error {
	rows, err := l.r.QueryContext(ctx, `SELECT p.chain, p.seq, p.payload_redacted, p.payload_sha256, coalesce(json_extract(e.event, '$.' || p.kind || '_hash'), '')
 FROM tool_payloads p JOIN tool_call_events e ON e.chain = p.chain AND e.seq = p.seq`)
	if err != nil {
		return storage(err)
	}
	defer rows.Close()
	for rows.Next() {
		var chain, payload, sum, said string
		var seq int64
		if err := rows.Scan(&chain, &seq, &payload, &sum, &said); err != nil {
			return storage(err)
		}
		if got := sha256.Sum256([]byte(payload)); hex.EncodeToString(got[:]) != sum || sum != said {
			return chainBroken(chain, seq, "a payload was changed")
		}
	}
	return storage(rows.Err())
}

// dropAtOnce bounds one transaction of [Ledger.DropLooks].
const dropAtOnce = 2000

// DropLooks drops the oldest records of looks: those made before a time, and those beyond the newest keep. The history records the last one
// dropped and its hash, so that the rest can still be verified. It returns how many were dropped.
func (l *Ledger) DropLooks(ctx context.Context, before time.Time, keep int64) (dropped int64, err error) {
	for {
		n, err := l.dropSome(ctx, micros(before), keep)
		dropped += n
		if err != nil || n < dropAtOnce {
			return dropped, err
		}
	}
}

func (l *Ledger) dropSome(ctx context.Context, before, keep int64) (n int64, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n = 0
		var head, horizon int64
		if err := tx.QueryRowContext(ctx, "SELECT seq, horizon_seq FROM call_chains WHERE chain = ?", gate.Looks).
			Scan(&head, &horizon); err != nil {
			return err
		}
		// From the oldest on, as long as each is old enough or beyond the limit: a chain loses its beginning, never its middle.
		var through sql.NullInt64
		if err := tx.QueryRowContext(ctx, `SELECT max(seq) FROM (SELECT seq FROM tool_call_events WHERE chain = ?1 AND seq > ?2 AND seq <= ?2 + ?3
 AND seq < coalesce((SELECT min(seq) FROM tool_call_events WHERE chain = ?1 AND seq > ?2 AND seq <= ?2 + ?3 AND at >= ?4 AND seq > ?5), ?2 + ?3 + 1))`,
			gate.Looks, horizon, dropAtOnce, before, head-keep).Scan(&through); err != nil || !through.Valid {
			return err
		}
		var hash string
		if err := tx.QueryRowContext(ctx, "SELECT hash FROM tool_call_events WHERE chain = ? AND seq = ?", gate.Looks, through.Int64).
			Scan(&hash); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE call_chains SET horizon_seq = ?, horizon_hash = ? WHERE chain = ?", through.Int64, hash,
			gate.Looks); err != nil {
			return err
		}
		for _, table := range []string{"tool_payloads", "call_runs", "tool_call_events"} {
			if _, err := tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE chain = ? AND seq <= ?", gate.Looks, through.Int64); err != nil {
				return err
			}
		}
		n = through.Int64 - horizon
		_, err := l.appendEvent(ctx, tx, "", run.Event{Type: pruned, Data: map[string]any{"chain": gate.Looks, "through": through.Int64,
			"hash": hash, "calls": n}})
		return err
	})
	if err != nil {
		n = 0
	}
	return n, err
}
