package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"

	"slurmgate/run"
)

// What the outputs of a run are called where they are downloaded belongs to each principal's newest request for it: the run is that of the
// bytes, which several may ask for under other labels.

const nameOutputs = `INSERT INTO download_names (run_id, principal, principal_id, names, asked_at) VALUES (?,?,?,?,?)
 ON CONFLICT (run_id, principal, principal_id) DO UPDATE SET names = excluded.names, asked_at = excluded.asked_at`

// NameOutputs records what a principal's newest request calls the outputs of a run, by role. It is no revision of the run, and names that
// are recorded already are not written again.
func (l *Ledger) NameOutputs(ctx context.Context, runID string, who run.Principal, names map[string]string) error {
	var was map[string]string
	err := l.one(ctx, "SELECT names FROM download_names WHERE (run_id, principal, principal_id) = (?,?,?)", runID, who.Name, who.ID).
		Scan(into{&was})
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return storage(err)
	}
	if maps.Equal(was, names) {
		return nil
	}
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error { return l.nameOutputs(ctx, tx, runID, who, names) })
}

func (l *Ledger) nameOutputs(ctx context.Context, tx *sql.Conn, runID string, who run.Principal, names map[string]string) error {
	text, err := json.Marshal(names)
	if err == nil {
		_, err = tx.ExecContext(ctx, nameOutputs, runID, who.Name, who.ID, string(text), micros(l.now()))
	}
	return err
}

// OutputNames returns a principal's names for the outputs of a run, by role; for a principal that never asked for the
// run, its maker's names.
func (l *Ledger) OutputNames(ctx context.Context, runID string, who run.Principal) (names map[string]string, err error) {
	err = l.one(ctx, `SELECT d.names FROM download_names d JOIN runs r ON r.run_id = d.run_id
 WHERE d.run_id = ?1 AND ((d.principal, d.principal_id) = (?2, ?3) OR (d.principal, d.principal_id) = (r.principal, r.principal_id))
 ORDER BY (d.principal, d.principal_id) = (?2, ?3) DESC LIMIT 1`, runID, who.Name, who.ID).Scan(into{&names})
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return names, storage(err)
}

// OutputName returns a principal's name for an artifact that is a declared output of runs: from its newest request
// for one of them, or else from that of a run's maker; "" for an artifact without a name.
func (l *Ledger) OutputName(ctx context.Context, artifactID string, who run.Principal) (name string, err error) {
	err = l.one(ctx, `SELECT n.value FROM run_outputs o JOIN download_names d ON d.run_id = o.run_id JOIN runs r ON r.run_id = o.run_id,
 json_each(d.names) n ON n.key = o.role
 WHERE o.artifact_id = ?1 AND ((d.principal, d.principal_id) = (?2, ?3) OR (d.principal, d.principal_id) = (r.principal, r.principal_id))
 ORDER BY (d.principal, d.principal_id) = (?2, ?3) DESC, d.asked_at DESC, o.run_id LIMIT 1`, artifactID, who.Name, who.ID).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return name, storage(err)
}
