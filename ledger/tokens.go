package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// AddToken stores a token.
func (l *Ledger) AddToken(ctx context.Context, t gate.Token) error {
	if t.Tools == nil {
		t.Tools = []string{}
	}
	var docs [4]string
	for i, v := range []any{t.Capabilities, t.Projects, t.Accounts, t.Tools} {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		docs[i] = string(b)
	}
	now := micros(l.now())
	defer l.tokens.forget()
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO tokens (token_id, name, secret_sha256, capabilities, projects, accounts, created_by, "+
			"created_at, expires_at, unix_user, tools) VALUES (?,?,?,?,?,?,?,?,?,?,?)", t.ID, t.Name, t.SecretSHA256, docs[0], docs[1], docs[2],
			t.CreatedBy, now, micros(t.ExpiresAt), t.UnixUser, docs[3]); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO principals (method, subject, name, made_by, first_seen) VALUES ('token', ?, ?, ?, ?)", t.ID,
			"token:"+t.Name, optText(t.MadeBy), now)
		return err
	})
}

const tokenColumns = "token_id, tokens.name, secret_sha256, capabilities, projects, accounts, created_by, created_at, expires_at, " +
	"revoked_at, revoked_by, unix_user, tools, principal_id, coalesce(made_by, '')"

// tokenRows joins each token with the principal that it is.
const tokenRows = " FROM tokens JOIN principals ON method = 'token' AND subject = token_id "

func scanToken(row scanner) (t gate.Token, err error) {
	err = row.Scan(&t.ID, &t.Name, &t.SecretSHA256, into{&t.Capabilities}, into{&t.Projects}, into{&t.Accounts}, &t.CreatedBy,
		into{&t.CreatedAt}, into{&t.ExpiresAt}, into{&t.RevokedAt}, into{&t.RevokedBy}, &t.UnixUser,
		into{&t.Tools}, &t.PrincipalID, &t.MadeBy)
	return t, err
}

// Token finds a token; gate.Tokens has the contract. It costs the same whether there is one or not, and no query.
func (l *Ledger) Token(ctx context.Context, id string) (gate.Token, error) {
	t, ok, err := l.tokens.find(id, func() ([]gate.Token, error) {
		return list(ctx, l.r, scanToken, "SELECT "+tokenColumns+tokenRows)
	})
	if err == nil && !ok {
		return t, fault.New(fault.NotFound, "token_not_found", "there is no token "+id).WithSteps(fault.Do("token.list"))
	}
	return t, storage(err)
}

// tokenMemory has all tokens as they are on the disk: only this process changes them. Callers do not change what it
// returns.
type tokenMemory struct {
	mu   sync.RWMutex
	byID map[string]gate.Token // nil: to be read
}

func (m *tokenMemory) find(id string, all func() ([]gate.Token, error)) (t gate.Token, ok bool, err error) {
	m.mu.RLock()
	known := m.byID
	m.mu.RUnlock()
	if known == nil {
		if known, err = m.read(all); err != nil {
			return t, false, err
		}
	}
	t, ok = known[id]
	return t, ok, nil
}

func (m *tokenMemory) read(all func() ([]gate.Token, error)) (map[string]gate.Token, error) {
	m.mu.Lock() // also while reading: what is written meanwhile is forgotten afterwards
	defer m.mu.Unlock()
	if m.byID != nil {
		return m.byID, nil
	}
	tokens, err := all()
	if err != nil {
		return nil, err
	}
	byID := make(map[string]gate.Token, len(tokens))
	for _, t := range tokens {
		byID[t.ID] = t
	}
	m.byID = byID
	return byID, nil
}

// forget is called after a token was changed, and before the change is answered.
func (m *tokenMemory) forget() {
	m.mu.Lock()
	m.byID = nil
	m.mu.Unlock()
}

// TokenSnapshot counts tokens at a time. A token changes only by being revoked or by expiring, so the three numbers change exactly when the
// list does.
type TokenSnapshot struct {
	Tokens  int64 `json:"tokens"`
	Revoked int64 `json:"revoked"`
	Expired int64 `json:"expired"` // and not revoked

	at time.Time
}

// State returns the state of a token at the time of the snapshot: valid, expired or revoked.
func (s TokenSnapshot) State(t gate.Token) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case !s.at.Before(t.ExpiresAt):
		return "expired"
	}
	return "valid"
}

// Tokens lists tokens, newest first.
func (l *Ledger) Tokens(ctx context.Context) (out []gate.Token, s TokenSnapshot, err error) {
	s.at = l.now()
	out, err = list(ctx, l.r, scanToken, "SELECT "+tokenColumns+tokenRows+"ORDER BY created_at DESC, token_id")
	for _, t := range out {
		s.Tokens++
		switch s.State(t) {
		case "revoked":
			s.Revoked++
		case "expired":
			s.Expired++
		}
	}
	return out, s, err
}

// RevokeToken revokes a token, effective immediately, and with descendants all tokens that were created with it, directly or through other
// tokens. A token that is already revoked is left unchanged. created are the valid tokens among the descendants, as they were before.
func (l *Ledger) RevokeToken(ctx context.Context, id, by string, descendants bool) (t gate.Token, created []gate.Token,
	err error) {
	err = l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		now := micros(l.now())
		if created, err = list(ctx, tx, scanToken, "WITH RECURSIVE below (id) AS (SELECT principal_id FROM principals WHERE method = 'token' "+
			"AND "+
			"subject = ?1 UNION SELECT p.principal_id FROM principals p JOIN below ON p.made_by = below.id) SELECT "+tokenColumns+tokenRows+
			"JOIN below ON id = principal_id WHERE token_id <> ?1 AND revoked_at IS NULL AND expires_at > ?2 ORDER BY created_at, token_id", id,
			now); err != nil {
			return err
		}
		ids := []string{id}
		if descendants {
			for _, t := range created {
				ids = append(ids, t.ID)
			}
		}
		which, args := among("token_id", ids)
		_, err := tx.ExecContext(ctx, "UPDATE tokens SET revoked_at = ?, revoked_by = ? WHERE revoked_at IS NULL AND "+which,
			append([]any{now, by}, args...)...)
		return err
	})
	l.tokens.forget() // also after an error: it may have been written all the same
	if err != nil {
		return gate.Token{}, nil, err
	}
	t, err = l.Token(ctx, id)
	return t, created, err
}
