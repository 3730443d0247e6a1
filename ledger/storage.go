package ledger

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// storage gives SQLite's own errors a kind; other errors pass unchanged.
func storage(err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err // it already has a kind
	}
	var s sqlite3.Error
	if !errors.As(err, &s) {
		return err
	}
	if full(s) {
		return fault.Wrap(fault.Transport, "ledger_disk_full", "the ledger's disk is full", err).
			WithNext("free space on the disk of gateway.state_dir; nothing was recorded, and the gateway continues by itself when there is space")
	}
	switch s.Code {
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return fault.Wrap(fault.Transport, "ledger_busy", "the ledger is busy", err)
	case sqlite3.ErrIoErr, sqlite3.ErrCorrupt, sqlite3.ErrNotADB, sqlite3.ErrReadonly, sqlite3.ErrCantOpen:
		return fault.Wrap(fault.Internal, "ledger_broken", "the ledger cannot be read or written", err)
	}
	return fault.Wrap(fault.Internal, "ledger_refused", "the ledger refused the change", err)
}

// full reports whether the disk was full. A sync that fails for that reason is different: earlier writes may be lost.
func full(s sqlite3.Error) bool {
	if s.ExtendedCode == sqlite3.ErrIoErrFsync || s.ExtendedCode == sqlite3.ErrIoErrDirFsync {
		return false
	}
	return s.Code == sqlite3.ErrFull || s.ExtendedCode == sqlite3.ErrIoErrSHMSize || s.SystemErrno == unix.ENOSPC ||
		s.SystemErrno == unix.EDQUOT
}

// broken reports whether the disk, or the database on it, can no longer be trusted with further changes.
func broken(err error) bool {
	var s sqlite3.Error
	if !errors.As(err, &s) || full(s) {
		return false
	}
	return s.Code == sqlite3.ErrIoErr || s.Code == sqlite3.ErrCorrupt || s.Code == sqlite3.ErrNotADB || s.Code == sqlite3.ErrReadonly
}

// watch ends all writing permanently when a change failed because of the disk. After a failed sync the kernel may
// have dropped the data it could not write and then report success for the next sync, so a second try proves nothing;
// the next process that opens the ledger finds out what is on the disk.
func (l *Ledger) watch(err error) {
	if broken(err) {
		l.stopped.CompareAndSwap(nil, &err)
	}
}

// Stopped returns why the ledger accepts no changes: a Transport fault with code ledger_stopped after a disk failure, a Conflict with code
// ledger_read_only where it was opened for reading. Nil while it does. Reading works in both cases.
func (l *Ledger) Stopped() error {
	err := l.stopped.Load()
	switch {
	case err == nil:
		return nil
	case fault.CodeOf(*err) == "ledger_read_only":
		return *err
	}
	return fault.Wrap(fault.Transport, "ledger_stopped",
		"the disk of the ledger failed: nothing more is recorded or submitted until slurmgate is restarted", *err).
		WithNext("check the disk of gateway.state_dir (dmesg, df), then restart slurmgate")
}

// Answers passes an empty change through the ledger's writer, and a query through its readers; neither writes to the
// disk. It returns when both have answered, even with an error: a ledger that refuses still answers.
func (l *Ledger) Answers(ctx context.Context) {
	_ = l.tx(ctx, func(context.Context, *sql.Conn) error { return nil })
	_, _ = l.Counts(ctx)
}

func kindOf(err error) fault.Kind { return fault.KindOf(storage(err)) }

func codeOf(err error) string { return strings.ToLower(fault.CodeOf(storage(err))) }

// SQLiteVersion returns the version of SQLite in this program.
func SQLiteVersion() string {
	v, _, _ := sqlite3.Version()
	return v
}
