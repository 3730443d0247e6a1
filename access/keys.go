package access

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"slurmgate/cached"
	"slurmgate/fault"
)

// An issuer's keys are fetched when its first token arrives, and again when they are an hour old or a token names an unknown
// key, but at most every half minute, so that invented key ids cost the provider nothing. If the provider does not answer,
// keys are valid for a day. At most one fetch runs at a time, in the background: a caller whose key is known proceeds
// immediately, and only a caller with an unknown key waits for the fetch, a few seconds at most.
const (
	keysFresh  = time.Hour
	keysGood   = 24 * time.Hour
	keysPause  = 30 * time.Second
	keysWait   = 5 * time.Second
	maxKeys    = 64
	maxKeyBody = 256 << 10
)

type issuer struct {
	Issuer
	client *http.Client
	now    func() time.Time

	keys cached.Value[[]jose.JSONWebKey]
}

func newIssuer(i Issuer, client *http.Client, now func() time.Time) *issuer {
	if client == nil {
		client = &http.Client{}
	}
	if len(i.Types) == 0 {
		i.Types = []string{typeAccess}
	}
	own := *client
	own.Timeout = keysWait
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("redirects are not followed") }
	return &issuer{Issuer: i, client: &own, now: now}
}

// key returns the key of an id for an algorithm.
func (i *issuer) key(ctx context.Context, id, algorithm string) (jose.JSONWebKey, error) {
	key, found := i.find(i.known(false), id, algorithm)
	if found {
		return key, nil
	}
	if fetch := i.known(true); fetch.Busy != nil && !fetch.Wait(ctx, keysWait) {
		return key, i.unreachable(cmp.Or(ctx.Err(), errors.New("it has not answered for "+keysWait.String())))
	}
	known := i.known(false)
	switch key, found = i.find(known, id, algorithm); {
	case found:
		return key, nil
	case known.Err != nil:
		return key, i.unreachable(known.Err)
	}
	return key, unknownToken()
}

func (i *issuer) unreachable(err error) error {
	return fault.Wrap(fault.Transport, "issuer_unreachable", "the keys of "+i.URL+" cannot be fetched", err).
		WithNext("retry in a minute")
}

// known returns the keys known now. They are fetched if they are an hour old, or on demand.
func (i *issuer) known(demand bool) cached.State[[]jose.JSONWebKey] {
	return i.keys.Look(i.now, cached.Rule{Fresh: keysFresh, Pause: keysPause, Limit: 2 * keysWait}, demand, i.fetch)
}

// find looks up a key among the valid ones.
func (i *issuer) find(known cached.State[[]jose.JSONWebKey], id, algorithm string) (key jose.JSONWebKey, found bool) {
	k := slices.IndexFunc(known.Value, func(k jose.JSONWebKey) bool { return k.KeyID == id && fits(k, algorithm) })
	if k < 0 || i.now().Sub(known.At) >= keysGood {
		return key, false
	}
	return known.Value[k], true
}

// fetch reads the provider's configuration and its keys.
func (i *issuer) fetch(ctx context.Context) ([]jose.JSONWebKey, error) {
	var config struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := i.get(ctx, strings.TrimSuffix(i.URL, "/")+"/.well-known/openid-configuration", &config); err != nil {
		return nil, err
	}
	if config.Issuer != i.URL {
		return nil, fmt.Errorf("the provider's configuration names another issuer, %q", config.Issuer)
	}
	if msg := CheckIssuerURL(config.Keys); msg != "" {
		return nil, fmt.Errorf("the address of its keys: %s", msg)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := i.get(ctx, config.Keys, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys; the limit is %d", len(set.Keys), maxKeys)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) == nil { // keys of an unknown kind are ignored
			keys = append(keys, k)
		}
	}
	return keys, nil
}

func (i *issuer) get(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	res, err := i.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %d", url, res.StatusCode)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, res.Body, maxKeyBody))
	if err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}

// fits reports whether a key may verify signatures of the algorithm: a public key of the algorithm's kind, not meant for something else.
func fits(k jose.JSONWebKey, algorithm string) bool {
	if !k.Valid() || !k.IsPublic() || k.Use != "" && k.Use != "sig" || k.Algorithm != "" && k.Algorithm != algorithm {
		return false
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return (strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")) && key.N.BitLen() >= 2048
	case *ecdsa.PublicKey:
		return key.Curve.Params().BitSize == map[string]int{"ES256": 256, "ES384": 384, "ES512": 521}[algorithm]
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}
