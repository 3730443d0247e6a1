package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/retention"
	"slurmgate/run"
)

// An erased record keeps its hash and its place in the chain, so the records after it still verify. Its own content no longer has that
// hash; what it has instead is said by an event of the history, which is in a chain itself:
//
//	secret.erased {erasure_id, principal, reason, secret_hmac, part, records: [{record, hash, now}], …}
//
// hash is the record's from before, now the one that its content has since then. A record whose content has neither is tampered with.

// secretErased is the type of those events; a large erasure makes several.
const (
	secretErased = "secret.erased"
	erasedAtOnce = 500 // records in one event
	compactTries = 40
	compactPause = 250 * time.Millisecond
)

// erasedRecord is a record of a chain that an erasure changed.
type erasedRecord struct {
	Record string `json:"record"` // e.g. history/12, looks/7, looks/7/args
	Hash   string `json:"hash"`   // from which the chain continues
	Now    string `json:"now"`    // of its content since then
}

// Erase redacts the rows of a leak in one transaction, see [retention.DeletionLedger].
func (l *Ledger) Erase(ctx context.Context, e retention.Erasure, s *retention.Secret, k retention.Leak, copies []retention.Copy) error {
	err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		flights, err := inFlight(ctx, tx, k)
		if err == nil && len(flights) > 0 {
			err = retention.InFlightFault(flights)
		}
		if err != nil {
			return err
		}
		// Freed cells are overwritten at once; until the file is rewritten, nothing of the secret is left in them.
		if _, err := tx.ExecContext(ctx, "PRAGMA secure_delete = ON"); err != nil {
			return err
		}
		x := erasing{l: l, tx: tx, e: e, s: s}
		return x.withoutTriggers(ctx, func() error { return x.carryOut(ctx, k, copies) })
	})
	if err != nil {
		return err
	}
	l.base.mu.Lock() // the base may have been erased
	defer l.base.mu.Unlock()
	l.base.id, l.base.data = 0, nil
	return l.recallBase(ctx)
}

// erasing is the transaction of one erasure.
type erasing struct {
	l       *Ledger
	tx      *sql.Conn
	e       retention.Erasure
	s       *retention.Secret
	records []erasedRecord
}

func (x *erasing) exec(ctx context.Context, query string, args ...any) error {
	_, err := x.tx.ExecContext(ctx, query, args...)
	return err
}

// withoutTriggers carries out f without the triggers that protect records from changes, within the transaction: no
// other connection can change any.
func (x *erasing) withoutTriggers(ctx context.Context, f func() error) error {
	type trigger struct{ name, text string }
	all, err := list(ctx, x.tx, func(row scanner) (t trigger, err error) {
		err = row.Scan(&t.name, &t.text)
		return t, err
	}, "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid")
	if err != nil {
		return err
	}
	for _, t := range all {
		if err := x.exec(ctx, "DROP TRIGGER "+t.name); err != nil {
			return err
		}
	}
	if err := f(); err != nil {
		return err
	}
	for _, t := range all {
		if err := x.exec(ctx, t.text); err != nil {
			return err
		}
	}
	return nil
}

func (x *erasing) carryOut(ctx context.Context, k retention.Leak, copies []retention.Copy) error {
	now := micros(x.l.now())
	if err := beginDeletion(ctx, x.tx, x.e.ID, x.e.By, "", x.e.Reason, &x.e.HMAC, now); err != nil {
		return err
	}
	all, err := tables(ctx, x.tx)
	if err != nil {
		return err
	}
	for _, r := range k.Rows {
		i := slices.IndexFunc(all, func(t table) bool { return t.name == r.Table })
		if i < 0 {
			continue // a base, which is erased with its documents
		}
		if err := x.row(ctx, all[i], r); err != nil {
			return err
		}
	}
	if err := x.documents(ctx, k); err != nil {
		return err
	}
	for _, sum := range slices.Concat(k.Objects, k.Documents) {
		if err := x.exec(ctx, "UPDATE artifacts SET removed_at = coalesce(removed_at, ?2), erased = ?3 "+
			"WHERE sha256 = ?1 OR sha256 IN ("+inDirectories+
			")", sum, now, x.e.ID); err != nil {
			return err
		}
	}
	for _, c := range copies {
		if err := x.copied(ctx, c); err != nil {
			return err
		}
	}
	for kind, names := range map[string][]string{retention.ItemObject: k.Objects, retention.ItemWorkspace: k.Workspaces,
		retention.ItemLedger: {""}} {
		if err := leftToDelete(ctx, x.tx, x.e.ID, kind, names...); err != nil {
			return err
		}
	}
	return x.say(ctx, k, len(copies))
}

