package ledger

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"slurmgate/retention"
)

// table is a table with the columns that may hold a text.
type table struct {
	name  string
	keys  []string // primary key
	texts []string // TEXT and BLOB columns
}

// notSearched lists tables without text from outside the gateway. Payloads and their bases are searched as the
// documents they make up.
var notSearched = []string{"gate_key", "receipt_keys", "payloads", "payload_bases"}

// tables reads the schema, so that a table of a later migration is searched too.
func tables(ctx context.Context, q queryer) (out []table, err error) {
	names, err := list(ctx, q, column[string], "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.Contains(notSearched, name) {
			continue
		}
		t := table{name: name}
		err := each(ctx, q, func(row scanner) error {
			var column, typ string
			var key int
			if err := row.Scan(&column, &typ, &key); err != nil {
				return err
			}
			if key > 0 {
				t.keys = append(t.keys, column)
			}
			if typ == "TEXT" || typ == "BLOB" {
				t.texts = append(t.texts, column)
			}
			return nil
		}, "SELECT name, type, pk FROM pragma_table_info(?) ORDER BY pk, cid", name)
		if err != nil {
			return nil, err
		}
		if len(t.keys) > 0 && len(t.texts) > 0 {
			out = append(out, t)
		}
	}
	return out, nil
}

// columns returns the key's columns and the texts', in this order.
func (t table) columns() string { return strings.Join(slices.Concat(t.keys, t.texts), ", ") }

// scan reads them.
func (t table) scan(row scanner) (key, texts []any, err error) {
	values := make([]any, len(t.keys)+len(t.texts))
	to := make([]any, len(values))
	for i := range values {
		to[i] = &values[i]
	}
	err = row.Scan(to...)
	return values[:len(t.keys)], values[len(t.keys):], err
}

// bytesOf returns the text of a column; nil for NULL.
func bytesOf(v any) []byte {
	switch v := v.(type) {
	case string:
		return []byte(v)
	case []byte:
		return v
	}
	return nil
}

// keyText returns a key as reports and the history write it.
func keyText(s *retention.Secret, key []any) string {
	var parts []string
	for _, v := range key {
		part := fmt.Sprint(v)
		if b := bytesOf(v); b != nil {
			part = string(b)
		}
		parts = append(parts, part)
	}
	clean, _ := s.Redact([]byte(strings.Join(parts, "/")))
	return string(clean)
}

// Leaks lists the rows and documents that hold a secret.
func (l *Ledger) Leaks(ctx context.Context, s *retention.Secret) (rows []retention.Row, documents []string, err error) {
	all, err := tables(ctx, l.r)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range all {
		err := each(ctx, l.r, func(row scanner) error {
			key, texts, err := t.scan(row)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(texts, func(v any) bool { return s.In(bytesOf(v)) }) {
				rows = append(rows, retention.Row{Table: t.name, Key: keyText(s, key), ID: key})
			}
			return nil
		}, "SELECT "+t.columns()+" FROM "+t.name)
		if err != nil {
			return nil, nil, err
		}
	}
	err = l.leakedDocuments(ctx, l.r, func(sum []byte, _ int64, held bool) error {
		if held {
			documents = append(documents, hex.EncodeToString(sum))
		}
		return nil
	}, s)
	if err != nil {
		return nil, nil, err
	}
	bases, err := leakedBases(ctx, l.r, s)
	for _, id := range bases {
		rows = append(rows, retention.Row{Table: "payload_bases", Key: fmt.Sprint(id), ID: []any{id}})
	}
	return rows, documents, err
}

// leakedDocuments calls f with every document, and whether it holds the secret.
func (l *Ledger) leakedDocuments(ctx context.Context, q queryer, f func(sum []byte, base int64, held bool) error,
	s *retention.Secret) error {
	return each(ctx, q, func(row scanner) error {
		var sum, middle, base []byte
		var head, tail int
		var baseID sql.NullInt64
		if err := row.Scan(&sum, &baseID, &head, &middle, &tail, &base); err != nil {
			return err
		}
		whole := middle
		if head <= len(base) && tail <= len(base) {
			whole = slices.Concat(base[:head], middle, base[len(base)-tail:])
		}
		return f(sum, baseID.Int64, s.In(whole))
	}, "SELECT p.sha256, p.base_id, p.head, p.middle, p.tail, b.data FROM payloads p LEFT JOIN payload_bases b ON b.base_id = p.base_id")
}

