package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"regexp"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// A bearer token has the form sgt_<16 characters>_<52 characters>: its id (tok_<the 16>) and its secret, 260 random
// bits in base32. Only the secret's SHA-256 is stored: with so many random bits no slower hash is needed.

var tokenForm = regexp.MustCompile(`^sgt_([A-Z2-7]{16})_([A-Z2-7]{52})$`)

// TokenPrincipal returns the name, as lists show it, of the principal of a token with this name.
func TokenPrincipal(name string) string { return "token:" + name }

// NewToken returns a new token and its text, which is shown once.
func NewToken(name string, g Grant, by gate.Principal, expires time.Time) (t gate.Token, text string) {
	id, secret := rand.Text()[:16], rand.Text()+rand.Text()
	return gate.Token{ID: "tok_" + id, Name: name, SecretSHA256: digest(secret), Capabilities: g.Capabilities, Projects: g.Projects,
			Accounts: g.Accounts, CreatedBy: by.Name, MadeBy: by.ID, ExpiresAt: expires},
		"sgt_" + id + "_" + secret
}

func digest(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// token finds the principal of one of this gateway's own tokens.
func (a *Access) token(ctx context.Context, text string) (gate.Principal, error) {
	m := tokenForm.FindStringSubmatch(text)
	if m == nil || a.tokens == nil {
		return gate.Principal{}, unknownToken()
	}
	t, err := a.tokens.Token(ctx, "tok_"+m[1])
	if err != nil && !fault.Is(err, fault.NotFound) {
		return gate.Principal{}, err
	}
	// The secret of an unknown id is hashed and compared too, with an empty text that no hash equals.
	same := subtle.ConstantTimeCompare([]byte(digest(m[2])), []byte(t.SecretSHA256)) == 1
	switch {
	case err != nil || !same || t.RevokedAt != nil:
		return gate.Principal{}, unknownToken()
	case !a.now().Before(t.ExpiresAt):
		return gate.Principal{}, expired()
	}
	p := principal(TokenPrincipal(t.Name), gate.ByToken, Grant{Accounts: t.Accounts,
		Grant: gate.Grant{Capabilities: t.Capabilities, Projects: t.Projects}})
	p.ID, p.Expires, p.UnixUser, p.Tools = t.PrincipalID, t.ExpiresAt, t.UnixUser, t.Tools
	return a.withUserProject(ctx, p, -1)
}

func expired() error {
	return fault.New(fault.Auth, "token_expired", "the access token has expired").WithNext("get a new one")
}

// isOwn reports whether a text claims to be a token of this gateway.
func isOwn(text string) bool { return strings.HasPrefix(text, "sgt_") }
