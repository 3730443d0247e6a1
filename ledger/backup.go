package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// CopyTo writes a consistent copy of the ledger to a file that does not exist yet, without what was deleted. Reading it does not hold up
// the gateway that writes. The copy is not synced.
func (l *Ledger) CopyTo(ctx context.Context, path string) error {
	conn, err := l.r.Conn(ctx)
	if err != nil {
		return storage(err)
	}
	defer conn.Close()
	// The connection is of a file that was opened read-only, so this allows only the copy.
	if _, err = conn.ExecContext(ctx, "PRAGMA query_only = OFF"); err == nil {
		_, err = conn.ExecContext(ctx, "VACUUM INTO ?", path)
		_, on := conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA query_only = ON")
		err = errors.Join(err, on)
	}
	if err != nil {
		return fault.Wrap(kindOf(err), codeOf(err), "the ledger cannot be copied to "+path, storage(err))
	}
	return nil
}

// Contents calls f for each content that artifacts have and that is an object of the store.
func (l *Ledger) Contents(ctx context.Context, f func(sha256 string, sizeBytes int64) error) error {
	return each(ctx, l.r, func(row scanner) error {
		var sum string
		var size int64
		if err := row.Scan(&sum, &size); err != nil {
			return err
		}
		return f(sum, size)
	}, `SELECT sha256, CASE type WHEN 'DIRECTORY' THEN (SELECT d.list_bytes FROM directories d WHERE d.sha256 = a.sha256) ELSE size_bytes END
 FROM artifacts a WHERE removed_at IS NULL AND NOT EXISTS (SELECT 1 FROM payloads p WHERE p.sha256 = unhex(a.sha256))
 UNION SELECT lower(hex(f.sha256)), f.size_bytes FROM directory_files f JOIN directories d ON d.directory_id = f.directory_id
 WHERE EXISTS (SELECT 1 FROM artifacts a WHERE a.sha256 = d.sha256 AND a.removed_at IS NULL) ORDER BY 1`)
}

// InPlace reports whether bytes lie where their owner has them.
func (l *Ledger) InPlace(ctx context.Context, sha256 string) (there bool, err error) {
	err = l.one(ctx, "SELECT EXISTS (SELECT 1 FROM places WHERE sha256 = ?)", sha256).Scan(&there)
	return there, storage(err)
}

// Schema returns the number of the ledger's newest migration.
func (l *Ledger) Schema() int { return l.schema }

// Restored records that this ledger continues an earlier one: from a backup of a time, or anew (nil) where there was one. What is older
// than now in the store and in runs_dir may belong to runs that it does not know.
func (l *Ledger) Restored(ctx context.Context, backupAt *time.Time, source string) error {
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		var at any
		if backupAt != nil {
			at = micros(*backupAt)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO restores (at, backup_at, source) VALUES (?,?,?)", micros(l.now()), at, source); err != nil {
			return err
		}
		data := map[string]any{"source": source, "backup_at": nil}
		if backupAt != nil {
			data["backup_at"] = backupAt.UTC().Format(time.RFC3339)
		}
		err := l.appendEvent(ctx, tx, "", run.Event{Type: "gateway.restored", Data: data})
		return err
	})
}

// LastRestore returns the time at which this ledger was last restored or begun anew; nil if it never was.
func (l *Ledger) LastRestore(ctx context.Context) (at *time.Time, err error) {
	err = l.one(ctx, "SELECT max(at) FROM restores").Scan(into{&at})
	return at, storage(err)
}
