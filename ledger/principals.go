package ledger

import (
	"context"
	"database/sql"
	"errors"
	"slices"

	"slurmgate/fault"
	"slurmgate/gate"
)

var _ gate.Principals = (*Ledger)(nil)

const principalColumns = "principal_id, method, subject, name, coalesce(made_by, '')"

func scanIdentity(row scanner) (i gate.Identity, err error) {
	err = row.Scan(&i.ID, &i.Method, &i.Subject, &i.Name, &i.MadeBy)
	return i, err
}

const findPrincipal = "SELECT " + principalColumns + " FROM principals WHERE method = ? AND subject = ?"

// Principals gives ids to the identities that have none yet; gate.Principals has the contract.
func (l *Ledger) Principals(ctx context.Context, who ...gate.Identity) (out []gate.Identity, err error) {
	for _, i := range who {
		known, err := scanIdentity(l.one(ctx, findPrincipal, i.Method, i.Subject))
		if errors.Is(err, sql.ErrNoRows) {
			return l.addPrincipals(ctx, who)
		}
		if err != nil {
			return nil, storage(err)
		}
		out = append(out, known)
	}
	return out, nil
}

func (l *Ledger) addPrincipals(ctx context.Context, who []gate.Identity) (out []gate.Identity, err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		out = nil
		for _, i := range who {
			if _, err := tx.ExecContext(ctx, "INSERT INTO principals (method, subject, name, first_seen) VALUES (?,?,?,?) "+
				"ON CONFLICT (method, subject) DO NOTHING", i.Method, i.Subject, i.Name, micros(l.now())); err != nil {
				return err
			}
			known, err := scanIdentity(tx.QueryRowContext(ctx, findPrincipal, i.Method, i.Subject))
			if err != nil {
				return err
			}
			out = append(out, known)
		}
		return nil
	})
	return out, err
}

// Identity returns a principal; an unknown id is NotFound.
func (l *Ledger) Identity(ctx context.Context, id string) (gate.Identity, error) {
	i, err := scanIdentity(l.one(ctx, "SELECT "+principalColumns+" FROM principals WHERE principal_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return i, fault.New(fault.NotFound, "principal_not_found", "there is no principal "+id)
	}
	return i, storage(err)
}

// Line lists the ids of who is behind a principal: itself, who created it, who created that one, and so on.
func (l *Ledger) Line(ctx context.Context, id string) (line []string, err error) {
	for next := []string{id}; len(next) > 0; {
		who := next[0]
		if next = next[1:]; who == "" || slices.Contains(line, who) {
			continue
		}
		line = append(line, who)
		more, err := list(ctx, l.r, column[string], "SELECT made_by FROM principals WHERE principal_id = ? AND made_by IS NOT NULL", who)
		if err != nil {
			return nil, err
		}
		next = append(next, more...)
	}
	return line, nil
}
