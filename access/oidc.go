package access

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"slurmgate/gate"
)

// Issuer is an OpenID provider whose access tokens are accepted: JSON web tokens that it signed for this gateway (RFC 9068).
type Issuer struct {
	URL        string   // the iss of its tokens, exactly; base of its configuration's URL
	Audience   string   // what aud must name: this gateway
	Algorithms []string // of signatures; only asymmetric ones can be listed, see [Algorithms]
	Types      []string // accepted types of its access tokens, see [Types]; at+jwt when empty
	Grants     []ClaimGrant
	UnixUsers  ClaimUsers
}

// ClaimGrant grants rights to everyone with a claim: "sub" alice, "groups" lab, "scope" slurmgate. A claim that is a list, or
// the words of scope, is searched for the value. If several match, all apply; without a match the caller may do nothing.
type ClaimGrant struct {
	Claim, Value string
	Grant
}

// Algorithms returns those that a site may allow. "none" and those with a shared secret are not included.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

const (
	maxTokenBytes = 16 << 10
	leeway        = 30 * time.Second // between the clocks of this host and the provider's
	maxLifetime   = 24 * time.Hour   // access tokens with a longer lifetime are refused
)

// CheckIssuerURL returns what is wrong with an issuer's URL, or "". Valid are https, and http on this host.
func CheckIssuerURL(s string) string {
	u, err := url.Parse(s)
	switch {
	case len(s) > maxName:
		return fmt.Sprintf("it is longer than %d bytes", maxName)
	case err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(s, "?# "): // in the ledger a space ends the URL
		return "it is not a plain URL"
	case u.Scheme == "https", u.Scheme == "http" && isLoopback(u.Hostname()):
		return ""
	}
	return "it is neither https nor http on this host"
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// accessToken finds the principal of an OpenID provider's access token.
func (a *Access) accessToken(ctx context.Context, text string) (gate.Principal, error) {
	if len(a.issuers) == 0 || len(text) > maxTokenBytes {
		return gate.Principal{}, unknownToken()
	}
	var algorithms []jose.SignatureAlgorithm
	for _, i := range a.issuers {
		for _, alg := range i.Algorithms {
			algorithms = append(algorithms, jose.SignatureAlgorithm(alg))
		}
	}
	token, err := jose.ParseSignedCompact(text, algorithms)
	if err != nil || len(token.Signatures) != 1 {
		return gate.Principal{}, unknownToken()
	}
	header := token.Signatures[0].Protected
	unproven, err := readClaims(token.UnsafePayloadWithoutVerification())
	_, critical := header.ExtraHeaders["crit"]
	if _, unencoded := header.ExtraHeaders["b64"]; err != nil || critical || unencoded {
		return gate.Principal{}, unknownToken()
	}
	for _, i := range a.issuers {
		if i.URL == unproven.issuer && slices.Contains(i.Algorithms, header.Algorithm) {
			p, err := i.principal(ctx, token, unproven, a.now(), &a.ids)
			if err != nil {
				return p, err
			}
			return a.withUserProject(ctx, p, -1)
		}
	}
	return gate.Principal{}, unknownToken()
}

// principal verifies the signature of a token with these claims, and then the claims.
func (i *issuer) principal(ctx context.Context, token *jose.JSONWebSignature, c claims, now time.Time, ids *identities) (gate.Principal,
	error) {
	header := token.Signatures[0].Protected
	key, err := i.key(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return gate.Principal{}, err
	}
	if _, err := token.Verify(key); err != nil {
		return gate.Principal{}, unknownToken()
	}
	switch {
	case !now.Before(c.expires.Add(leeway)):
		return gate.Principal{}, expired()
	case !c.valid(i.Audience, now):
		return gate.Principal{}, unknownToken()
	}
	if err := i.ofType(header, c); err != nil {
		return gate.Principal{}, err
	}
	var grants []Grant
	for _, g := range i.Grants {
		if has(c.all[g.Claim], g.Claim, g.Value) {
			grants = append(grants, g.Grant)
		}
	}
	p := principal("oidc:"+i.URL+"#"+shown(c.subject), gate.ByOIDC, grants...)
	p.Expires, p.UnixUser = c.expires, i.UnixUsers.of(c)
	if len(p.Rights) == 0 {
		return p, nil // it can store nothing that would need an id
	}
	known, err := ids.subject(ctx, gate.Identity{Method: gate.ByOIDC, Subject: i.URL + " " + c.subject, Name: p.Name})
	p.ID = known.ID
	return p, err
}

// has reports whether a claim is a value, or has it in its list. The words of scope have single spaces between them
// (RFC 6749).
func has(claim any, name, value string) bool {
	switch v := claim.(type) {
	case string:
		return v == value || name == "scope" && slices.Contains(strings.Split(v, " "), value)
	case []any:
		return slices.Contains(v, any(value))
	}
	return false
}
