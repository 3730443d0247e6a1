package ledger

import (
	"context"
	"database/sql"
	"time"

	"slurmgate/retention"
	"slurmgate/run"
)

var _ retention.Ledger = (*Ledger)(nil)

// unused selects artifacts that no run and no reference refers to and that were not imported since a time. Triggers refuse marks for which
// this condition no longer holds.
const unused = `SELECT a.artifact_id FROM artifacts a WHERE a.removed_at IS NULL AND a.source = 'import' AND a.created_at < ? AND coalesce(a.used_at, a.created_at) < ?
 AND NOT EXISTS (SELECT 1 FROM run_inputs i WHERE i.artifact_id = a.artifact_id) AND NOT EXISTS (SELECT 1 FROM run_outputs o WHERE o.artifact_id = a.artifact_id)
 AND NOT EXISTS (SELECT 1 FROM reference_versions v WHERE v.sha256 = a.sha256 AND NOT v.withdrawn)
 AND NOT EXISTS (SELECT 1 FROM waiting_artifacts x JOIN runs y ON y.run_id = x.run_id WHERE x.artifact_id = a.artifact_id AND y.phase <> 'done')
 AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.log_artifact_id = a.artifact_id) AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.script_artifact_id = a.artifact_id)
 ORDER BY a.created_at, a.artifact_id LIMIT ?`

// Unused lists imported artifacts that no run refers to and that were not imported since a time, oldest first.
func (l *Ledger) Unused(ctx context.Context, since time.Time, limit int) ([]retention.Artifact, error) {
	return list(ctx, l.r, scanUnused, "SELECT artifact_id, sha256, size_bytes FROM artifacts WHERE artifact_id IN ("+unused+")",
		micros(since), micros(since), limit)
}

func scanUnused(row scanner) (u retention.Artifact, err error) {
	err = row.Scan(&u.ID, &u.SHA256, &u.SizeBytes)
	return u, err
}

// MarkUnused marks at most limit of those as removed, with an event for each. From then on no run can refer to them, and their bytes may be
// removed; importing the same bytes again restores the artifact.
func (l *Ledger) MarkUnused(ctx context.Context, since time.Time, limit int) (marked []retention.Artifact, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		marked, err = list(ctx, tx, scanUnused, "UPDATE artifacts SET removed_at = ? WHERE artifact_id IN ("+unused+
			") RETURNING artifact_id, sha256, size_bytes", micros(l.now()), micros(since), micros(since), limit)
		if err != nil {
			return err
		}
		for _, u := range marked {
			if err := l.appendEvent(ctx, tx, "", run.Event{Type: "artifact.removed", Data: map[string]any{"artifact_id": u.ID,
				"sha256": u.SHA256, "size_bytes": u.SizeBytes, "why": "unused"}}); err != nil {
				return err
			}
		}
		return l.forgetDirectories(ctx, tx)
	})
	return marked, err
}

// Holds reports whether an artifact or a reference has these bytes.
func (l *Ledger) Holds(ctx context.Context, sha256 string) (bool, error) {
	return l.holds(ctx, l.r, sha256)
}

func (l *Ledger) holds(ctx context.Context, q queryer, sha256 string) (held bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM artifacts WHERE sha256 = ?1 AND removed_at IS NULL) OR EXISTS "+
		"(SELECT 1 FROM reference_versions WHERE sha256 = ?1 AND NOT withdrawn) OR EXISTS "+
		"(SELECT 1 FROM directory_files f JOIN directories d ON d.directory_id = f.directory_id WHERE f.sha256 = unhex(?1) AND "+needed+")",
		sha256, l.recentLists()).Scan(&held)
	return held, storage(err)
}

// Unheld calls remove if no artifact has these bytes; meanwhile none can get them, since a row is written only for bytes that are stored
// (see [Ledger.CheckBytes]).
func (l *Ledger) Unheld(ctx context.Context, sha256 string, remove func() error) (held bool, err error) {
	removed := false
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		var err error
		if held, err = l.holds(ctx, tx, sha256); held || err != nil || removed {
			return err
		}
		err = remove()
		removed = err == nil
		return err
	})
	return held, err
}

