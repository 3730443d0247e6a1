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

const principalColumns = "principal_id, method, subject, name, coalesce(made_by, ''), coalesce(former, '')"

func scanIdentity(row scanner) (i gate.Identity, err error) {
	err = row.Scan(&i.ID, &i.Method, &i.Subject, &i.Name, &i.MadeBy, &i.Former)
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
			// The name of before is this principal's if its method may take names over and no other principal has taken this one.
			if _, err := tx.ExecContext(ctx, `INSERT INTO principals (method, subject, name, former, first_seen)
 SELECT ?1, ?2, ?3, iif(EXISTS (SELECT 1 FROM former_names WHERE method = ?1) AND NOT EXISTS (SELECT 1 FROM principals WHERE former = ?4), ?4, NULL), ?5
 ON CONFLICT (method, subject) DO NOTHING`, i.Method, i.Subject, i.Name, optText(i.Former), micros(l.now())); err != nil {
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

// CloseNames ends the time in which users of this host can take over what an older ledger kept under their names.
func (l *Ledger) CloseNames(ctx context.Context) error {
	var open bool
	if err := l.one(ctx, "SELECT EXISTS (SELECT 1 FROM former_names WHERE method = 'peer')").Scan(&open); err != nil || !open {
		return storage(err)
	}
	return l.write(ctx, "DELETE FROM former_names WHERE method = 'peer'")
}

// Identity reads a principal. NotFound when there is none.
func (l *Ledger) Identity(ctx context.Context, id string) (gate.Identity, error) {
	i, err := scanIdentity(l.one(ctx, "SELECT "+principalColumns+" FROM principals WHERE principal_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return i, fault.New(fault.NotFound, "principal_not_found", "there is no principal "+id)
	}
	return i, storage(err)
}

// Line lists who is behind a principal: itself, who created it, who created that one, and so on. They are ids; a principal of an older
// ledger is listed by its former name too. Such a ledger knows only the name of who created a token, so everyone who had it is listed.
func (l *Ledger) Line(ctx context.Context, id string) (line []string, err error) {
	for next := []string{id}; len(next) > 0; {
		who := next[0]
		if next = next[1:]; who == "" || slices.Contains(line, who) {
			continue
		}
		line = append(line, who)
		more, err := list(ctx, l.r, column[string], `SELECT made_by FROM principals WHERE principal_id = ?1 AND made_by IS NOT NULL
 UNION ALL SELECT former FROM principals WHERE principal_id = ?1 AND former IS NOT NULL
 UNION ALL SELECT created_by FROM principals JOIN tokens ON token_id = subject WHERE principal_id = ?1 AND method = 'token' AND made_by IS NULL
 UNION ALL SELECT principal_id FROM principals WHERE former = ?1
 UNION ALL SELECT principal_id FROM principals JOIN tokens ON token_id = subject WHERE method = 'token' AND 'token:' || tokens.name = ?1`, who)
		if err != nil {
			return nil, err
		}
		next = append(next, more...)
	}
	return line, nil
}
