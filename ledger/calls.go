package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
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
	Principal string          `json:"principal"`    // name
	By        string          `json:"principal_id"` // "" for a caller who was not known, and in records older than ids
	Event     json.RawMessage `json:"event"`        // the ToolCallEvent
	Hash      string          `json:"hash"`
}

// CallPayload is the redacted input or output of a call.
type CallPayload struct {
	Kind    string          `json:"kind"`
	SHA256  string          `json:"payload_sha256"`
	Payload json.RawMessage `json:"payload_redacted"`
}

// callHash chains one call to the one before it: SHA-256(prev + canonical {at, chain, event, principal, principal_id, seq}), without
// principal_id where there is none. The event is canonical.
func callHash(prev, chain string, seq, at int64, principal, by string, event []byte) string {
	if by != "" {
		by = `"principal_id":` + word(by) + ","
	}
	return plan.Hash(fmt.Appendf(nil, `%s{"at":%d,"chain":%s,"event":%s,"principal":%s,%s"seq":%d}`, prev, at, word(chain), event,
		word(principal), by, seq))
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
	hash := callHash(h.hash, r.Chain, seq, at, r.Principal, r.PrincipalID, r.Event)
	if _, err := tx.ExecContext(ctx, "INSERT INTO tool_call_events (chain, seq, at, tool_call_id, tool_id, principal, "+
		"principal_id, ok, event, prev_hash, hash) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
		r.Chain, seq, at, r.ToolCallID, r.ToolID, r.Principal, r.PrincipalID, r.OK, string(r.Event), h.hash, hash); err != nil {
		return err
	}
	h.seq, h.hash = seq, hash
	for _, p := range r.Payloads {
		if _, err := tx.ExecContext(ctx, "INSERT INTO tool_payloads (chain, seq, tool_call_id, kind, payload_redacted, payload_sha256, "+
			"created_at) VALUES (?,?,?,?,?,?,?)", r.Chain, seq, r.ToolCallID, p.Kind, string(p.JSON), p.SHA256, at); err != nil {
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
		_, err := tx.ExecContext(ctx, "UPDATE idempotency_keys SET outcome = ?, settled_at = ? WHERE principal = ? AND key_hash = ? AND "+
			"outcome IS NULL", string(o.Response), at, o.Principal, o.KeyHash)
		return err
	}
	return nil
}

// CallFilter selects calls. Empty fields select all.
type CallFilter struct {
	RunID     string // those that are this run, see [CallRun]
	ToolID    string
	Principal string // name or id
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
	var w where
	w.is("tool_id", f.ToolID)
	if f.Principal != "" {
		w.add("? IN (principal, principal_id)", f.Principal)
	}
	w.is("chain", f.Chain)
	if f.RunID != "" {
		w.add("(chain, seq) IN (SELECT chain, seq FROM call_runs WHERE run_id = ?)", f.RunID)
	}
	if f.Failed {
		w.add("ok = 0")
	}
	limit := pageLimit(f.Limit)
	err = l.snapshot(ctx, func(tx *sql.Tx) (err error) { // page and total are of the same moment
		if f.RunID+f.ToolID+f.Principal == "" && !f.Failed {
			p.Total.Exact = true
			err = tx.QueryRowContext(ctx, "SELECT sum(seq - horizon_seq) FROM call_chains WHERE ? IN ('', chain)", f.Chain).Scan(&p.Total.N)
		} else {
			p.Total, err = countSome(ctx, tx, "SELECT 1 FROM tool_call_events WHERE "+w.String(), w.args...)
		}
		if err != nil {
			return err
		}
		if f.Cursor != "" {
			var at, seq int64
			var chain string
			if err := decodeCursor(f.Cursor, &at, &chain, &seq); err != nil {
				return err
			}
			w.add("(at, chain, seq) < (?, ?, ?)", at, chain, seq)
		}
		p.Calls, err = list(ctx, tx, scanCall, callQuery+w.String()+" ORDER BY at DESC, chain DESC, seq DESC LIMIT ?", append(w.args, limit+1)...)
		return err
	})
	p.Calls, p.Cursor = page(p.Calls, limit, func(e CallEvent) []any { return []any{micros(e.At), e.Chain, e.Seq} })
	return p, err
}

const callQuery = "SELECT chain, seq, at, principal, principal_id, event, hash FROM tool_call_events WHERE "

func scanCall(row scanner) (e CallEvent, err error) {
	err = row.Scan(&e.Chain, &e.Seq, into{&e.At}, &e.Principal, &e.By, into{&e.Event}, &e.Hash)
	return e, err
}

// Call returns the newest record of a tool call with its input and output. NotFound when there is no record.
func (l *Ledger) Call(ctx context.Context, toolCallID string) (CallEvent, []CallPayload, error) {
	e, err := scanCall(l.r.QueryRowContext(ctx, callQuery+"tool_call_id = ? ORDER BY at DESC LIMIT 1", toolCallID))
	if errors.Is(err, sql.ErrNoRows) {
		return e, nil, fault.New(fault.NotFound, "ledger.Call", "call_not_found", "there is no record of the call "+toolCallID).
			WithNext("records of read-only calls are removed after a while; list the recorded calls").WithSteps(fault.Do("event.list"))
	}
	if err != nil {
		return e, nil, storage(err)
	}
	payloads, err := list(ctx, l.r, func(row scanner) (p CallPayload, err error) {
		err = row.Scan(&p.Kind, &p.SHA256, into{&p.Payload})
		return p, err
	}, "SELECT kind, payload_sha256, payload_redacted FROM tool_payloads WHERE chain = ? AND seq = ? ORDER BY kind", e.Chain, e.Seq)
	return e, payloads, err
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
func (l *Ledger) VerifyCalls(ctx context.Context) (out []ChainState, err error) {
	for _, chain := range []string{gate.Effects, gate.Looks} {
		s := ChainState{Chain: chain}
		if err := l.snapshot(ctx, func(tx *sql.Tx) error { return s.verify(ctx, tx) }); err != nil {
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

// verify checks one chain and fills the rest of its state.
func (s *ChainState) verify(ctx context.Context, tx *sql.Tx) error {
	var head int64
	var prev string
	if err := tx.QueryRowContext(ctx, "SELECT seq, hash, horizon_seq, horizon_hash FROM call_chains WHERE chain = ?", s.Chain).
		Scan(&head, &s.Head, &s.Dropped, &prev); err != nil {
		return err
	}
	if s.Dropped > 0 {
		var said struct {
			Through int64
			Hash    string
		}
		err := tx.QueryRowContext(ctx, "SELECT data FROM events WHERE type = ? ORDER BY seq DESC LIMIT 1", pruned).Scan(into{&said})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if said.Through != s.Dropped || said.Hash != prev {
			return chainBroken(s.Chain, s.Dropped, "the history does not record that earlier records were dropped")
		}
	}
	next := s.Dropped
	err := each(ctx, tx, func(row scanner) error {
		var seq, at int64
		var principal, by, event, before, hash string
		if err := row.Scan(&seq, &at, &principal, &by, &event, &before, &hash); err != nil {
			return err
		}
		next++
		if seq != next || before != prev || hash != callHash(prev, s.Chain, seq, at, principal, by, []byte(event)) {
			return chainBroken(s.Chain, next, "the record is missing or was changed")
		}
		prev = hash
		s.Kept++
		return nil
	}, "SELECT seq, at, principal, principal_id, event, prev_hash, hash FROM tool_call_events WHERE chain = ? AND seq > ? ORDER BY seq",
		s.Chain, s.Dropped)
	if err == nil && (next != head || prev != s.Head) {
		return chainBroken(s.Chain, next+1, "the newest records are missing")
	}
	return err
}

// verifyPayloads checks each payload against its hash, and its hash against its event.
func (l *Ledger) verifyPayloads(ctx context.Context) error {
	return each(ctx, l.r, func(row scanner) error {
		var chain, payload, sum, said string
		var seq int64
		if err := row.Scan(&chain, &seq, &payload, &sum, &said); err != nil {
			return err
		}
		if got := sha256.Sum256([]byte(payload)); hex.EncodeToString(got[:]) != sum || sum != said {
			return chainBroken(chain, seq, "a payload was changed")
		}
		return nil
	}, `SELECT p.chain, p.seq, p.payload_redacted, p.payload_sha256, coalesce(json_extract(e.event, '$.' || p.kind || '_hash'), '')
 FROM tool_payloads p JOIN tool_call_events e ON e.chain = p.chain AND e.seq = p.seq`)
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
		if err := tx.QueryRowContext(ctx, `UPDATE call_chains SET horizon_seq = e.seq, horizon_hash = e.hash FROM tool_call_events e
 WHERE call_chains.chain = ?1 AND e.chain = ?1 AND e.seq = ?2 RETURNING horizon_hash`, gate.Looks, through.Int64).Scan(&hash); err != nil {
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
