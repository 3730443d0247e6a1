// Package ledger is the durable memory of one gateway: runs, attempts, submissions, sends, params, the names of artifacts, small documents
// and the chained history, in one SQLite database on a local disk.
//
// Every change of a run is one transaction that compares the run's revision, writes the new values and
// appends the event that explains them; see [Ledger.Apply]. Tables and their CHECK constraints are in
// migrations/. The package implements run.Store and run.Index.
package ledger

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver

	"slurmgate/fault"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Ledger is an open database: one writer connection and a pool of readers.
type Ledger struct {
	path   string
	w, r   *sql.DB
	id     string
	now    func() time.Time
	schema int
	group  group // changes waiting for the writer
	tokens tokenMemory
	owners owners
	base   base // what payloads are encoded against

	stored func(sha256 string) bool // whether the store has the bytes; nil: not checked

	stopped atomic.Pointer[error] // the disk failure that ended all writing
	probes  diskProbes
}

// Options of Open.
type Options struct {
	// Filesystem names the type of a path's filesystem and reports whether it is a network filesystem, on which SQLite's WAL corrupts
	// the database. Nil: not checked.
	Filesystem func(path string) (name string, network bool, err error)
	// Now returns the time; nil: time.Now.
	Now func() time.Time
	// NewID returns the gateway's id when the database is new.
	NewID func() string
}

const readers = 4

// Open opens or creates the ledger at path and brings its schema up to date. It refuses a path on a network filesystem, a newer schema,
// and a driver that does not apply synchronous=FULL.
func Open(ctx context.Context, path string, o Options) (*Ledger, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fault.Wrap(fault.Internal, "ledger_unwritable", "cannot create the ledger's folder", err)
	}
	if o.Filesystem != nil {
		name, network, err := o.Filesystem(filepath.Dir(path))
		if err != nil {
			return nil, fault.Wrap(fault.Internal, "ledger_unwritable", "cannot examine the ledger's filesystem", err)
		}
		if network {
			return nil, fault.New(fault.Validation, "ledger_on_network_filesystem",
				fmt.Sprintf("the ledger %s is on a network filesystem (%s), where SQLite databases get corrupted", path, name)).
				WithNext("set gateway.state_dir to a folder on a local disk of this host")
		}
	}
	l := &Ledger{path: path, now: o.Now}
	err := private(path)
	if err == nil {
		l.w, err = open(path, "rwc", 1)
	}
	if err == nil {
		err = l.check(ctx)
	}
	if err == nil {
		err = l.migrate(ctx)
	}
	if err == nil {
		l.r, err = open(path, "ro", readers)
	}
	if err == nil {
		err = l.identify(ctx, o.NewID)
	}
	if err == nil {
		err = l.ensureKey(ctx)
	}
	if err == nil {
		err = l.recallBase(ctx)
	}
	if err != nil {
		l.Close()
		return nil, fault.Wrap(kindOf(err), codeOf(err), "cannot open the ledger "+path, err)
	}
	return l, nil
}

// private makes a new ledger's file readable only for its user, whatever the process's umask, and removes the
// permissions of others from an older one: it contains every project's arguments, and the key of approvals. SQLite
// gives its files next to it the same mode.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, absent := os.Stat(name)
		if err == nil && absent == nil && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(name, info.Mode().Perm()&0o700)
		}
	}
	if err != nil {
		return fault.Wrap(fault.Internal, "ledger_unwritable", "cannot make the ledger's files private", err)
	}
	return nil
}

