package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
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

// addArtifact registers an artifact unless it is there. Its id is made of all that could differ.
func (l *Ledger) addArtifact(ctx context.Context, tx *sql.Conn, a run.Artifact) (created bool, err error) {
	res, err := tx.ExecContext(ctx, `INSERT INTO artifacts (artifact_id, project_id, sha256, type, label, size_bytes, source, created_at) VALUES (?,?,?,?,?,?,?,?)
 ON CONFLICT (artifact_id) DO NOTHING`, a.ID, a.ProjectID, a.SHA256, a.Type, a.Label, a.SizeBytes, a.Source, micros(l.now()))
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

// ArtifactFilter selects artifacts. Empty fields select all.
type ArtifactFilter struct {
	ProjectID string
	Projects  []string // of one of these; nil: of any
	Type      string
	AsOf      time.Time // created at or before; zero: no bound
	Cursor    string
	Limit     int // 1..500, 50 when 0
}

// Artifacts gives one page of artifacts, newest first, and the cursor of the next.
func (l *Ledger) Artifacts(ctx context.Context, f ArtifactFilter) ([]run.Artifact, string, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, 500)
	where, args := []string{"1"}, []any{}
	if f.ProjectID != "" {
		where, args = append(where, "a.project_id = ?"), append(args, f.ProjectID)
	}
	if f.Projects != nil {
		cond, v := among("a.project_id", f.Projects)
		where, args = append(where, cond), append(args, v...)
	}
	if f.Type != "" {
		where, args = append(where, "a.type = ?"), append(args, f.Type)
	}
	if !f.AsOf.IsZero() {
		where, args = append(where, "a.created_at <= ?"), append(args, micros(f.AsOf))
	}
	if f.Cursor != "" {
		at, id, err := decodeCursor(f.Cursor)
		if err != nil {
			return nil, "", err
		}
		where, args = append(where, "(a.created_at, a.artifact_id) < (?, ?)"), append(args, at, id)
	}
	rows, err := l.r.QueryContext(ctx, "SELECT "+artifactColumns+" FROM artifacts a WHERE "+strings.Join(where, " AND ")+
		fmt.Sprintf(" ORDER BY a.created_at DESC, a.artifact_id DESC LIMIT %d", f.Limit+1), args...)
	if err != nil {
		return nil, "", storage(err)
	}
	defer rows.Close()
	var out []run.Artifact
	for rows.Next() {
		a, err := scanArtifact(rows)
		if err != nil {
			return nil, "", storage(err)
		}
		out = append(out, a)
	}
	if err := rows.Err(); err != nil {
		return nil, "", storage(err)
	}
	if len(out) > f.Limit {
		last := out[f.Limit-1]
		return out[:f.Limit], encodeCursor(micros(last.CreatedAt), last.ID), nil
	}
	return out, "", nil
}
