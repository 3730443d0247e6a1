// Package ledgertest makes new ledgers for tests. A test that opens thousands of ledgers copies one that is
// created already: the schema takes some milliseconds of a processor.
package ledgertest

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"slurmgate/ledger"
)

// Open opens the ledger at path, a new one if absent.
func Open(t testing.TB, path string, o ledger.Options) *ledger.Ledger {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		data, err := empty()
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := ledger.Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// empty returns the file of a ledger with all tables and without an id, which Open gives each copy. The keys in it are those of all copies.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "ledgertest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "ledger.db")
	l, err := ledger.Open(context.Background(), path, ledger.Options{NewID: func() string { return "none" }})
	if err != nil {
		return nil, err
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec("DELETE FROM gateway"); err != nil {
		return nil, err
	}
	if err := db.Close(); err != nil { // the last connection writes the log into the file
		return nil, err
	}
	return os.ReadFile(path)
})