// source names a database for the driver. The pragmas are in it so that each connection gets them; the driver's own default would be
// synchronous=NORMAL.
func source(path, mode string) string {
	q := url.Values{"mode": {mode}, "_journal_mode": {"WAL"}, "_synchronous": {"FULL"}, "_foreign_keys": {"on"}, "_busy_timeout": {"15000"},
		"_stmt_cache_size": {"64"}, // statements stay prepared: parsing one costs more than running it
		"_mutex":           {"no"}} // database/sql lets one goroutine at a time use a connection
	if mode == "ro" {
		q.Del("_journal_mode")
		q.Set("_query_only", "on")
	} else {
		q.Set("_txlock", "immediate")
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// open opens a pool.
func open(path, mode string, conns int) (*sql.DB, error) {
	db, err := sql.Open("sqlite3", source(path, mode))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxLifetime(0)
	return db, nil
}

// checkpointPages is the length of the log, in pages of 4 KiB, at which it is copied into the database: eight times
// SQLite's default. Each checkpoint costs two syncs and a write of every changed page. With 2000 BenchmarkRun needs a
// quarter more processor time a run for sixteen callers (892 µs, not 711), with 32,000 it saves 7 % more. The log
// stays at 33 MB.
const checkpointPages = 8000

// logBytes is the size to which the log is cut after something that read for long let it grow. A backup does while it copies the ledger.
const logBytes = 2 * checkpointPages * 4096

// check sets what the connection string cannot, and reads back the settings that durability and integrity depend on.
func (l *Ledger) check(ctx context.Context) error {
	if _, err := l.w.ExecContext(ctx, fmt.Sprintf("PRAGMA wal_autocheckpoint = %d; PRAGMA journal_size_limit = %d", checkpointPages,
		logBytes)); err != nil {
		return err
	}
	for _, c := range []struct{ pragma, want string }{{"synchronous", "2"}, {"journal_mode", "wal"}, {"foreign_keys", "1"}} {
		var got string
		if err := l.w.QueryRowContext(ctx, "PRAGMA "+c.pragma).Scan(&got); err != nil {
			return err
		}
		if got != c.want {
			return fault.New(fault.Internal, "ledger_not_durable", fmt.Sprintf("SQLite reports %s=%s; %s is required", c.pragma,
				got, c.want))
		}
	}
	return nil
}

func (l *Ledger) migrate(ctx context.Context) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	var have int
	if err := l.w.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	if have > len(names) {
		return fault.New(fault.Validation, "ledger_newer",
			fmt.Sprintf("the ledger has schema %d, which is newer than this slurmgate supports (%d)", have, len(names))).
			WithNext("install the newer version of this program that wrote it")
	}
	for i := have; i < len(names); i++ {
		text, err := migrations.ReadFile(names[i])
		if err != nil {
			return err
		}
		err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
			if _, err := tx.ExecContext(ctx, string(text)); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", i+1))
			return err
		})
		if err != nil {
			return fmt.Errorf("migration %s: %w", names[i], err)
		}
	}
	l.schema = len(names)
	return nil
}

func (l *Ledger) identify(ctx context.Context, newID func() string) error {
	err := l.w.QueryRowContext(ctx, "SELECT id FROM gateway").Scan(&l.id)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if newID == nil {
		return fault.New(fault.Internal, "", "a new ledger needs an id")
	}
	l.id = newID()
	_, err = l.w.ExecContext(ctx, "INSERT INTO gateway (id, created_at) VALUES (?, ?)", l.id, micros(l.now()))
	return err
}

// ID returns the gateway's identity, created with the database.
func (l *Ledger) ID() string { return l.id }

// Path returns the path of the database.
func (l *Ledger) Path() string { return l.path }

// Close closes the database.
func (l *Ledger) Close() error {
	var errs []error
	for _, db := range []*sql.DB{l.r, l.w} {
		if db != nil { // a second close of the same does nothing
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// Integrity runs SQLite's own check, the check of foreign keys and that of the event chain. A run has one event per revision, so a chain
// that lost its newest events fails too.
func (l *Ledger) Integrity(ctx context.Context) error {
	corrupt := func(msg string, err error) error {
		return fault.Wrap(fault.Internal, "ledger_corrupt", msg, err)
	}
	var answer string
	if err := l.r.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&answer); err != nil || answer != "ok" {
		return corrupt("SQLite's integrity check says "+answer, err)
	}
	for _, c := range []struct{ q, msg string }{
		{"SELECT \"table\" FROM pragma_foreign_key_check", "a foreign key has no target"},
		{"SELECT run_id FROM runs r WHERE rev <> (SELECT count(*) FROM events e WHERE e.run_id = r.run_id)",
			"a run does not have exactly one event per revision"},
	} {
		found, err := list(ctx, l.r, column[string], c.q+" LIMIT 1")
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return corrupt(c.msg+": "+found[0], nil)
		}
	}
	if _, err := l.VerifyEvents(ctx); err != nil {
		return err
	}
	_, err := l.VerifyCalls(ctx)
	return err
}
