package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"slurmgate/run"
)

// Place is a file that was registered by its checksum and stays where it is.
type Place struct {
	Site   string // whose nodes see it
	Path   string // absolute, as they see it
	SHA256 string
	State  string // see artifact.StateOf
	At     time.Time
}

const placeColumns = "site, path, sha256, state, at"

func scanPlace(row scanner) (p Place, err error) {
	err = row.Scan(&p.Site, &p.Path, &p.SHA256, &p.State, into{&p.At})
	return p, err
}

// Places lists where the bytes with a checksum lie, the last registered first.
func (l *Ledger) Places(ctx context.Context, sha256 string) ([]Place, error) {
	return list(ctx, l.r, scanPlace, "SELECT "+placeColumns+" FROM places WHERE sha256 = ? ORDER BY at DESC, path", sha256)
}

// PlaceAt is what was last registered at a path of a site; ok is false if nothing was.
func (l *Ledger) PlaceAt(ctx context.Context, site, path string) (p Place, ok bool, err error) {
	p, err = scanPlace(l.one(ctx, "SELECT "+placeColumns+" FROM places WHERE site = ? AND path = ?", site, path))
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, nil
	}
	return p, err == nil, storage(err)
}

// AddPlace registers a file, in place of what was registered at its path before.
func (l *Ledger) AddPlace(ctx context.Context, p Place) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		n, err := update(ctx, tx, `INSERT INTO places (`+placeColumns+`) VALUES (?,?,?,?,?) ON CONFLICT (site, path) DO UPDATE SET
 sha256 = excluded.sha256, state = excluded.state, at = excluded.at WHERE sha256 <> excluded.sha256 OR state <> excluded.state`,
			p.Site, p.Path, p.SHA256, p.State, micros(l.now()))
		if err != nil || n == 0 {
			return err
		}
		err = l.appendEvent(ctx, tx, "", run.Event{Type: "place.added", Data: map[string]any{"site": p.Site, "path": p.Path,
			"sha256": p.SHA256, "state": p.State}})
		return err
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
