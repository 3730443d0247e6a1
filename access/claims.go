package access

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/visible"
)

// maxName bounds an issuer, a subject and an audience, in bytes.
const maxName = 256

// claims holds the claims of a token.
type claims struct {
	issuer, subject            string
	audience                   []string
	expires, notBefore, issued time.Time      // the latter two are zero where the token has none
	all                        map[string]any // for the grants
}

// readClaims decodes the payload of a token. Names must match the standard exactly; it refuses a repeated key, two
// keys that differ only in case, and a claim of another type than the standard's. iss and sub become a name in
// records: they are printable.
func readClaims(payload []byte) (c claims, err error) {
	doc, err := plan.Read(payload)
	if err != nil {
		return c, err
	}
	var ok bool
	if c.all, ok = doc.Value.(map[string]any); !ok {
		return c, unknownToken()
	}
	c.issuer, _ = c.all["iss"].(string)
	c.subject, _ = c.all["sub"].(string)
	if !isName(c.issuer) || !isName(c.subject) {
		return c, unknownToken()
	}
	switch aud := c.all["aud"].(type) {
	case string:
		c.audience = []string{aud}
	case []any:
		for _, v := range aud {
			s, ok := v.(string)
			if !ok {
				return c, unknownToken()
			}
			c.audience = append(c.audience, s)
		}
	}
	for name, at := range map[string]*time.Time{"exp": &c.expires, "nbf": &c.notBefore, "iat": &c.issued} {
		switch v, given := c.all[name]; n := v.(type) {
		case float64:
			whole, part := math.Modf(n)
			if n < 0 || n > maxTime {
				return c, unknownToken()
			}
			*at = time.Unix(int64(whole), int64(part*1e9))
		default:
			if given || name == "exp" {
				return c, unknownToken()
			}
		}
	}
	if len(c.audience) == 0 {
		return c, unknownToken()
	}
	return c, nil
}

const maxTime = 253402300799 // the last second of the year 9999

func isName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, hidden) && s[0] != ' ' && s[len(s)-1] != ' '
}

// hidden reports whether a character cannot be seen, or is a blank other than a plain space.
func hidden(r rune) bool {
	return visible.Hidden(r) || !unicode.IsPrint(r)
}

// valid reports whether the claims are for this gateway, now.
func (c claims) valid(audience string, now time.Time) bool {
	early := now.Add(leeway)
	return slices.Contains(c.audience, audience) && !c.expires.After(now.Add(maxLifetime)) && !c.notBefore.After(early) &&
		!c.issued.After(early)
}

// The types of tokens: the typ of their header without "application/".
const (
	typeAccess = "at+jwt" // RFC 9068
	typePlain  = "jwt"    // RFC 7519: any kind of token
)

// Types returns the types that a site may accept for a provider's access tokens.
func Types() []string { return []string{typeAccess, "JWT"} }

// ofType refuses a token whose type is not that of an access token. Some providers use JWT for all their tokens, or
// no type: where the site accepts that, a token that shows another purpose is still refused.
func (i *issuer) ofType(header jose.Header, c claims) error {
	typ, isText := header.ExtraHeaders["typ"].(string)
	if _, given := header.ExtraHeaders["typ"]; !given {
		typ, isText = typePlain, true
	}
	typ = strings.TrimPrefix(strings.ToLower(typ), "application/")
	accepted := slices.ContainsFunc(i.Types, func(t string) bool { return strings.EqualFold(t, typ) })
	switch {
	case !isText, typ != typeAccess && typ != typePlain, accepted && typ == typePlain && !c.isAccess():
		return unknownToken()
	case !accepted:
		return fault.New(fault.Auth, "unauthenticated",
			"the token is not marked as an access token of a type that this gateway "+
				"accepts ("+strings.Join(i.Types, ", ")+")").
			WithNext("send the access token, not the ID token; the administrator sets the types a provider uses in access.oidc of the site file")
	}
	return nil
}

// isAccess reports whether a token without a specific type can be an access token: ID tokens have hashes, logout
// tokens have events, and some providers have the purpose in a claim.
func (c claims) isAccess() bool {
	for _, name := range []string{"at_hash", "c_hash", "s_hash", "events"} {
		if _, has := c.all[name]; has {
			return false
		}
	}
	purpose, given := c.all["typ"]
	return !given || purpose == any("Bearer")
}
