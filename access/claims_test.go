package access

import (
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"slurmgate/fault"
)

// signed returns a token of the provider with exactly this header and this payload.
func (p *provider) signed(t *testing.T, header map[string]any, payload string) string {
	t.Helper()
	all := map[jose.HeaderKey]any{"typ": "at+jwt"}
	for k, v := range header {
		all[jose.HeaderKey(k)] = v
		if v == nil {
			delete(all, jose.HeaderKey(k))
		}
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: p.rsa, KeyID: "r"}},
		&jose.SignerOptions{ExtraHeaders: all})
	must(t, err)
	sig, err := s.Sign([]byte(payload))
	must(t, err)
	text, err := sig.CompactSerialize()
	must(t, err)
	return text
}

// payload returns the good claims as JSON with some replaced; a replacement is JSON and is not escaped.
func (p *provider) payload(change map[string]string) string {
	c := map[string]string{`"iss"`: fmt.Sprintf("%q", p.URL), `"aud"`: fmt.Sprintf("%q", audience), `"sub"`: `"alice"`,
		`"iat"`: fmt.Sprint(noon.Unix()), `"exp"`: fmt.Sprint(noon.Add(time.Hour).Unix()), `"groups"`: `["lab"]`}
	maps.Copy(c, change)
	var parts []string
	for k, v := range c {
		if v != "" {
			parts = append(parts, k+":"+v)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// Names of claims must match exactly and be unique; values that become names in records have no invisible characters.
func TestClaimsAreExact(t *testing.T) {
	p, now := newProvider(t), noon
	a := p.access(t, &now, "RS256")
	iss := fmt.Sprintf("%q", p.URL)
	for what, change := range map[string]map[string]string{
		"SUB":                     {`"sub"`: "", `"SUB"`: `"alice"`},
		"sub and Sub":             {`"Sub"`: `"root"`},
		"sub escaped, then again": {`"s\u0075b"`: `"root"`},
		"ISS":                     {`"iss"`: "", `"ISS"`: iss},
		"EXP":                     {`"exp"`: "", `"EXP"`: fmt.Sprint(noon.Add(time.Hour).Unix())},
		"exp and Exp":             {`"Exp"`: fmt.Sprint(noon.Add(2 * time.Hour).Unix())},
		"long s: ſub":             {`"sub"`: "", `"ſub"`: `"alice"`},
		"twice within":            {`"x"`: `{"a":1,"a":2}`},
		"exp a text":              {`"exp"`: `"1900000000"`},
		"exp null":                {`"exp"`: `null`},
		"exp huge":                {`"exp"`: `1e300`},
		"exp negative and huge":   {`"exp"`: `-1e300`},
		"iat a text":              {`"iat"`: `"1"`},
		"nbf a list":              {`"nbf"`: `[1]`},
		"nbf huge":                {`"nbf"`: `1e18`},
		"aud a number":            {`"aud"`: `1`},
		"aud an object":           {`"aud"`: `{"https://slurmgate.example.org":1}`},
		"aud with a number":       {`"aud"`: fmt.Sprintf(`[1,%q]`, audience)},
		"aud within a list":       {`"aud"`: fmt.Sprintf(`[[%q]]`, audience)},
		"aud longer":              {`"aud"`: fmt.Sprintf(`%q`, audience+".evil.example")},
		"aud two in one":          {`"aud"`: fmt.Sprintf(`%q`, "x "+audience)},
		"sub a number":            {`"sub"`: `1`},
		"sub null":                {`"sub"`: `null`},
		"sub empty":               {`"sub"`: `""`},
		"sub a list":              {`"sub"`: `["alice"]`},
		"sub of two lines":        {`"sub"`: `"alice\nuser:root"`},
		"sub with an escape":      {`"sub"`: `"alice\u001b[2J"`},
		"sub with a NUL":          {`"sub"`: `"alice\u0000"`},
		"sub backwards":           {`"sub"`: `"\u202eecila"`},
		"sub with nothing seen":   {`"sub"`: `"ali\u200bce"`},
		"sub with a tag":          {`"sub"`: `"alice\udb40\udc41"`},
		"sub with a filler":       {`"sub"`: `"alice\u3164"`},
		"sub with a selector":     {`"sub"`: `"alice\ufe0f"`},
		"sub with a wide space":   {`"sub"`: `"alice\u00a0"`},
		"sub with a space":        {`"sub"`: `" alice"`},
		"sub too long":            {`"sub"`: `"` + strings.Repeat("é", 129) + `"`},
		"sub half a character":    {`"sub"`: `"\ud800"`},
		"iss a list":              {`"iss"`: `[` + iss + `]`},
	} {
		_, err := a.Bearer(t.Context(), p.signed(t, nil, p.payload(change)))
		wantUnauthenticated(t, what, err, "unauthenticated")
	}
	for what, payload := range map[string]string{"two": p.payload(nil) + p.payload(nil), "a list": "[" + p.payload(nil) + "]", "nothing": "",
		"null": "null", "latin-1": strings.Replace(p.payload(nil), "alice", "al\xefce", 1)} {
		_, err := a.Bearer(t.Context(), p.signed(t, nil, payload))
		wantUnauthenticated(t, what, err, "unauthenticated")
	}
	for what, change := range map[string]map[string]string{"as it is": nil,
		"a fraction of a second": {`"iat"`: fmt.Sprint(noon.Unix()) + ".25"},
		"several audiences":      {`"aud"`: fmt.Sprintf(`["x",%q]`, audience)}, "a name": {`"sub"`: `"Zoë Müller-Ågren 山田"`},
		"others": {`"realm_access"`: `{"roles":["x"]}`, `"email_verified"`: `true`, `"n"`: `null`, `"typ"`: `"Bearer"`}} {
		if _, err := a.Bearer(t.Context(), p.signed(t, nil, p.payload(change))); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An access token must declare its type; other tokens that a provider signs for the same user and audience are
// refused.
func TestTypeOfAToken(t *testing.T) {
	p, now := newProvider(t), noon
	strict := p.access(t, &now, "RS256")
	loose := p.access(t, &now, "RS256")
	loose.issuers[0].Types = []string{"JWT", "at+jwt"}
	for typ, want := range map[any]string{"at+jwt": "both", "AT+JWT": "both", "application/at+jwt": "both", "Application/At+Jwt": "both",
		"JWT": "loose", "jwt": "loose", "application/jwt": "loose", nil: "loose", "": "", "logout+jwt": "", "secevent+jwt": "", "dpop+jwt": "",
		"id_token": "", "at+jwt ": "", "application/application/at+jwt": "", 7: ""} {
		text := p.signed(t, map[string]any{"typ": typ}, p.payload(nil))
		for name, a := range map[string]*Access{"strict": strict, "loose": loose} {
			_, err := a.Bearer(t.Context(), text)
			if ok := want == "both" || want == name; ok != (err == nil) || err != nil && !fault.Is(err, fault.Auth) {
				t.Errorf("typ %v, %s: %v", typ, name, err)
			}
		}
	}
	for what, header := range map[string]map[string]any{"crit": {"crit": []string{"exp"}}, "crit of what is known": {"crit": []string{"b64"},
		"b64": true},
		"b64": {"b64": false}} {
		_, err := strict.Bearer(t.Context(), p.signed(t, header, p.payload(nil)))
		wantUnauthenticated(t, what, err, "unauthenticated")
	}
	for what, change := range map[string]map[string]string{
		"an ID token":             {`"typ"`: `"ID"`},
		"an ID token by its hash": {`"at_hash"`: `"x"`},
		"a refresh token":         {`"typ"`: `"Refresh"`},
		"a logout token":          {`"events"`: `{"http://schemas.openid.net/event/backchannel-logout":{}}`},
	} {
		_, err := loose.Bearer(t.Context(), p.signed(t, map[string]any{"typ": "JWT"}, p.payload(change)))
		wantUnauthenticated(t, what, err, "unauthenticated")
	}
	// Names in the header are exact too.
	parts := strings.Split(p.signed(t, nil, p.payload(nil)), ".")
	for _, header := range []string{`{"ALG":"RS256","kid":"r","typ":"at+jwt"}`, `{"alg":"RS256","KID":"r","typ":"at+jwt"}`,
		`{"alg":"RS256","alg":"RS256","kid":"r","typ":"at+jwt"}`} {
		_, err := strict.Bearer(t.Context(), base64.RawURLEncoding.EncodeToString([]byte(header))+"."+parts[1]+"."+parts[2])
		wantUnauthenticated(t, header, err, "unauthenticated")
	}
}

// The words of scope have single spaces between them (RFC 6749); another space is part of a word.
func TestScopeIsWords(t *testing.T) {
	for claim, want := range map[string]bool{"submit": true, "openid submit": true, "submit openid": true, "submitted": false,
		"openid\u00a0submit": false, "openid\nsubmit": false, "openid\tsubmit x": false, "openid,submit": false, "": false} {
		if has(claim, "scope", "submit") != want {
			t.Errorf("%q: %t", claim, !want)
		}
	}
	for _, claim := range []any{[]any{[]any{"lab"}}, map[string]any{"lab": true}, true, nil, "lab\n", "LAB", []any{"lab\u200b"},
		[]any{nil, 1.0}} {
		if has(claim, "groups", "lab") {
			t.Errorf("%#v is the group lab", claim)
		}
	}
}

// FuzzClaims checks the guarantees of the claims decoder for any bytes.
func FuzzClaims(f *testing.F) {
	for _, seed := range []string{`{"iss":"https://a","sub":"b","aud":["c"],"exp":1,"iat":1.5,"nbf":0}`, `{"ISS":1}`, `{"sub":"\u202e"}`,
		`[]`, `{"aud":[1]}`,
		`{"exp":-9007199254740991,"sub":"x","iss":"y","aud":"z"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := readClaims(payload)
		if err != nil {
			return
		}
		if c.subject == "" || len(c.subject) > maxName || strings.ContainsFunc(c.subject, hidden) || c.issuer == "" || len(c.audience) == 0 {
			t.Errorf("%q is read as %+v", payload, c)
		}
		for name, read := range map[string]string{"iss": c.issuer, "sub": c.subject} {
			if c.all[name] != any(read) {
				t.Errorf("%s of %q is %q", name, payload, read)
			}
		}
		for _, at := range []time.Time{c.expires, c.notBefore, c.issued} {
			if y := at.UTC().Year(); !at.IsZero() && (y < 1970 || y > 9999) {
				t.Errorf("%q has the time %s", payload, at)
			}
		}
	})
}