// EachUnheld calls remove with those of some bytes that no artifact has, in one transaction; see [Ledger.Unheld].
func (l *Ledger) EachUnheld(ctx context.Context, sums []string, remove func(free []string)) error {
	removed := false
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		var free []string
		for _, sum := range sums {
			held, err := l.holds(ctx, tx, sum)
			if err != nil {
				return err
			}
			if !held {
				free = append(free, sum)
			}
		}
		if len(free) > 0 && !removed {
			remove(free)
			removed = true
		}
		return nil
	})
}

// CheckBytes makes the ledger refuse artifacts whose bytes are not stored. It is called once, before the ledger is used.
func (l *Ledger) CheckBytes(stored func(sha256 string) bool) { l.stored = stored }

func scanObject(row scanner) (o retention.Artifact, err error) {
	err = row.Scan(&o.SHA256, &o.SizeBytes)
	return o, err
}

// Workspaces lists runs that finished before a time and whose workspace was not removed since their last attempt, oldest first, those after
// the given one. A call of a service worker has none.
func (l *Ledger) Workspaces(ctx context.Context, before time.Time, after retention.Workspace, limit int) ([]retention.Workspace, error) {
	return l.workspaces(ctx, `r.finished_at < ? AND (r.finished_at, r.run_id) > (?, ?) ORDER BY r.finished_at, r.run_id LIMIT ?`, micros(before),
		micros(after.FinishedAt), after.RunID, limit)
}

// Workspace returns the workspace of one run; none if the run is not finished, or its workspace was removed.
func (l *Ledger) Workspace(ctx context.Context, runID string) ([]retention.Workspace, error) {
	return l.workspaces(ctx, "r.run_id = ?", runID)
}

func (l *Ledger) workspaces(ctx context.Context, which string, args ...any) ([]retention.Workspace, error) {
	out, err := list(ctx, l.r, func(row scanner) (w retention.Workspace, err error) {
		err = row.Scan(&w.RunID, &w.AttemptN, into{&w.FinishedAt}, &w.Site, &w.User)
		return w, err
	}, `SELECT r.run_id, r.attempt_n, r.finished_at, r.site, r.executed_as FROM runs r
 LEFT JOIN workspace_removals w ON w.run_id = r.run_id AND w.attempt_n = r.attempt_n
 WHERE r.phase = 'done' AND r.site <> '`+run.WorkerSite+`' AND w.removed_at IS NULL
 AND NOT EXISTS (SELECT 1 FROM waits x WHERE x.run_id = r.run_id) AND `+which, args...)
	for i := range out {
		attempts, err := l.Attempts(ctx, out[i].RunID)
		if err != nil {
			return nil, err
		}
		out[i].Tokens = map[int]string{}
		for _, a := range attempts {
			out[i].Tokens[a.N] = a.Token
		}
	}
	return out, err
}

// BeginRemoval records that a workspace is being removed, and reports whether it did: only if the run is as it was listed, finished
// before the time, with every attempt ended. A later retry of the run creates a new workspace.
func (l *Ledger) BeginRemoval(ctx context.Context, w retention.Workspace, before time.Time) (ok bool, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		q := `SELECT count(*) FROM runs r WHERE r.run_id = ? AND r.phase = 'done' AND r.attempt_n = ? AND r.finished_at < ?
 AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_id = r.run_id AND a.ending = '')`
		if err := tx.QueryRowContext(ctx, q, w.RunID, w.AttemptN, micros(before)).Scan(&ok); err != nil || !ok {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO workspace_removals VALUES (?,?,?,NULL,0) ON CONFLICT DO NOTHING", w.RunID, w.AttemptN,
			micros(l.now()))
		return err
	})
	return ok && err == nil, err
}

// EndRemoval records that a workspace was removed and how many bytes that freed.
func (l *Ledger) EndRemoval(ctx context.Context, w retention.Workspace, bytes int64) error {
	return l.write(ctx, "UPDATE workspace_removals SET removed_at = ?, bytes = ? WHERE run_id = ? AND attempt_n = ?", micros(l.now()), bytes,
		w.RunID, w.AttemptN)
}

func workspaceGone(ctx context.Context, q queryer, runID string) (at *time.Time, err error) {
	err = q.QueryRowContext(ctx, "SELECT max(w.begun_at) FROM workspace_removals w JOIN runs r ON r.run_id = w.run_id AND "+
		"r.attempt_n = w.attempt_n WHERE w.run_id = ?", runID).Scan(into{&at})
	return at, storage(err)
}
