package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// provider is an OpenID provider on this host.
type provider struct {
	*httptest.Server
	asked   atomic.Int64 // requests for keys
	down    atomic.Bool
	keys    atomic.Pointer[[]byte]
	rsa     *rsa.PrivateKey
	ec      *ecdsa.PrivateKey
	issuer  string // the issuer in its configuration; its own URL when empty
	keysURI string
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	var err error
	if p.rsa, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if p.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	p.publish(t, jose.JSONWebKey{Key: &p.rsa.PublicKey, KeyID: "r", Use: "sig"}, jose.JSONWebKey{Key: &p.ec.PublicKey, KeyID: "e",
		Algorithm: "ES256"})
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		iss, uri := p.issuer, p.keysURI
		if iss == "" {
			iss = p.URL
		}
		if uri == "" {
			uri = p.URL + "/keys"
		}
		json.NewEncoder(w).Encode(map[string]string{"issuer": iss, "jwks_uri": uri})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.asked.Add(1)
		if p.down.Load() {
			http.Error(w, "not now", 500)
			return
		}
		w.Write(*p.keys.Load())
	})
	mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, p.URL+"/keys", http.StatusFound) })
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) publish(t *testing.T, keys ...jose.JSONWebKey) {
	t.Helper()
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: keys})
	must(t, err)
	p.keys.Store(&raw)
}

// token signs claims.
func (p *provider) token(t *testing.T, alg jose.SignatureAlgorithm, kid string, key any, claims map[string]any) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, (&jose.SignerOptions{}).
		WithType("at+jwt"))
	must(t, err)
	text, err := jwt.Signed(s).Claims(claims).Serialize()
	must(t, err)
	return text
}

const audience = "https://slurmgate.example.org"

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func (p *provider) access(t *testing.T, now *time.Time, algorithms ...string) *Access {
	t.Helper()
	lab, err := NewGrant([]string{gate.CapGateway, gate.CapRead}, []string{"demo"}, map[string]string{"demo": "research"})
	must(t, err)
	submit, err := NewGrant([]string{gate.CapSlurm}, []string{"extra"}, nil)
	must(t, err)
	own, err := NewGrant([]string{gate.CapImport}, []string{"own"}, nil)
	must(t, err)
	return New(Config{Now: func() time.Time { return *now }, Issuers: []Issuer{{URL: p.URL, Audience: audience, Algorithms: algorithms,
		Grants: []ClaimGrant{{"groups", "lab", lab}, {"scope", "submit", submit},
			{"sub", "alice", own}}}}})
}

func (p *provider) claims(change ...func(map[string]any)) map[string]any {
	c := map[string]any{"iss": p.URL, "aud": audience, "sub": "alice", "iat": noon.Unix(), "exp": noon.Add(time.Hour).
		Unix(), "groups": []string{"other", "lab"}, "scope": "openid submit"}
	for _, f := range change {
		f(c)
	}
	return c
}

func set(name string, v any) func(map[string]any) { return func(c map[string]any) { c[name] = v } }

