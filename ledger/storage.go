package ledger

import (
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"

	"slurmgate/fault"
)

// storage gives SQLite's own errors a kind; others pass.
func storage(err error) error {
	var s sqlite3.Error
	if !errors.As(err, &s) {
		return err
	}
	switch s.Code {
	case sqlite3.ErrFull:
		return fault.Wrap(fault.Transport, "ledger", "ledger_disk_full", "the ledger's disk is full", err).WithNext("free space on the disk of gateway.state_dir")
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return fault.Wrap(fault.Transport, "ledger", "ledger_busy", "the ledger is busy", err)
	case sqlite3.ErrIoErr, sqlite3.ErrCorrupt, sqlite3.ErrNotADB, sqlite3.ErrReadonly, sqlite3.ErrCantOpen:
		return fault.Wrap(fault.Internal, "ledger", "ledger_broken", "the ledger cannot be read or written", err)
	}
	return fault.Wrap(fault.Internal, "ledger", "ledger_refused", "the ledger refused the change", err)
}

func kindOf(err error) fault.Kind { return fault.KindOf(storage(err)) }

func codeOf(err error) string { return strings.ToLower(fault.CodeOf(storage(err))) }

func micros(t time.Time) int64 { return t.UnixMicro() }

func optMicros(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixMicro()
}

func optTime(v sql.NullInt64) *time.Time {
	if !v.Valid {
		return nil
	}
	t := time.UnixMicro(v.Int64).UTC()
	return &t
}

func optInt(v sql.NullInt64) *int {
	if !v.Valid {
		return nil
	}
	n := int(v.Int64)
	return &n
}

func optText(s string) any {
	if s == "" {
		return nil
	}
	return s
}
