package ledger

import (
	"context"
	"database/sql"
	"encoding/hex"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/run"
)

const (
	filesAtOnce = 2000           // rows of one transaction, so that others write in between
	unusedTime  = 24 * time.Hour // after which the files of a list that no artifact has are forgotten
)

// AddDirectory records the objects that a directory's list names, before the artifact is registered; run.Index has the contract.
func (l *Ledger) AddDirectory(ctx context.Context, d run.Directory) error {
	var id int64
	whole := false
	err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		return tx.QueryRowContext(ctx, `INSERT INTO directories (sha256, list_bytes, files, whole, in_place, added_at) VALUES (?1,?2,?3,?4,?4,?5)
 ON CONFLICT (sha256) DO UPDATE SET added_at = excluded.added_at, whole = max(whole, ?4), in_place = iif(whole, in_place, ?4)
 RETURNING directory_id, whole AND NOT in_place`, d.SHA256, d.ListBytes,
			len(d.Files), d.InPlace, micros(l.now())).Scan(&id, &whole)
	})
	if err != nil || d.InPlace { // the files are their owner's
		return err
	}
	for at := 0; at < len(d.Files) && !whole; at += filesAtOnce {
		err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
			for _, f := range d.Files[at:min(at+filesAtOnce, len(d.Files))] {
				sum, err := hex.DecodeString(f.SHA256)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, "INSERT INTO directory_files VALUES (?,?,?) ON CONFLICT DO NOTHING", id, sum, f.Size)
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if l.stored != nil {
		for _, f := range d.Files { // from here on nothing removes one
			if !l.stored(f.SHA256) {
				return fault.New(fault.Transport, "artifact_bytes_missing", "the bytes of "+f.Path+" are no longer stored").
					WithNext("store them again")
			}
		}
	}
	return l.write(ctx, "UPDATE directories SET whole = 1, in_place = 0 WHERE directory_id = ?", id)
}

// directoryKnown refuses a directory artifact whose files are not recorded.
func directoryKnown(ctx context.Context, q queryer, a run.Artifact) error {
	if a.Type != plan.Directory {
		return nil
	}
	known := false
	err := q.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM directories WHERE sha256 = ? AND whole)", a.SHA256).Scan(&known)
	if err == nil && !known {
		err = fault.New(fault.Transport, "artifact_bytes_missing", "the files of "+a.ID+" are not recorded").WithNext("store them again")
	}
	return err
}

// inDirectories selects the lists that name an object, which is the parameter.
const inDirectories = `SELECT d.sha256 FROM directory_files f JOIN directories d ON d.directory_id = f.directory_id WHERE f.sha256 = unhex(?1)`

// needed is the condition that the files of a list d are needed: an artifact or a reference has the list, or may be
// about to have it, since it was recorded after ?2. So the files of an artifact that is being registered are not
// removed; the list of a removed artifact is removed with it.
const needed = `(d.added_at >= ?2 OR EXISTS (SELECT 1 FROM artifacts n WHERE n.sha256 = d.sha256 AND n.removed_at IS NULL)
 OR EXISTS (SELECT 1 FROM reference_versions v WHERE v.sha256 = d.sha256 AND NOT v.withdrawn))`

func (l *Ledger) recentLists() int64 { return micros(l.now().Add(-unusedTime)) }

// forgetDirectories forgets the files of lists that no artifact has any more.
func (l *Ledger) forgetDirectories(ctx context.Context, tx *sql.Conn) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM directories WHERE added_at < ? AND NOT EXISTS (SELECT 1 FROM artifacts a
 WHERE a.sha256 = directories.sha256 AND a.type = ? AND a.removed_at IS NULL)
 AND NOT EXISTS (SELECT 1 FROM reference_versions v WHERE v.sha256 = directories.sha256 AND NOT v.withdrawn)`, l.recentLists(), plan.Directory)
	return err
}

// FilesInPlace reports whether the files of a directory lie only where their owner has them.
func (l *Ledger) FilesInPlace(ctx context.Context, sha256 string) (inPlace bool, err error) {
	err = l.one(ctx, "SELECT EXISTS (SELECT 1 FROM directories WHERE sha256 = ? AND in_place)", sha256).Scan(&inPlace)
	return inPlace, storage(err)
}