func TestAccessToken(t *testing.T) {
	p, now := newProvider(t), noon
	a := p.access(t, &now, "RS256", "ES256")
	demo, extra := plan.ProjectID("demo"), plan.ProjectID("extra")
	for alg, key := range map[jose.SignatureAlgorithm]any{jose.RS256: p.rsa, jose.ES256: p.ec} {
		kid := map[jose.SignatureAlgorithm]string{jose.RS256: "r", jose.ES256: "e"}[alg]
		got, err := a.Bearer(t.Context(), p.token(t, alg, kid, key, p.claims()))
		if err != nil || got.Name != "oidc:"+p.URL+"#alice" || got.Method != gate.ByOIDC || !got.Can(gate.CapRead, demo) ||
			!got.Can(gate.CapSlurm, extra) ||
			!got.Can(gate.CapImport, plan.ProjectID("own")) || got.CanSomewhere(gate.CapAdmin) ||
			!got.Sees(demo) || !got.Sees(extra) || got.Sees(plan.ProjectID("x")) ||
			got.Account(demo) != "research" {
			t.Errorf("%s: %+v %v", alg, got, err)
		}
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
	// The caller is known, but has no rights: the gate denies the call.
	got, err := a.Bearer(t.Context(), p.token(t, jose.RS256, "r", p.rsa, p.claims(set("sub", "bob"), set("groups", "none"),
		set("scope", "submitted"))))
	if err != nil || len(got.Rights) != 0 {
		t.Error(got, err)
	}
	if got, err := a.Bearer(t.Context(), p.token(t, jose.RS256, "r", p.rsa, p.claims(set("aud", []string{"x", audience}),
		set("groups", "lab")))); err != nil || !got.Can(gate.CapRead, demo) {
		t.Error(got, err)
	}
	if u := a.Issuers(); len(u) != 1 || u[0] != p.URL {
		t.Error(u)
	}
}

// Two grants add up but do not multiply: read on one project and submit on another are not submit on both.
func TestGrantsDoNotMultiply(t *testing.T) {
	p, now := newProvider(t), noon
	got, err := p.access(t, &now, "RS256").Bearer(t.Context(), p.token(t, jose.RS256, "r", p.rsa, p.claims()))
	must(t, err)
	for _, project := range []string{"demo", "extra", "own"} {
		for _, capability := range gate.Capabilities() {
			want := slices.Contains(map[string][]string{"demo": {gate.CapGateway, gate.CapRead}, "extra": {gate.CapSlurm},
				"own": {gate.CapImport}}[project], capability)
			if got.Can(capability, plan.ProjectID(project)) != want || got.Can(capability, gate.All) {
				t.Errorf("%s on %s: %t", capability, project, !want)
			}
		}
	}
}

func TestBadAccessTokens(t *testing.T) {
	p, other, now := newProvider(t), newProvider(t), noon
	a := p.access(t, &now, "RS256", "ES256")
	rs := func(change ...func(map[string]any)) string {
		return p.token(t, jose.RS256, "r", p.rsa, p.claims(change...))
	}
	without := func(name string) func(map[string]any) { return func(c map[string]any) { delete(c, name) } }
	secret := []byte(strings.Repeat("s", 64))
	none := func() string {
		enc := base64.RawURLEncoding.EncodeToString
		body, _ := json.Marshal(p.claims())
		return enc([]byte(`{"alg":"none","typ":"at+jwt","kid":"r"}`)) + "." + enc(body) + "."
	}
	good := rs()
	parts := strings.Split(good, ".")
	// The public key used as a shared secret: algorithm confusion.
	confused := p.token(t, jose.HS256, "r", secret, p.claims())
	for what, c := range map[string]struct{ text, code string }{
		"not a token": {"abc", "unauthenticated"}, "empty": {"", "unauthenticated"}, "none": {none(), "unauthenticated"},
		"shared secret":         {confused, "unauthenticated"},
		"algorithm not allowed": {p.token(t, jose.PS256, "r", p.rsa, p.claims()), "unauthenticated"},
		"wrong audience":        {rs(set("aud", "https://other.example.org")), "unauthenticated"}, "no audience": {rs(without("aud")),
			"unauthenticated"},
		"expired": {rs(set("exp", noon.Add(-time.Minute).Unix())), "token_expired"}, "no expiry": {rs(without("exp")), "unauthenticated"},
		"lives too long":  {rs(set("exp", noon.Add(48*time.Hour).Unix())), "unauthenticated"},
		"not yet":         {rs(set("nbf", noon.Add(time.Hour).Unix())), "unauthenticated"},
		"from the future": {rs(set("iat", noon.Add(time.Hour).Unix())), "unauthenticated"}, "other issuer": {rs(set("iss", other.URL)),
			"unauthenticated"},
		"issuer with a slash": {rs(set("iss", p.URL+"/")), "unauthenticated"}, "no subject": {rs(without("sub")), "unauthenticated"},
		"long subject": {rs(set("sub", strings.Repeat("s", 257))), "unauthenticated"},
		"other's key":  {p.token(t, jose.RS256, "r", other.rsa, p.claims()), "unauthenticated"}, "key of another kind": {p.token(t, jose.RS256,
			"e", p.rsa, p.claims()), "unauthenticated"}, "no key id": {p.token(t, jose.RS256, "", p.rsa, p.claims()), "unauthenticated"},
		"changed": {parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"iss":%q,"aud":%q,"sub":"root","exp":%d}`, p.URL,
			audience, noon.Add(time.Hour).Unix()))) + "." + parts[2], "unauthenticated"},
		"huge": {good + strings.Repeat("A", maxTokenBytes), "unauthenticated"}, "two": {good + " " + good, "unauthenticated"},
		"exp a text": {rs(set("exp", "tomorrow")), "unauthenticated"},
	} {
		_, err := a.Bearer(t.Context(), c.text)
		wantUnauthenticated(t, what, err, c.code)
	}
	if _, err := a.Bearer(t.Context(), good); err != nil {
		t.Error(err)
	}
	// An ID token for the same user has another audience and is refused; without a configured issuer all tokens are.
	_, err := New(Config{}).Bearer(t.Context(), good)
	wantUnauthenticated(t, "no issuers", err, "unauthenticated")
}

// Keys are fetched rarely, whatever callers send, and a change of keys is noticed.
func TestKeysOfAnIssuer(t *testing.T) {
	p, now := newProvider(t), noon
	a := p.access(t, &now, "RS256")
	rs := func(kid string) string {
		return p.token(t, jose.RS256, kid, p.rsa, p.claims(set("exp", now.Add(time.Hour).Unix()), set("iat", now.Unix())))
	}
	for i := range 50 {
		_, err := a.Bearer(t.Context(), rs(fmt.Sprint("made up ", i)))
		wantUnauthenticated(t, "a made-up key", err, "unauthenticated")
	}
	if n := p.asked.Load(); n != 1 {
		t.Errorf("fetched %d times", n)
	}
	p.publish(t, jose.JSONWebKey{Key: &p.rsa.PublicKey, KeyID: "new"})
	now = now.Add(keysPause)
	if _, err := a.Bearer(t.Context(), rs("new")); err != nil || p.asked.Load() != 2 {
		t.Error(err, p.asked.Load())
	}
	// The provider is down: known keys are valid for a day.
	p.down.Store(true)
	now = now.Add(keysFresh)
	if _, err := a.Bearer(t.Context(), rs("new")); err != nil {
		t.Error(err)
	}
	if a.issuers[0].settle(); p.asked.Load() != 3 {
		t.Error(p.asked.Load())
	}
	now = now.Add(keysGood)
	if _, err := a.Bearer(t.Context(), rs("new")); !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
	p.down.Store(false)
	now = now.Add(keysPause)
	if _, err := a.Bearer(t.Context(), rs("new")); err != nil {
		t.Error(err)
	}
}

func TestBadProviders(t *testing.T) {
	for what, change := range map[string]func(*testing.T, *provider){
		"says it is another":     func(_ *testing.T, p *provider) { p.issuer = "https://login.example.org" },
		"keys over plain http":   func(_ *testing.T, p *provider) { p.keysURI = "http://example.org/keys" },
		"keys behind a redirect": func(_ *testing.T, p *provider) { p.keysURI = p.URL + "/elsewhere" },
		"too many keys": func(t *testing.T, p *provider) {
			var many []jose.JSONWebKey
			for i := range maxKeys + 1 {
				many = append(many, jose.JSONWebKey{Key: &p.ec.PublicKey, KeyID: fmt.Sprint(i)})
			}
			p.publish(t, many...)
		},
		"a flood":   func(_ *testing.T, p *provider) { b := []byte(strings.Repeat(" ", maxKeyBody+1)); p.keys.Store(&b) },
		"not JSON":  func(_ *testing.T, p *provider) { b := []byte("<html>"); p.keys.Store(&b) },
		"is not up": func(_ *testing.T, p *provider) { p.Close() },
	} {
		p, now := newProvider(t), noon
		a := p.access(t, &now, "RS256")
		change(t, p)
		if _, err := a.Bearer(t.Context(), p.token(t, jose.RS256, "r", p.rsa, p.claims())); !fault.Is(err, fault.Transport) ||
			fault.CodeOf(err) != "issuer_unreachable" {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A short key, a private key and a secret among its keys verify nothing.
	p, now := newProvider(t), noon
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err == nil { // newer crypto/rsa refuses to make one at all
		p.publish(t, jose.JSONWebKey{Key: &weak.PublicKey, KeyID: "r"})
		_, err = p.access(t, &now, "RS256").Bearer(t.Context(), p.token(t, jose.RS256, "r", p.rsa, p.claims()))
		wantUnauthenticated(t, "weak", err, "unauthenticated")
	}
	p.publish(t, jose.JSONWebKey{Key: p.rsa, KeyID: "r"}, jose.JSONWebKey{Key: []byte("secret"), KeyID: "s"})
	_, err = p.access(t, &now, "RS256").Bearer(t.Context(), p.token(t, jose.RS256, "r", p.rsa, p.claims()))
	wantUnauthenticated(t, "private", err, "unauthenticated")
}

func TestIssuerURL(t *testing.T) {
	for s, ok := range map[string]bool{"https://login.example.org": true, "https://login.example.org/realms/x": true,
		"http://127.0.0.1:8080": true, "http://localhost/x": true, "http://[::1]:80": true,
		"http://login.example.org": false, "http://127.0.0.1.example.org": false, "https://u:p@example.org": false,
		"https://example.org?x=1": false, "https://example.org#x": false, "ftp://example.org": false, "": false, "example.org": false} {
		if got := CheckIssuerURL(s) == ""; got != ok {
			t.Errorf("%s: %v", s, got)
		}
	}
}

func FuzzBearer(f *testing.F) {
	f.Add("sgt_AAAAAAAAAAAAAAAA_" + strings.Repeat("A", 52))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	now := noon
	a := New(Config{Tokens: shelf{}, Now: func() time.Time { return now }, Issuers: []Issuer{{URL: "http://127.0.0.1:1", Audience: audience,
		Algorithms: Algorithms()}}})
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := a.Bearer(t.Context(), s); err == nil {
			t.Errorf("%q is %+v", s, p)
		}
	})
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
