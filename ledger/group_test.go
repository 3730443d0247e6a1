package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"

	"slurmgate/run"
)

// Of changes that share a transaction the refused ones leave nothing and the others everything, in the order they came; what a change does
// outside the database it does once.
func TestGroupRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	synctest.Test(t, func(t *testing.T) { groupRefused(t, openAt(t, path)) })
}

func groupRefused(t *testing.T, l *Ledger) {
	t.Helper()
	note := func(id string) func(context.Context, *sql.Conn) error {
		return func(ctx context.Context, tx *sql.Conn) error {
			err := l.appendEvent(ctx, tx, id, run.Event{Type: "run.test", Data: map[string]any{}})
			return err
		}
	}
	refused := errors.New("refused")
	removals := 0
	remove := func() error { removals++; return nil }
	changes := map[string]func(context.Context, *sql.Conn) error{
		"refuses": func(ctx context.Context, tx *sql.Conn) error {
			return errors.Join(note("refuses")(ctx, tx), refused)
		},
		"panics": func(ctx context.Context, tx *sql.Conn) error {
			if err := note("panics")(ctx, tx); err != nil {
				return err
			}
			panic("of a change")
		},
		"breaks a rule": func(ctx context.Context, tx *sql.Conn) error {
			if err := note("breaks")(ctx, tx); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM events")
			return err
		},
	}
	for name, bad := range changes {
		removals = 0
		wait, results := make(chan bool), map[string]chan error{}
		begin := func(name string, f func() error) {
			c := make(chan error, 1)
			results[name] = c
			go func() { c <- f() }()
			synctest.Wait() // it waits, behind the others
		}
		tx := func(f func(context.Context, *sql.Conn) error) func() error {
			return func() error { return l.tx(t.Context(), f) }
		}
		begin("the writer is busy", tx(func(context.Context, *sql.Conn) error { <-wait; return nil }))
		begin("first", tx(note("first")))
		begin("removal", func() error { _, err := l.Unheld(t.Context(), fmt.Sprintf("%064x", 1), remove); return err })
		begin("bad", tx(bad))
		begin("last", tx(note("last")))
		close(wait)
		for n, c := range results {
			if err := <-c; (err != nil) != (n == "bad") {
				t.Errorf("%s: %s: %v", name, n, err)
			}
		}
		if removals != 1 {
			t.Errorf("%s: removed %d times", name, removals)
		}
	}
	for id, want := range map[string]int{"first": 3, "last": 3, "refuses": 0, "panics": 0, "breaks": 0} {
		if list, err := l.Events(t.Context(), id); err != nil || len(list) != want {
			t.Errorf("%s: %d events, want %d: %v", id, len(list), want, err)
		}
	}
	if _, err := l.VerifyEvents(t.Context()); err != nil {
		t.Error(err)
	}
}