// row redacts the texts of one row.
func (x *erasing) row(ctx context.Context, t table, r retention.Row) error {
	at := strings.Join(t.keys, " IS ? AND ") + " IS ?"
	if t.name == "receipts" { // what is signed cannot be redacted
		if err := x.exec(ctx, "DELETE FROM receipts WHERE "+at, r.ID...); err != nil {
			return err
		}
		return x.exec(ctx, "INSERT OR REPLACE INTO erased_documents VALUES (?,?,?)", t.name, keyText(x.s, r.ID), x.e.ID)
	}
	var texts []any
	err := each(ctx, x.tx, func(row scanner) (err error) { _, texts, err = t.scan(row); return err },
		"SELECT "+t.columns()+" FROM "+t.name+" WHERE "+at, r.ID...)
	if err != nil || texts == nil {
		return err
	}
	var set []string
	var args []any
	for i, v := range texts {
		clean, n := x.s.Redact(bytesOf(v))
		if n == 0 {
			continue
		}
		set = append(set, t.texts[i]+" = ?")
		if _, text := v.(string); text {
			args = append(args, string(clean))
		} else {
			args = append(args, clean)
		}
	}
	if len(set) == 0 {
		return nil
	}
	if err := x.exec(ctx, "UPDATE "+t.name+" SET "+strings.Join(set, ", ")+" WHERE "+at, append(args, r.ID...)...); err != nil {
		return err
	}
	switch t.name {
	case "events":
		return x.note(ctx, "SELECT 'history/' || seq, hash, '' FROM events WHERE seq = ?", r.ID, historyNow)
	case "tool_call_events":
		return x.note(ctx, "SELECT chain || '/' || seq, hash, '' FROM tool_call_events WHERE chain = ? AND seq = ?", r.ID, callNow)
	case "tool_payloads":
		return x.note(ctx, "SELECT chain || '/' || seq || '/' || kind, payload_sha256, payload_redacted FROM tool_payloads WHERE chain = ? AND "+
			"seq = ? AND kind = ?", r.ID, payloadNow)
	case "param_sets", "policies", "packs", "call_runs":
		return x.exec(ctx, "INSERT OR REPLACE INTO erased_documents VALUES (?,?,?)", t.name, r.Key, x.e.ID)
	}
	return nil
}

// note remembers what the history is to say of a changed record.
func (x *erasing) note(ctx context.Context, query string, key []any, now func(context.Context, queryer, []any, string) (string,
	error)) error {
	var r erasedRecord
	var content string
	err := x.tx.QueryRowContext(ctx, query, key...).Scan(&r.Record, &r.Hash, &content)
	if err == nil {
		r.Now, err = now(ctx, x.tx, key, content)
	}
	x.records = append(x.records, r)
	return err
}

func historyNow(ctx context.Context, q queryer, key []any, _ string) (string, error) {
	var seq, at int64
	var typ, runID, data, prev string
	err := q.QueryRowContext(ctx, "SELECT seq, at, type, run_id, data, prev_hash FROM events WHERE seq = ?", key...).
		Scan(&seq, &at, &typ, &runID, &data, &prev)
	return eventHash(prev, seq, at, typ, runID, []byte(data)), err
}

func callNow(ctx context.Context, q queryer, key []any, _ string) (string, error) {
	var c chained
	var prev string
	err := q.QueryRowContext(ctx, "SELECT "+chainedColumns+", prev_hash FROM tool_call_events WHERE chain = ? AND seq = ?", key...).
		Scan(append(c.fields(), &prev)...)
	return c.hash(prev), err
}

