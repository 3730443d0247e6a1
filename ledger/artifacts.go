package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

const artifactColumns = "a.artifact_id, a.project_id, a.sha256, a.type, a.label, a.size_bytes, a.source, a.created_at"

func scanArtifact(row scanner, before ...any) (run.Artifact, error) {
	var a run.Artifact
	var created int64
	err := row.Scan(append(before, &a.ID, &a.ProjectID, &a.SHA256, &a.Type, &a.Label, &a.SizeBytes, &a.Source, &created)...)
	a.CreatedAt = time.UnixMicro(created).UTC()
	return a, err
}

// addArtifact registers an artifact unless it is there. Its id is made of all that could differ. Its time is later than that of every
// other, whatever the clock says: a listing's snapshot is a time.
func (l *Ledger) addArtifact(ctx context.Context, tx *sql.Conn, a run.Artifact) (created bool, err error) {
	res, err := tx.ExecContext(ctx, `INSERT INTO artifacts (artifact_id, project_id, sha256, type, label, size_bytes, source, created_at)
 VALUES (?,?,?,?,?,?,?, max(?, 1 + coalesce((SELECT max(created_at) FROM artifacts), 0))) ON CONFLICT (artifact_id) DO NOTHING`,
		a.ID, a.ProjectID, a.SHA256, a.Type, a.Label, a.SizeBytes, a.Source, micros(l.now()))
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// AddArtifact registers an artifact; one that is there already is returned as it is, with created false.
func (l *Ledger) AddArtifact(ctx context.Context, a run.Artifact) (stored run.Artifact, created bool, err error) {
	if stored, err = l.Artifact(ctx, a.ID); err == nil || !fault.Is(err, fault.NotFound) {
		return stored, false, err
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		var err error
		if created, err = l.addArtifact(ctx, tx, a); err != nil || !created {
			return err
		}
		_, err = l.appendEvent(ctx, tx, "", run.Event{Type: "artifact.added", Data: map[string]any{
			"artifact_id": a.ID, "project_id": a.ProjectID, "sha256": a.SHA256, "type": a.Type, "label": a.Label, "size_bytes": a.SizeBytes, "source": a.Source}})
		return err
	})
	if err != nil {
		return run.Artifact{}, false, err
	}
	stored, err = l.Artifact(ctx, a.ID)
	return stored, created, err
}

// Artifact reads one artifact.
func (l *Ledger) Artifact(ctx context.Context, id string) (run.Artifact, error) {
	a, err := scanArtifact(l.r.QueryRowContext(ctx, "SELECT "+artifactColumns+" FROM artifacts a WHERE a.artifact_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return a, fault.New(fault.NotFound, "ledger.Artifact", "artifact_not_found", "there is no artifact "+id).WithNext("slurmgate artifact list shows what there is")
	}
	return a, storage(err)
}
