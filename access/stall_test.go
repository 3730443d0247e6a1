package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"slurmgate/cached"
	"slurmgate/fault"
	"slurmgate/gate"
)

// settle waits until no fetch is in progress.
func (i *issuer) settle() {
	if fetch := i.keys.Look(i.now, cached.Rule{Fresh: keysGood * 100}, false, i.fetch); fetch.Busy != nil {
		<-fetch.Busy
	}
}

// network answers for all issuers except the stalled one.
type network struct {
	keys    []byte
	stalled atomic.Value // host
	asked   atomic.Int64
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.asked.Add(1)
	if r.URL.Host == n.stalled.Load() {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body := n.keys
	if strings.HasSuffix(r.URL.Path, "openid-configuration") {
		body, _ = json.Marshal(map[string]string{"issuer": "https://" + r.URL.Host, "jwks_uri": "https://" + r.URL.Host + "/keys"})
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(body)), Header: http.Header{}, Request: r}, nil
}

// An issuer that does not answer delays neither tokens of another issuer nor its own tokens whose key is known. A
// token with an unknown key waits for a few seconds, and many such tokens cause one request to the issuer.
func TestStalledIssuer(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		n.stalled.Store("none")
		set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "r"}}}
		if n.keys, err = json.Marshal(set); err != nil {
			t.Fatal(err)
		}
		grants := []ClaimGrant{{"sub", "alice", Grant{Grant: gate.Grant{Capabilities: []string{gate.CapRead}}}}}
		a := New(Config{Client: &http.Client{Transport: n}, Issuers: []Issuer{{URL: "https://slow", Audience: audience,
			Algorithms: []string{"RS256"}, Grants: grants},
			{URL: "https://good", Audience: audience, Algorithms: []string{"RS256"}, Grants: grants}}})
		token := func(issuer, kid string) string {
			signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: kid}},
				(&jose.SignerOptions{}).WithType("at+jwt"))
			must(t, err)
			s, err := jwt.Signed(signer).Claims(map[string]any{"iss": issuer, "aud": audience, "sub": "alice", "iat": time.Now().
				Unix(), "exp": time.Now().Add(time.Hour).Unix()}).Serialize()
			must(t, err)
			return s
		}
		for _, issuer := range []string{"https://slow", "https://good"} {
			if _, err := a.Bearer(t.Context(), token(issuer, "r")); err != nil {
				t.Fatal(issuer, err)
			}
		}
		n.stalled.Store("slow")
		time.Sleep(keysFresh) // both issuers' keys are due for a fetch
		before := n.asked.Load()
		stuck := make(chan error, 20)
		for range cap(stuck) {
			go func() { _, err := a.Bearer(t.Context(), token("https://slow", "unknown")); stuck <- err }()
		}
		gone, give := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { _, err := a.Bearer(gone, token("https://slow", "unknown")); left <- err }()
		synctest.Wait()
		start := time.Now()
		for _, issuer := range []string{"https://slow", "https://good"} {
			if _, err := a.Bearer(t.Context(), token(issuer, "r")); err != nil {
				t.Error(issuer, err)
			}
		}
		give()
		if err := <-left; !fault.Is(err, fault.Transport) || time.Since(start) != 0 {
			t.Error(err, time.Since(start), "known keys, or a caller that gave up, waited")
		}
		for range cap(stuck) {
			if err := <-stuck; fault.CodeOf(err) != "issuer_unreachable" {
				t.Error(err)
			}
		}
		if d := time.Since(start); d > keysWait || n.asked.Load()-before > 3 { // one request to the slow issuer, two to the good one
			t.Error(d, n.asked.Load()-before)
		}
		a.issuers[0].settle()
	})
}
