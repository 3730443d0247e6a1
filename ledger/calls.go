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

	"github.com/google/uuid"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

var (
	_ gate.Journal  = (*Ledger)(nil)
	_ gate.Promises = (*Ledger)(nil)
	_ gate.Owners   = (*Ledger)(nil)
)

// CallEvent is one recorded tool call.
type CallEvent struct {
	Chain     string          `json:"chain"` // effects, looks or refused
	Seq       int64           `json:"seq"`
	At        time.Time       `json:"at"`
	Principal string          `json:"principal"`    // name
	By        string          `json:"principal_id"` // "" for a caller who was not known
	Face      *string         `json:"face"`         // shell, socket, http or mcp; null: recorded before faces were
	Address   *string         `json:"address"`      // of the client, or the uid and pid of a process of this host; null: not known
	Count     int64           `json:"count"`        // of the refused calls in this record; else 1
	EventID   string          `json:"event_id"`     // UUID derived from the hash, so it stays the same and needs no column
	Timestamp time.Time       `json:"timestamp"`    // at, by the name that readers of such events know
	Event     json.RawMessage `json:"event"`        // the ToolCallEvent; of the last of them
	Hash      string          `json:"hash"`
}

// CallPayload is the redacted input or output of a call.
type CallPayload struct {
	Kind    string          `json:"kind"`
	SHA256  string          `json:"payload_sha256"`
	Payload json.RawMessage `json:"payload_redacted"`
}

// chained has the fields that the hash of a record covers.
type chained struct {
	chain, principal, by, face, address, event string
	seq, at, count                             int64
}

// chainedColumns are the columns of a chained, in the order of its fields.
const chainedColumns = "chain, principal, principal_id, face, address, event, seq, at, count"

func (c *chained) fields() []any {
	return []any{&c.chain, &c.principal, &c.by, &c.face, &c.address, &c.event, &c.seq, &c.at, &c.count}
}

// hash chains one call to the one before it: SHA-256(prev + canonical {address, at, chain, count, event, face, principal, principal_id,
// seq}), without a count of 1, and without address, face and principal_id if absent. The event is canonical.
func (c chained) hash(prev string) string {
	optional := func(key, value string) string {
		if value == "" {
			return ""
		}
		return `"` + key + `":` + word(value) + ","
	}
	many := ""
	if c.count != 1 {
		many = fmt.Sprintf(`"count":%d,`, c.count)
	}
	return plan.Hash(fmt.Appendf(make([]byte, 0, len(prev)+len(c.event)+512), `%s{%s"at":%d,"chain":%s,%s"event":%s,%s"principal":%s,%s"seq":%d}`, prev,
		optional("address", c.address), c.at, word(c.chain), many, c.event, optional("face", c.face), word(c.principal),
		optional("principal_id", c.by), c.seq))
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
			if _, err := tx.ExecContext(ctx, "UPDATE call_chains SET seq = ?, hash = ?, bytes = bytes + ? WHERE chain = ?", h.seq, h.hash,
				h.bytes, chain); err != nil {
				return err
			}
		}
		return nil
	})
}

// Recorded reports whether the record of a call is in its chain.
func (l *Ledger) Recorded(ctx context.Context, r gate.Record) (there bool, err error) {
	err = l.r.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM tool_call_events WHERE tool_call_id = ? AND at = ? AND chain = ? AND "+
		"event = ?)", r.ToolCallID, micros(r.At), r.Chain, string(r.Event)).Scan(&there)
	return there, err
}

// chainHead is the newest record of a chain.
type chainHead struct {
	seq   int64
	hash  string
	bytes int64 // added in this transaction
}

