package ledger

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/retention"
	"slurmgate/run"
)

const leaked = `pa$$ "w0rd'\é/+?&=42 of nobody`

// forms returns the secret as different programs write it.
func forms(t *testing.T) map[string]string {
	t.Helper()
	inJSON, err := json.Marshal(leaked)
	must(t, err)
	twice, err := json.Marshal(string(inJSON))
	must(t, err)
	return map[string]string{"plain": leaked, "json": string(inJSON), "json in json": string(twice), "query": url.QueryEscape(leaked),
		"path": url.PathEscape(leaked), "base64": base64.StdEncoding.EncodeToString([]byte(leaked)),
		"base64 after 1": base64.StdEncoding.EncodeToString([]byte("x" + leaked + "y")),
		"base64 after 2": base64.URLEncoding.EncodeToString([]byte("xy" + leaked)), "hex": hex.EncodeToString([]byte(leaked)),
		"shell": "'" + strings.ReplaceAll(leaked, "'", `'\''`) + "'", "ascii": `pa$$ \"w0rd'\\\u00e9/+?&=42 of nobody`}
}

func secretOf(t *testing.T) *retention.Secret {
	t.Helper()
	s, err := retention.NewSecret([]byte(leaked+"\n"), "ers_test")
	must(t, err)
	return s
}

func anErasure(id string) retention.Erasure {
	return retention.Erasure{ID: id, By: "user:lab", Reason: "it leaked", HMAC: strings.Repeat("0", 64)}
}

// leakyLedger returns a ledger with the secret in every text of every table that takes it there, as far as it is
// about finished runs, and in records of calls and of the history.
func leakyLedger(t *testing.T) (l *Ledger, planted int) {
	t.Helper()
	l = fresh(t)
	ctx := t.Context()
	id := finish(t, l, insert(t, l, 1)).Run.ID
	db := rawDB(t, l)
	db.SetMaxOpenConns(1)
	triggers, err := list(ctx, l.r, column[string], "SELECT name FROM sqlite_schema WHERE type = 'trigger'")
	must(t, err)
	texts, err := list(ctx, l.r, column[string], "SELECT sql FROM sqlite_schema WHERE type = 'trigger'")
	must(t, err)
	for _, name := range triggers {
		_, err := db.Exec("DROP TRIGGER " + name)
		must(t, err)
	}
	all, err := tables(ctx, l.r)
	must(t, err)
	about := map[string]string{"runs": "run_id = ?", "attempts": "run_id = ?",
		"param_sets":  "params_hash = (SELECT params_hash FROM runs WHERE run_id = ?)",
		"submissions": "token = (SELECT token FROM attempts WHERE run_id = ?)", "sends": "token = (SELECT token FROM attempts WHERE run_id = ?)",
		"run_inputs": "run_id = ?", "run_outputs": "run_id = ?", "policies": "0 AND ?", "packs": "0 AND ?"}
	chained := []string{"events", "tool_call_events", "tool_payloads", "call_chains", "principals", "gateway"}
	for _, tab := range all {
		if slices.Contains(chained, tab.name) {
			continue
		}
		for _, c := range tab.texts {
			if slices.Contains(tab.keys, c) {
				continue
			}
			where := orElse(about[tab.name], "1 OR ?")
			for _, form := range forms(t) {
				res, err := db.Exec(strings.ReplaceAll("UPDATE "+tab.name+" SET @ = CASE WHEN json_valid(@) AND json_type(@) = 'array' THEN "+
					"json_insert(@, '$[#]', ?1) WHEN json_valid(@) AND json_type(@) = 'object' THEN json_set(@, '$.leaked', ?1) ELSE @ || ?1 END "+
					"WHERE ("+strings.Replace(where, "?", "?2", 1)+")", "@", c), form, id)
				if err != nil {
					break // the database does not take it
				}
				if n, err := res.RowsAffected(); err == nil && n > 0 {
					planted++
				}
			}
		}
	}
	for _, text := range texts {
		_, err := db.Exec(text)
		must(t, err)
	}
	must(t, db.Close())
	for _, form := range forms(t) {
		_, err := l.Apply(ctx, note(t, l, id, form))
		if err != nil { // a finished run takes no more events
			must(t, l.write(ctx, "SELECT 1"))
		}
		r := aCall(gate.Looks, planted, t0)
		doc, err := json.Marshal(map[string]string{"text": form})
		must(t, err)
		sum := sha256.Sum256(doc)
		r.Payloads = []gate.Payload{{Kind: "args", JSON: doc, SHA256: hex.EncodeToString(sum[:])}}
		event, err := json.Marshal(map[string]any{"args_hash": r.Payloads[0].SHA256, "error": map[string]string{"message": form}})
		must(t, err)
		r.Event = event
		r.Principal = "token:" + form
		effect := r
		effect.Chain = gate.Effects
		must(t, l.Record(ctx, []gate.Record{r, effect}))
		planted += 2
	}
	return l, planted
}

