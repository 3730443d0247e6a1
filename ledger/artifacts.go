package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

const artifactColumns = "a.artifact_id, a.project_id, a.sha256, a.type, a.label, a.size_bytes, a.source, a.created_at, " +
	"a.caller, coalesce(a.erased, ''), coalesce(a.removal, ''), coalesce((SELECT m.executed_as FROM runs m WHERE m.run_id = a.source), '')"

func artifactFields(a *run.Artifact) []any {
	return []any{&a.ID, &a.ProjectID, &a.SHA256, &a.Type, &a.Label, &a.SizeBytes, &a.Source, into{&a.CreatedAt}, &a.Caller, &a.Erased,
		&a.Removed, &a.ExecutedAs}
}

func scanArtifact(row scanner) (a run.Artifact, err error) {
	err = row.Scan(artifactFields(&a)...)
	return a, err
}

// addArtifact registers an artifact unless it exists; a removed one is restored. Its id is derived from everything
// that could differ. Its time is later than that of every other artifact, whatever the clock shows, because a
// listing's snapshot is a time. here means that its bytes come with it, as a payload.
func (l *Ledger) addArtifact(ctx context.Context, tx *sql.Conn, a run.Artifact, here bool) (created bool, err error) {
	if there, err := l.hasBytes(ctx, tx, a.SHA256); err != nil {
		return false, err
	} else if !here && !there {
		return false, fault.New(fault.Transport, "artifact_bytes_missing", "the bytes of "+a.ID+" are no longer stored").
			WithNext("store them again")
	}
	if err := directoryKnown(ctx, tx, a); err != nil {
		return false, err
	}
	n, err := update(ctx, tx, `INSERT INTO artifacts (artifact_id, project_id, sha256, type, label, size_bytes, source, caller, created_at)
 VALUES (?,?,?,?,?,?,?,?, max(?, 1 + coalesce((SELECT max(created_at) FROM artifacts), 0)))
 ON CONFLICT (artifact_id) DO UPDATE SET removed_at = NULL, erased = NULL, removal = NULL, used_at = NULL, created_at = excluded.created_at,
   caller = excluded.caller WHERE removed_at IS NOT NULL`,
		a.ID, a.ProjectID, a.SHA256, a.Type, a.Label, a.SizeBytes, a.Source, a.Caller, micros(l.now()))
	return n == 1, err
}

// AddArtifact registers an artifact whose bytes were just stored; an existing one is returned unchanged, with created false.
func (l *Ledger) AddArtifact(ctx context.Context, a run.Artifact) (stored run.Artifact, created bool, err error) {
	return l.register(ctx, a, nil)
}

// ImportArtifact adds an artifact as AddArtifact does, and records the requester in the same transaction.
func (l *Ledger) ImportArtifact(ctx context.Context, a run.Artifact, who run.Asking) (stored run.Artifact, created bool, err error) {
	return l.register(ctx, a, &who)
}

func (l *Ledger) register(ctx context.Context, a run.Artifact, who *run.Asking) (stored run.Artifact, created bool, err error) {
	if stored, err = l.Artifact(ctx, a.ID); err == nil {
		if there, err := l.usedAgain(ctx, stored, who); there || err != nil {
			return stored, false, err
		}
	} else if !fault.Is(err, fault.NotFound) {
		return stored, false, err
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		var id, erasure string
		err := tx.QueryRowContext(ctx, "SELECT artifact_id, erased FROM artifacts WHERE sha256 = ? AND erased IS NOT NULL", a.SHA256).
			Scan(&id, &erasure)
		if err == nil {
			return erasedArtifact(id, erasure)
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if created, err = l.addArtifact(ctx, tx, a, false); err == nil && who != nil {
			err = l.ask(ctx, tx, a.ID, *who, nil, "")
		}
		if err != nil || !created {
			return err
		}
		err = l.appendEvent(ctx, tx, "", run.Event{Type: "artifact.added", Data: map[string]any{
			"artifact_id": a.ID, "project_id": a.ProjectID, "sha256": a.SHA256, "type": a.Type, "label": a.Label, "size_bytes": a.SizeBytes,
			"source": a.Source}})
		return err
	})
	if err != nil {
		return run.Artifact{}, false, err
	}
	stored, err = l.Artifact(ctx, a.ID)
	return stored, created, err
}

