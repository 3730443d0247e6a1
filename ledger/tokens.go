package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"slurmgate/fault"
)

// Token is a bearer token without its secret, of which only the hash is stored.
type Token struct {
	ID           string // tok_…
	Name         string
	SecretSHA256 string // 64 hex
	Capabilities []string
	Projects     []string
	Accounts     map[string]string
	CreatedBy    string
	CreatedAt    time.Time
	ExpiresAt    time.Time
	RevokedAt    *time.Time
	RevokedBy    *string
}

// AddToken stores a token.
func (l *Ledger) AddToken(ctx context.Context, t Token) error {
	var docs [3]string
	for i, v := range []any{t.Capabilities, t.Projects, t.Accounts} {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		docs[i] = string(b)
	}
	return l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO tokens (token_id, name, secret_sha256, capabilities, projects, accounts, created_by, "+
			"created_at, expires_at) VALUES (?,?,?,?,?,?,?,?,?)",
			t.ID, t.Name, t.SecretSHA256, docs[0], docs[1], docs[2], t.CreatedBy, micros(l.now()), micros(t.ExpiresAt))
		return err
	})
}

const tokenColumns = "token_id, name, secret_sha256, capabilities, projects, accounts, created_by, created_at, expires_at, revoked_at, " +
	"revoked_by"

func scanToken(row scanner) (Token, error) {
	var t Token
	var caps, projects, accounts string
	var created, expires int64
	var revoked sql.NullInt64
	var by sql.NullString
	if err := row.Scan(&t.ID, &t.Name, &t.SecretSHA256, &caps, &projects, &accounts, &t.CreatedBy, &created, &expires, &revoked,
		&by); err != nil {
		return t, err
	}
	t.CreatedAt, t.ExpiresAt, t.RevokedAt, t.RevokedBy = time.UnixMicro(created).UTC(), time.UnixMicro(expires).
		UTC(), optTime(revoked), textOrNil(by)
	return t, errors.Join(json.Unmarshal([]byte(caps), &t.Capabilities), json.Unmarshal([]byte(projects), &t.Projects),
		json.Unmarshal([]byte(accounts), &t.Accounts))
}

// Token reads a token.
func (l *Ledger) Token(ctx context.Context, id string) (Token, error) {
	t, err := scanToken(l.r.QueryRowContext(brief(ctx), "SELECT "+tokenColumns+" FROM tokens WHERE token_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		return t, fault.New(fault.NotFound, "ledger.Token", "token_not_found", "there is no token "+id).WithSteps(fault.Do("token.list"))
	}
	return t, storage(err)
}

// TokenSnapshot counts tokens at a time. A token changes only by being revoked or by expiring, so the three numbers change exactly when the
// list does.
type TokenSnapshot struct {
	Tokens  int64 `json:"tokens"`
	Revoked int64 `json:"revoked"`
	Expired int64 `json:"expired"` // and not revoked

	at time.Time
}

// State is what a token is good for at the time of the snapshot: valid, expired or revoked.
func (s TokenSnapshot) State(t Token) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case !s.at.Before(t.ExpiresAt):
		return "expired"
	}
	return "valid"
}

// Tokens lists tokens, newest first.
func (l *Ledger) Tokens(ctx context.Context) (out []Token, s TokenSnapshot, err error) {
	rows, err := l.r.QueryContext(ctx, "SELECT "+tokenColumns+" FROM tokens ORDER BY created_at DESC, token_id")
	if err != nil {
		return nil, s, storage(err)
	}
	defer rows.Close()
	s.at, out = l.now(), []Token{}
	for rows.Next() {
		t, err := scanToken(rows)
		if err != nil {
			return nil, s, storage(err)
		}
		out = append(out, t)
		s.Tokens++
		switch s.State(t) {
		case "revoked":
			s.Revoked++
		case "expired":
			s.Expired++
		}
	}
	return out, s, storage(rows.Err())
}

// RevokeToken revokes a token, effective immediately. A token that is already revoked is left unchanged.
func (l *Ledger) RevokeToken(ctx context.Context, id, by string) (Token, error) {
	if _, err := l.Token(ctx, id); err != nil {
		return Token{}, err
	}
	err := l.tx(ctx, func(ctx context.Context, tx *sql.Conn) error {
		_, err := tx.ExecContext(ctx, "UPDATE tokens SET revoked_at = ?, revoked_by = ? WHERE token_id = ? AND revoked_at IS NULL",
			micros(l.now()), by, id)
		return err
	})
	if err != nil {
		return Token{}, err
	}
	return l.Token(ctx, id)
}