func leakedBases(ctx context.Context, q queryer, s *retention.Secret) (ids []int64, err error) {
	err = each(ctx, q, func(row scanner) error {
		var id int64
		var data []byte
		if err := row.Scan(&id, &data); err != nil {
			return err
		}
		if s.In(data) {
			ids = append(ids, id)
		}
		return nil
	}, "SELECT base_id, data FROM payload_bases")
	return ids, err
}

// LeakedArtifacts lists the artifacts with these bytes.
func (l *Ledger) LeakedArtifacts(ctx context.Context, sums []string) (out []retention.LeakedArtifact, err error) {
	for _, sum := range sums {
		more, err := list(ctx, l.r, func(row scanner) (a retention.LeakedArtifact, err error) {
			err = row.Scan(&a.ID, &a.SHA256, &a.SizeBytes, &a.Log)
			return a, err
		}, `SELECT a.artifact_id, a.sha256, a.size_bytes, `+isLog+` FROM artifacts a WHERE a.sha256 = ?1 OR a.sha256 IN (`+inDirectories+`)
 ORDER BY a.artifact_id`, sum)
		if err != nil {
			return nil, err
		}
		for _, a := range more { // a directory may have several of them
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out, nil
}

// isLog is the condition that an artifact is a log or a script of a run, which the gateway wrote: see run.takeLogs.
const isLog = `(a.source <> 'import' AND (EXISTS (SELECT 1 FROM run_outputs o WHERE o.artifact_id = a.artifact_id AND o.role IN ('log', 'stdout', 'stderr', 'slurm_script'))
 OR EXISTS (SELECT 1 FROM runs r WHERE r.run_id = a.source AND a.artifact_id IN (r.log_artifact_id, r.script_artifact_id))))`

// OpenRuns lists the runs that have a workspace and are not over.
func (l *Ledger) OpenRuns(ctx context.Context) ([]string, error) {
	return list(ctx, l.r, column[string], "SELECT run_id FROM runs WHERE phase <> 'done' AND phase <> 'waiting_for_inputs' "+
		"ORDER BY +created_at, run_id")
}

// InFlight lists the runs that are not over and that are about something of a leak.
func (l *Ledger) InFlight(ctx context.Context, k retention.Leak) ([]string, error) {
	return inFlight(ctx, l.r, k)
}

const artifactsOf = `SELECT artifact_id FROM artifacts WHERE sha256 = ?1 OR sha256 IN (` + inDirectories + `)`

// aboutRows has, by table, the condition that finds the runs of a leaked row.
var aboutRows = map[string]string{
	"runs": "run_id = ?1", "attempts": "run_id = ?1", "run_inputs": "run_id = ?1", "run_outputs": "run_id = ?1",
	"param_sets": "params_hash = ?1", "policies": "policy_hash = ?1", "packs": "pack_hash = ?1",
	"submissions": "run_id IN (SELECT run_id FROM attempts WHERE token = ?1)",
	"sends":       "run_id IN (SELECT run_id FROM attempts WHERE token = ?1)",
}

func inFlight(ctx context.Context, q queryer, k retention.Leak) (out []string, err error) {
	add := func(about string, key any) error {
		ids, err := list(ctx, q, column[string], "SELECT run_id FROM runs WHERE phase <> 'done' AND "+about, key)
		for _, id := range ids {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		return err
	}
	for _, r := range k.Rows {
		if about := aboutRows[r.Table]; about != "" {
			if err := add(about, r.ID[0]); err != nil {
				return nil, err
			}
		}
	}
	for _, sum := range slices.Concat(k.Objects, k.Documents) {
		about := "(run_id IN (SELECT run_id FROM run_inputs WHERE artifact_id IN (" + artifactsOf + ") UNION SELECT run_id FROM run_outputs " +
			"WHERE artifact_id IN (" + artifactsOf + ")) OR log_artifact_id IN (" + artifactsOf + ") OR script_artifact_id IN (" +
			artifactsOf + "))"
		if err := add(about, sum); err != nil {
			return nil, err
		}
	}
	for _, id := range k.Workspaces {
		if err := add("run_id = ?1", id); err != nil {
			return nil, err
		}
	}
	return out, nil
}
