package ledger

import (
	"context"
	"database/sql"
	"errors"
)

// Use is what a project stores.
type Use struct {
	ProjectID string `json:"project_id"`
	Artifacts int64  `json:"artifacts"`
	Imports   int64  `json:"imports"` // artifacts of these that callers imported
	Bytes     int64  `json:"bytes"`   // the same content counts for each artifact
}

// CallerUse is what a caller stores in all projects.
type CallerUse struct {
	Artifacts int64 `json:"artifacts"`
	Bytes     int64 `json:"bytes"` // the same content counts for each artifact
}

// CallerUse reads what a caller keeps.
func (l *Ledger) CallerUse(ctx context.Context, caller string) (u CallerUse, err error) {
	err = l.one(ctx, "SELECT artifacts, bytes FROM caller_use WHERE caller = ?", caller).Scan(&u.Artifacts, &u.Bytes)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return u, storage(err)
}

// Use reads what a project keeps.
func (l *Ledger) Use(ctx context.Context, projectID string) (Use, error) {
	u := Use{ProjectID: projectID}
	err := l.one(ctx, "SELECT artifacts, imports, bytes FROM project_use WHERE project_id = ?", projectID).
		Scan(&u.Artifacts, &u.Imports, &u.Bytes)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return u, storage(err)
}
