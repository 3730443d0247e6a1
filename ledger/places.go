package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"slurmgate/run"
)

// Place is a file or folder that was registered by its checksum and stays where it is. It belongs to the artifact and
// the caller that it was registered for.
type Place struct {
	ArtifactID string // "" of reference data, which belongs to no project
	Caller     string // id of the principal who registered it, or [run.UnixCaller] of OpenedAs
	Principal  string // name of the principal, for people
	OpenedAs   string // the Unix user whose login hashed it; "": the gateway's own
	Site       string // whose nodes see it
	Path       string // absolute, as they see it
	SHA256     string
	State      string    // see artifact.StateOf
	At         time.Time // when it was first registered
}

const placeColumns = "artifact_id, caller, principal, opened_as, site, path, sha256, state, at"

func scanPlace(row scanner) (p Place, err error) {
	err = row.Scan(&p.ArtifactID, &p.Caller, &p.Principal, &p.OpenedAs, &p.Site, &p.Path, &p.SHA256, &p.State, into{&p.At})
	return p, err
}

// Places lists where the bytes with a checksum lie, the first registered first.
func (l *Ledger) Places(ctx context.Context, sha256 string) ([]Place, error) {
	return list(ctx, l.r, scanPlace, "SELECT "+placeColumns+" FROM places WHERE sha256 = ? ORDER BY at, site, path", sha256)
}

// ReferencePlace returns what was last registered as reference data at a path of a site; ok is false if nothing was.
func (l *Ledger) ReferencePlace(ctx context.Context, site, path string) (p Place, ok bool, err error) {
	p, err = scanPlace(l.one(ctx, "SELECT "+placeColumns+" FROM places WHERE artifact_id = '' AND caller = '' AND site = ? AND path = ?", site,
		path))
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, nil
	}
	return p, err == nil, storage(err)
}

// AddPlace registers a file or folder. What the same caller registered at its path for the same artifact is replaced.
func (l *Ledger) AddPlace(ctx context.Context, p Place) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n, err := update(ctx, tx, `INSERT INTO places (`+placeColumns+`) VALUES (?,?,?,?,?,?,?,?,?)
 ON CONFLICT (artifact_id, caller, site, path) DO UPDATE SET principal = excluded.principal, opened_as = excluded.opened_as,
 sha256 = excluded.sha256, state = excluded.state WHERE sha256 <> excluded.sha256 OR state <> excluded.state OR opened_as <> excluded.opened_as`,
			p.ArtifactID, p.Caller, p.Principal, p.OpenedAs, p.Site, p.Path, p.SHA256, p.State, micros(l.now()))
		if err != nil || n == 0 {
			return err
		}
		return l.appendEvent(ctx, tx, "", run.Event{Type: "place.added", Data: map[string]any{"site": p.Site, "path": p.Path,
			"sha256": p.SHA256, "state": p.State, "artifact_id": p.ArtifactID, "by": p.Principal, "opened_as": p.OpenedAs}})
	})
}

// hasBytes reports whether bytes are stored, or lie in place.
func (l *Ledger) hasBytes(ctx context.Context, tx *sql.Conn, sha256 string) (there bool, err error) {
	if l.stored == nil || l.stored(sha256) {
		return true, nil
	}
	err = tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM places WHERE sha256 = ?)", sha256).Scan(&there)
	return there, err
}