func payloadNow(_ context.Context, _ queryer, _ []any, content string) (string, error) {
	return sumOf(content), nil
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// documents removes the documents that hold the secret. Others that are stored against the same base are stored whole first.
func (x *erasing) documents(ctx context.Context, k retention.Leak) error {
	for _, sum := range k.Documents {
		raw, err := hex.DecodeString(sum)
		if err == nil {
			err = x.exec(ctx, "DELETE FROM payloads WHERE sha256 = ?", raw)
		}
		if err != nil {
			return err
		}
	}
	for _, r := range k.Rows {
		if r.Table != "payload_bases" {
			continue
		}
		for _, q := range []string{
			`UPDATE payloads SET middle = CAST(substr(b.data, 1, head) || middle || substr(b.data, length(b.data) - tail + 1) AS BLOB), head = 0, tail = 0,
 base_id = NULL FROM payload_bases b WHERE b.base_id = ?1 AND payloads.base_id = ?1`,
			"DELETE FROM payload_bases WHERE base_id = ?1",
		} {
			if err := x.exec(ctx, q, r.ID...); err != nil {
				return err
			}
		}
	}
	return nil
}

// copied registers a redacted log or script and puts it in the place of the artifact it was made of.
func (x *erasing) copied(ctx context.Context, c retention.Copy) error {
	a, err := scanArtifact(x.tx.QueryRowContext(ctx, "SELECT "+artifactColumns+" FROM artifacts a WHERE a.artifact_id = ?", c.Of))
	if err != nil {
		return err
	}
	a.SHA256, a.SizeBytes = c.SHA256, c.SizeBytes
	if a.ID, err = plan.ArtifactID(a.ProjectID, a.SHA256, a.Type, a.Label); err != nil {
		return err
	}
	if _, err := x.l.addArtifact(ctx, x.tx, a, true); err != nil {
		return err
	}
	for _, q := range []string{"UPDATE run_outputs SET artifact_id = ?2 WHERE artifact_id = ?1",
		"UPDATE runs SET log_artifact_id = ?2 WHERE log_artifact_id = ?1",
		"UPDATE runs SET script_artifact_id = ?2 WHERE script_artifact_id = ?1"} {
		if err := x.exec(ctx, q, c.Of, a.ID); err != nil {
			return err
		}
	}
	return nil
}

// say appends the events.
func (x *erasing) say(ctx context.Context, k retention.Leak, copies int) error {
	for part := 0; part == 0 || part*erasedAtOnce < len(x.records); part++ {
		records := x.records[part*erasedAtOnce : min(len(x.records), (part+1)*erasedAtOnce)]
		if records == nil {
			records = []erasedRecord{}
		}
		data := map[string]any{"erasure_id": x.e.ID, "principal": x.e.By, "reason": x.e.Reason, "secret_hmac": x.e.HMAC, "part": part + 1,
			"records": records}
		if part == 0 {
			data["rows"], data["objects"], data["documents"], data["workspaces"], data["copies"] = len(k.Rows), orNone(k.Objects),
				orNone(k.Documents), orNone(k.Workspaces), copies
		}
		if err := x.l.appendEvent(ctx, x.tx, "", run.Event{Type: secretErased, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

func orNone(list []string) []string { return append([]string{}, list...) }

// Erasure is an erasure as the history records it.
type Erasure struct {
	ID        string    `json:"erasure_id"`
	At        time.Time `json:"at"`
	Principal string    `json:"principal"`
	Reason    string    `json:"reason"`
	Records   int       `json:"records"` // of the chains that it changed
}

// erasedRecords reads which records erasures changed; of a record that several changed, the last counts.
func erasedRecords(ctx context.Context, q queryer) (by map[string]erasedRecord, all []Erasure, err error) {
	by = map[string]erasedRecord{}
	err = each(ctx, q, func(row scanner) error {
		var at time.Time
		var data struct {
			ID        string         `json:"erasure_id"`
			Principal string         `json:"principal"`
			Reason    string         `json:"reason"`
			Records   []erasedRecord `json:"records"`
		}
		if err := row.Scan(into{&at}, into{&data}); err != nil {
			return err
		}
		for _, r := range data.Records {
			by[r.Record] = r
		}
		if n := len(all); n > 0 && all[n-1].ID == data.ID {
			all[n-1].Records += len(data.Records)
		} else {
			all = append(all, Erasure{data.ID, at, data.Principal, data.Reason, len(data.Records)})
		}
		return nil
	}, "SELECT at, data FROM events WHERE type = '"+secretErased+"' ORDER BY seq") // as its index has it
	return by, all, err
}

// Erasures lists the erasures of secrets, oldest first.
func (l *Ledger) Erasures(ctx context.Context) ([]Erasure, error) {
	_, all, err := erasedRecords(ctx, l.r)
	return append([]Erasure{}, all...), err
}

// erasedFault returns the fault for a document that an erasure changed; nil for any other.
func erasedFault(ctx context.Context, q queryer, tbl, key, what string) error {
	var id string
	err := q.QueryRowContext(ctx, "SELECT erasure_id FROM erased_documents WHERE tbl = ? AND key = ?", tbl, key).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "erased", fmt.Sprintf("%s held a secret, which was erased (%s)", what, id)).
		WithNext("make the call again without the secret: that is another run")
}