// record appends one record to the chain and moves the head.
func record(ctx context.Context, tx *sql.Conn, r gate.Record, h *chainHead) error {
	seq, at, event := h.seq+1, micros(r.At), string(r.Event)
	count := max(1, r.Count)
	hash := chained{r.Chain, r.Principal, r.PrincipalID, string(r.Face), r.Address, event, seq, at, count}.hash(h.hash)
	if _, err := tx.ExecContext(ctx, "INSERT INTO tool_call_events (chain, seq, at, tool_call_id, tool_id, principal, "+
		"principal_id, face, address, ok, event, prev_hash, hash, count) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
		r.Chain, seq, at, r.ToolCallID, r.ToolID, r.Principal, r.PrincipalID, r.Face, r.Address, r.OK, event, h.hash, hash,
		count); err != nil {
		return err
	}
	for _, id := range r.Runs {
		if _, err := tx.ExecContext(ctx, "INSERT OR IGNORE INTO call_about VALUES (?,?,?)", r.Chain, seq, id); err != nil {
			return err
		}
	}
	h.seq, h.hash, h.bytes = seq, hash, h.bytes+int64(len(r.Event))
	var payloads []any
	for _, p := range r.Payloads {
		h.bytes += int64(len(p.JSON))
		payloads = append(payloads, r.Chain, seq, r.ToolCallID, p.Kind, string(p.JSON), p.SHA256, at)
	}
	if n := len(r.Payloads); n > 0 {
		if _, err := tx.ExecContext(ctx, "INSERT INTO tool_payloads (chain, seq, tool_call_id, kind, payload_redacted, payload_sha256, "+
			"created_at) VALUES (?,?,?,?,?,?,?)"+strings.Repeat(",(?,?,?,?,?,?,?)", n-1), payloads...); err != nil {
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
	Run       string // those that are about this run, or are it
	RunID     string // those that are this run, see [CallRun]
	ToolID    string
	Principal string // name or id
	Chain     string
	Outcome   string // the code of their error
	Face      string
	Address   string
	Since     time.Time // recorded at or after; zero: all
	Until     time.Time // recorded before; zero: all
	Failed    bool      // only those that were not ok
	Cursor    string    // from the page before
	Limit     int       // 1..500, 50 when 0
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
	w.is("face", f.Face)
	w.is("address", f.Address)
	if !f.Since.IsZero() {
		w.add("at >= ?", micros(f.Since))
	}
	if !f.Until.IsZero() {
		w.add("at < ?", micros(f.Until))
	}
	if f.Run != "" {
		w.add("(chain, seq) IN (SELECT chain, seq FROM (SELECT chain, seq FROM call_about WHERE run_id = ? UNION "+
			"SELECT chain, seq FROM call_runs WHERE run_id = ?))",
			f.Run, f.Run)
	}
	if f.RunID != "" {
		w.add("(chain, seq) IN (SELECT chain, seq FROM call_runs WHERE run_id = ?)", f.RunID)
	}
	if f.Failed {
		w.add("ok = 0")
	}
	if f.Outcome != "" {
		w.add("ok = 0 AND json_extract(event, '$.error.code') = ?", f.Outcome)
	}
	limit := pageLimit(f.Limit)
	err = l.snapshot(ctx, func(tx *sql.Tx) (err error) { // page and total are of the same moment
		if f == (CallFilter{Chain: f.Chain, Cursor: f.Cursor, Limit: f.Limit}) {
			p.Total.Exact = true
			err = tx.QueryRowContext(ctx, "SELECT sum(seq - horizon_seq) FROM call_chains WHERE ? IN ('', chain)", f.Chain).Scan(&p.Total.N)
		} else {
			p.Total, err = countSome(ctx, tx, countedAtMost, "SELECT 1 FROM tool_call_events WHERE "+w.String(), w.args...)
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

const callQuery = "SELECT chain, seq, at, principal, principal_id, face, address, count, event, hash FROM tool_call_events WHERE "

func scanCall(row scanner) (e CallEvent, err error) {
	err = row.Scan(&e.Chain, &e.Seq, into{&e.At}, &e.Principal, &e.By, into{&e.Face}, into{&e.Address}, &e.Count, into{&e.Event}, &e.Hash)
	e.EventID, e.Timestamp = uuid.NewSHA1(uuid.NameSpaceOID, []byte(e.Hash)).String(), e.At
	return e, err
}

// Name returns the record's chain and number, e.g. looks/12. No other record ever has it.
func (e CallEvent) Name() string { return fmt.Sprintf("%s/%d", e.Chain, e.Seq) }

// maxSame bounds the records of one id that are named.
const maxSame = 20

// Call returns a record with its input and output, by its name, by the id of the call, or with just the payload of a
// handle. Callers choose ids and may choose one again: the first record of an id is the answer, so that no later call
// can hide it, and same names the others, oldest first. An unknown call is NotFound.
func (l *Ledger) Call(ctx context.Context, call string) (e CallEvent, payloads []CallPayload, same []string, err error) {
	w := where{}
	id, kind, hash, handle := gate.ParsePayloadRef(call)
	if chain, seq, named := strings.Cut(call, "/"); handle {
		w.add("tool_call_id = ? AND EXISTS (SELECT 1 FROM tool_payloads p WHERE p.chain = tool_call_events.chain AND "+
			"p.seq = tool_call_events.seq AND p.kind = ?) AND json_extract(event, '$.' || ? || '_hash') = ?", id, kind, kind, hash)
	} else if named {
		w.add("chain = ? AND seq = CAST(? AS INTEGER)", chain, seq)
	} else {
		w.add("tool_call_id = ?", call)
	}
	found, err := list(ctx, l.r, scanCall, callQuery+w.String()+" ORDER BY at, chain, seq LIMIT ?", append(w.args, maxSame+1)...)
	if err != nil {
		return e, nil, nil, err
	}
	if len(found) == 0 {
		return e, nil, nil, fault.New(fault.NotFound, "call_not_found", "there is no record of the call "+call).
			WithNext("records of calls that changed nothing are removed after a while; list the recorded calls").WithSteps(fault.Do("event.list"))
	}
	e = found[0]
	for _, other := range found[1:] {
		same = append(same, other.Name())
	}
	payloads, err = list(ctx, l.r, func(row scanner) (p CallPayload, err error) {
		err = row.Scan(&p.Kind, &p.SHA256, into{&p.Payload})
		return p, err
	}, "SELECT kind, payload_sha256, payload_redacted FROM tool_payloads WHERE chain = ? AND seq = ? AND ? IN ('', kind) ORDER BY kind",
		e.Chain, e.Seq, kind)
	return e, payloads, same, err
}

// ChainState is the result of checking one chain of calls.
type ChainState struct {
	Chain   string `json:"chain"`
	Kept    int64  `json:"kept"`    // records checked
	Dropped int64  `json:"dropped"` // older ones that retention dropped; the history records the hash of the last of them
	Head    string `json:"head"`    // hash of the newest; keep a copy elsewhere to prove later that nothing was changed
}

const pruned = "tool_calls.pruned"

// VerifyCalls checks every chain of calls: each record against its predecessor, the newest against the head, the
// oldest against the history's record of what was dropped, and each payload against its hash and its event. A
// mismatch is an Internal fault.
func (l *Ledger) VerifyCalls(ctx context.Context) (out []ChainState, err error) {
	for _, chain := range []string{gate.Effects, gate.Looks, gate.Refused} {
		s, err := l.verifyChain(ctx, chain)
		var now int64
		for err != nil { // retention may have dropped records that were still to be read: then the rest is checked
			if l.one(ctx, "SELECT horizon_seq FROM call_chains WHERE chain = ?", chain).Scan(&now) != nil || now == s.Dropped {
				return nil, err
			}
			s, err = l.verifyChain(ctx, chain)
		}
		out = append(out, s)
	}
	return out, l.verifyPayloads(ctx)
}

func chainBroken(chain string, seq int64, msg string) error {
	return fault.New(fault.Internal, "call_chain_broken",
		fmt.Sprintf("the chain of calls %q is broken at record %d: %s", chain, seq, msg)).
		WithNext("the ledger's file was changed by something other than slurmgate; compare it with a backup")
}

// verifyChain checks one chain up to the record that is its newest when it begins.
func (l *Ledger) verifyChain(ctx context.Context, chain string) (s ChainState, err error) {
	s.Chain = chain
	var head int64
	var prev string
	if err := l.snapshot(ctx, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, "SELECT seq, hash, horizon_seq, horizon_hash FROM call_chains WHERE chain = ?", chain).
			Scan(&head, &s.Head, &s.Dropped, &prev); err != nil || s.Dropped == 0 {
			return err
		}
		var said struct {
			Through int64
			Hash    string
		}
		err := tx.QueryRowContext(ctx, "SELECT data FROM events WHERE type = ? AND json_extract(data, '$.chain') = ? ORDER BY seq DESC LIMIT 1",
			pruned, chain).Scan(into{&said})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if said.Through != s.Dropped || said.Hash != prev {
			return chainBroken(chain, s.Dropped, "the history does not record that earlier records were dropped")
		}
		return nil
	}); err != nil {
		return s, err
	}
	last := s.Dropped
	err = l.inParts(ctx, func(rows int) (read int, changed []erasedRecord, err error) {
		err = each(ctx, l.r, func(row scanner) error {
			var c chained
			var before, hash string
			if err := row.Scan(append(c.fields(), &before, &hash)...); err != nil {
				return err
			}
			if c.seq != last+1 || before != prev {
				return chainBroken(chain, last+1, "the record is missing or was changed")
			}
			if got := c.hash(prev); got != hash {
				changed = append(changed, erasedRecord{fmt.Sprintf("%s/%d", chain, c.seq), hash, got})
			}
			prev, last, read = hash, c.seq, read+1
			s.Kept++
			return nil
		}, "SELECT "+chainedColumns+", prev_hash, hash FROM tool_call_events WHERE chain = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT ?",
			chain, last, head, rows)
		return read, changed, err
	}, func(r erasedRecord) error {
		_, seq, _ := strings.Cut(r.Record, "/")
		n, _ := strconv.ParseInt(seq, 10, 64) // it was written above
		return chainBroken(chain, n, "the record is missing or was changed")
	})
	if err == nil && (last != head || prev != s.Head) {
		return s, chainBroken(chain, last+1, "the newest records are missing")
	}
	return s, err
}

// verifyPayloads checks each payload against its hash, and its hash against its event.
func (l *Ledger) verifyPayloads(ctx context.Context) error {
	var chain, kind string
	var seq int64
	return l.inParts(ctx, func(rows int) (read int, changed []erasedRecord, err error) {
		err = each(ctx, l.r, func(row scanner) error {
			var payload, sum, said string
			if err := row.Scan(&chain, &seq, &kind, &payload, &sum, &said); err != nil {
				return err
			}
			if sum != said {
				return chainBroken(chain, seq, "a payload was changed")
			}
			if got := sumOf(payload); got != sum {
				changed = append(changed, erasedRecord{fmt.Sprintf("%s/%d/%s", chain, seq, kind), sum, got})
			}
			read++
			return nil
		}, `SELECT p.chain, p.seq, p.kind, p.payload_redacted, p.payload_sha256, coalesce(json_extract(e.event, '$.' || p.kind || '_hash'), '')
 FROM tool_payloads p JOIN tool_call_events e ON e.chain = p.chain AND e.seq = p.seq
 WHERE (p.chain, p.seq, p.kind) > (?, ?, ?) ORDER BY p.chain, p.seq, p.kind LIMIT ?`, chain, seq, kind, rows)
		return read, changed, err
	}, func(r erasedRecord) error {
		part := strings.Split(r.Record, "/")
		n, _ := strconv.ParseInt(part[1], 10, 64) // it was written above
		return chainBroken(part[0], n, "a payload was changed")
	})
}