// usedEvery is the least time between two records of a repeated import of an artifact.
const usedEvery = time.Hour

// usedAgain records that an artifact was imported again, so that it is not removed for its age, and by whom, and reports whether the
// artifact still exists. What is recorded already is not written again.
func (l *Ledger) usedAgain(ctx context.Context, a run.Artifact, who *run.Asking) (there bool, err error) {
	now, asks := l.now(), who == nil
	if !asks {
		if asks, err = l.asksIn(ctx, l.r, a.ID, *who); err != nil {
			return false, err
		}
	}
	if asks && now.Sub(a.CreatedAt) < usedEvery {
		return true, nil
	}
	var used time.Time
	if err := l.one(ctx, "SELECT coalesce(used_at, created_at) FROM artifacts WHERE artifact_id = ?", a.ID).Scan(into{&used}); err != nil {
		return false, storage(err)
	}
	if asks && now.Sub(used) < usedEvery {
		return true, nil
	}
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n, err := update(ctx, tx, "UPDATE artifacts SET used_at = ? WHERE artifact_id = ? AND removed_at IS NULL", micros(now), a.ID)
		if there = n == 1; err == nil && there && who != nil {
			err = l.ask(ctx, tx, a.ID, *who, nil, "")
		}
		return err
	})
	return there, err
}

// Artifact reads one artifact.
func (l *Ledger) Artifact(ctx context.Context, id string) (a run.Artifact, err error) {
	var removed bool
	var erased sql.NullString
	err = l.one(ctx, "SELECT a.removed_at IS NOT NULL, a.erased, "+artifactColumns+" FROM artifacts a WHERE a.artifact_id = ?", id).
		Scan(append([]any{&removed, &erased}, artifactFields(&a)...)...)
	if err == nil && erased.Valid {
		return run.Artifact{}, erasedArtifact(id, erased.String)
	}
	if err == nil && removed && a.Removed != "" {
		return a, l.askedFault(ctx, a)
	}
	if err == nil && removed {
		return run.Artifact{}, removedFault(id)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return a, fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+id).
			WithSteps(fault.Do("artifact.list"))
	}
	return a, storage(err)
}

// erasedArtifact returns the fault for an artifact whose bytes held a secret.
func erasedArtifact(id, erasure string) error {
	return fault.New(fault.NotFound, "artifact_erased", "artifact "+id+" held a secret and was erased ("+erasure+")").
		WithNext("make it again without the secret")
}

// askedFault returns the fault for an artifact that was removed by request. It comes with the artifact as it was: a
// request for a run that used it still finds that run.
func (l *Ledger) askedFault(ctx context.Context, a run.Artifact) error {
	why, err := l.RemovalOf(ctx, a.Removed)
	if err != nil {
		return err
	}
	next := "import the same file again: it gets the same id"
	if a.Source != "import" {
		next = "retry the run that made it (" + a.Source + "), or import the same bytes"
	}
	return fault.New(fault.NotFound, RemovedByRequest, "the bytes of "+a.ID+" are gone: "+why).WithNext(next)
}

// RemovedByRequest is the code of the fault for an artifact that was removed by request.
const RemovedByRequest = "artifact_removed_by_request"

// removedFault returns the fault for an artifact that retention removed.
func removedFault(id string) error {
	return fault.New(fault.NotFound, "artifact_removed", "artifact "+id+" was removed because no run used it").
		WithNext("import the same file again: it gets the same id")
}