// note returns a change of a run with the text in its event.
func note(t *testing.T, l *Ledger, id, text string) run.Write {
	t.Helper()
	v, err := l.View(t.Context(), id)
	must(t, err)
	return run.Write{Run: v.Run, Event: run.Event{Type: "run.note", Data: map[string]any{"text": text}}}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// files returns all bytes of the ledger.
func files(t *testing.T, l *Ledger) (all []byte) {
	t.Helper()
	names, err := filepath.Glob(l.Path() + "*")
	must(t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		must(t, err)
		all = append(all, b...)
	}
	return all
}

// A secret is erased from every table of a ledger, whatever form it has, and no byte of it is left in the files. The
// chains verify before and after and record what was erased.
func TestEraseEverywhere(t *testing.T) {
	l, planted := leakyLedger(t)
	s, ctx := secretOf(t), t.Context()
	insertWithEvent(t, l)
	_, err := l.VerifyEvents(ctx)
	must(t, err)
	_, err = l.VerifyCalls(ctx)
	must(t, err)
	rows, documents, err := l.Leaks(ctx, s)
	must(t, err)
	if planted < 100 || len(rows) < 15 {
		t.Fatalf("%d planted, %d rows", planted, len(rows))
	}
	for _, r := range rows {
		if s.In([]byte(r.Key)) {
			t.Errorf("the report has the secret: %s %q", r.Table, r.Key)
		}
	}
	must(t, l.Erase(ctx, anErasure("ers_a"), s, retention.Leak{Rows: rows, Documents: documents}, nil))
	must(t, l.Compact(ctx))
	if s.In(files(t, l)) {
		t.Error("the files still have the secret")
	}
	if n := strings.Count(string(files(t, l)), retention.Mark); n < 50 {
		t.Error(n, "marks")
	}
	if rows, documents, err := l.Leaks(ctx, s); len(rows)+len(documents) > 0 || err != nil {
		t.Error(rows, documents, err)
	}
	if _, err := l.VerifyEvents(ctx); err != nil {
		t.Error(err)
	}
	if _, err := l.VerifyCalls(ctx); err != nil {
		t.Error(err)
	}
	var triggers int
	must(t, l.r.QueryRow("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").Scan(&triggers))
	if want := fresh(t); true {
		var n int
		must(t, want.r.QueryRow("SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'").Scan(&n))
		if n != triggers {
			t.Errorf("%d triggers are left of %d", triggers, n)
		}
	}
	all, err := l.Erasures(ctx)
	if err != nil || len(all) != 1 || all[0].Records < 3*len(forms(t)) || all[0].Principal != "user:lab" {
		t.Error(all, err)
	}
	insert(t, l, 77) // the ledger still takes runs
	if _, err := l.VerifyEvents(ctx); err != nil {
		t.Error(err)
	}
}

// insertWithEvent makes a run whose event has the secret, and ends it.
func insertWithEvent(t *testing.T, l *Ledger) {
	t.Helper()
	n := newRun(55)
	n.Event.Data = map[string]any{"text": leaked}
	v, _, err := l.Insert(t.Context(), n)
	must(t, err)
	at, code := l.now(), 1
	v.Run.State, v.Run.Phase, v.Run.FinishedAt, v.Run.ExitCode, v.Run.Detail = run.Failed, run.Done, &at, &code, "it said "+leaked
	_, err = l.Apply(t.Context(), run.Write{Run: v.Run, Event: run.Event{Type: "run.over", Data: map[string]any{"detail": leaked}}})
	must(t, err)
}

// The check detects any change of the file after an erasure, in an erased record or another.
func TestTamperingAfterAnErasure(t *testing.T) {
	l, _ := leakyLedger(t)
	s, ctx := secretOf(t), t.Context()
	insertWithEvent(t, l)
	rows, documents, err := l.Leaks(ctx, s)
	must(t, err)
	must(t, l.Erase(ctx, anErasure("ers_a"), s, retention.Leak{Rows: rows, Documents: documents}, nil))
	unlock := "DROP TRIGGER events_fixed; DROP TRIGGER events_keep; DROP TRIGGER tool_call_events_fixed; PRAGMA foreign_keys = OFF; "
	for _, q := range []string{
		"UPDATE events SET data = replace(data, '[erased:', 'erased:') WHERE seq = (SELECT max(seq) FROM events WHERE data LIKE '%[erased:%' " +
			"AND type <> 'secret.erased')",
		"UPDATE events SET type = 'run.other' WHERE seq = (SELECT max(seq) FROM events WHERE data LIKE '%[erased:%' AND type <> 'secret.erased')",
		"UPDATE events SET data = replace(data, '\"principal\":\"user:lab\"', '\"principal\":\"user:eve\"') WHERE type = 'secret.erased'",
		"UPDATE events SET at = at + 1 WHERE seq = 1", "DELETE FROM events WHERE type = 'secret.erased'",
		"UPDATE tool_call_events SET event = replace(event, '[erased:', '[eraser:') WHERE event LIKE '%[erased:%'",
		"UPDATE tool_call_events SET principal = 'x' WHERE chain = 'effects' AND seq = 1",
		"UPDATE tool_payloads SET payload_redacted = replace(payload_redacted, '[erased:', '[eraser:')",
	} {
		path := filepath.Join(t.TempDir(), "ledger.db")
		_, err := l.w.Exec("VACUUM INTO ?", path)
		must(t, err)
		other := openAt(t, path)
		if _, err := other.w.Exec(unlock + q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		_, events := other.VerifyEvents(ctx)
		_, calls := other.VerifyCalls(ctx)
		if events == nil && calls == nil {
			t.Errorf("both chains verify after %s, want a mismatch", q)
		}
	}
}

// A run in flight keeps what it needs: the erasure is refused as a whole, and names the run.
func TestEraseRefusesRunsInFlight(t *testing.T) {
	l := fresh(t)
	n := newRun(1)
	n.Run.Reason = "because of " + leaked
	v, _, err := l.Insert(t.Context(), n)
	must(t, err)
	rows, documents, err := l.Leaks(t.Context(), secretOf(t))
	must(t, err)
	k := retention.Leak{Rows: rows, Documents: documents}
	if ids, err := l.InFlight(t.Context(), k); err != nil || len(ids) != 1 || ids[0] != v.Run.ID {
		t.Error(ids, err)
	}
	if err := l.Erase(t.Context(), anErasure("ers_a"), secretOf(t), k, nil); fault.CodeOf(err) != "secret_in_flight" {
		t.Error(err)
	}
	got, err := l.View(t.Context(), v.Run.ID)
	if err != nil || got.Run.Reason != n.Run.Reason {
		t.Error(got, err)
	}
	must(t, l.Integrity(t.Context()))
}

// A run whose params were erased is found by the same request and cannot be retried; the same params make no other run.
func TestErasedParams(t *testing.T) {
	l := fresh(t)
	ctx := t.Context()
	n := newRun(1)
	n.Params = json.RawMessage(fmt.Sprintf(`{"text":%q}`, strings.ReplaceAll(leaked, "é", "e")))
	s, err := retention.NewSecret([]byte(strings.ReplaceAll(leaked, "é", "e")), "ers_test")
	must(t, err)
	v, _, err := l.Insert(ctx, n)
	must(t, err)
	at, code := l.now(), 1
	v.Run.State, v.Run.Phase, v.Run.FinishedAt, v.Run.ExitCode = run.Failed, run.Done, &at, &code
	_, err = l.Apply(ctx, run.Write{Run: v.Run, Event: run.Event{Type: "run.over", Data: map[string]any{}}})
	must(t, err)
	rows, documents, err := l.Leaks(ctx, s)
	must(t, err)
	must(t, l.Erase(ctx, anErasure("ers_a"), s, retention.Leak{Rows: rows, Documents: documents}, nil))
	if _, created, err := l.Insert(ctx, n); created || err != nil {
		t.Error("the same request is another run", created, err)
	}
	if _, err := l.Params(ctx, n.Run.ParamsHash); fault.CodeOf(err) != "erased" {
		t.Error(err)
	}
	other := newRun(2)
	other.Run.ParamsHash, other.Params = n.Run.ParamsHash, n.Params
	if _, _, err := l.Insert(ctx, other); fault.CodeOf(err) != "erased" {
		t.Error(err)
	}
	must(t, l.Integrity(ctx))
}
