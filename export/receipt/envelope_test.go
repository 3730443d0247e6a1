package receipt

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
)

func key(seed byte) (Key, ed25519.PrivateKey) {
	secret := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	public := secret.Public().(ed25519.PublicKey)
	return Key{ID: KeyID(public), Public: public}, secret
}

var at = time.Date(2026, 11, 23, 5, 0, 0, 0, time.UTC)

func statement(t testing.TB, outputs ...Resource) []byte {
	t.Helper()
	b, err := Encode(outputs, Predicate{RunID: "run_4892C8PXMRCH3ZCVXQYKTVJ9DG", Attempt: 1,
		End: End{State: "succeeded", RunEnded: true}, Execution: Execution{CreatedAt: Time(&at), RecordedAt: Time(&at)},
		ResolvedDependencies: []Resource{Hashed(Params, "sha256:"+strings.Repeat("a", 64)), Hashed(Pack, "")}})
	must(t, err)
	return b
}

func envelope(t testing.TB, body []byte, k Key, secret ed25519.PrivateKey) string {
	t.Helper()
	e, err := Wrap(body, k.ID, Sign(secret, body))
	must(t, err)
	return string(e)
}

// The vectors that the authors of DSSE publish for their ed25519 keys: what is signed, and which signatures are good.
func TestDSSEVectors(t *testing.T) {
	a := Key{ID: "A", Public: unhex(t, "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")}
	b := Key{ID: "B", Public: unhex(t, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")}
	const byA = "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="
	const byB = "c1+67/aT0yqEpwx8PsVY3MLHsj9D0CZ014/Fv/QlG59P+9CobUZ7xECJ/V3USG0Ob9CiE5LjReEZUzNF2l7eBw=="
	body := []byte(`{"_type":"https://in-toto.io/Statement/v1"}`)
	if got := string(PAE(PayloadType, body)); got != "DSSEv1 28 application/vnd.in-toto+json 43 "+string(body) {
		t.Error(got)
	}
	if got := string(PAE("application/vnd.exämple+json", nil)); got != "DSSEv1 29 application/vnd.exämple+json 0 " {
		t.Error(got)
	}
	for name, c := range map[string]struct {
		signatures []Signature
		want       string
	}{
		"one":             {[]Signature{{"A", byA}}, "A"},
		"two":             {[]Signature{{"A", byA}, {"B", byB}}, "A B"},
		"two without ids": {[]Signature{{"", byA}, {"", byB}}, "A B"},
		"of a stranger":   {[]Signature{{"C", byB}, {"A", byA}}, "A"},
		"url-safe":        {[]Signature{{"A", strings.NewReplacer("+", "-", "/", "_").Replace(byA)}}, "A"},
	} {
		ids, err := signers(c.signatures, PAE(PayloadType, body), []Key{a, b})
		if err != nil || strings.Join(ids, " ") != c.want {
			t.Error(name, ids, err)
		}
	}
	for name, list := range map[string][]Signature{
		"the same twice":         {{"A", byA}, {"A", byA}},
		"one key twice":          {{"A", byA}, {"", strings.NewReplacer("+", "-", "/", "_").Replace(byA)}},
		"of another key":         {{"A", byB}},
		"only strangers":         {{"C", byA}},
		"none":                   nil,
		"not base64":             {{"A", byA + "="}},
		"base64 over two lines":  {{"A", byA[:10] + "\n" + byA[10:]}},
		"mixed alphabets":        {{"A", strings.Replace(byA, "+", "-", 1)}},
		"empty":                  {{"A", ""}},
		"good, then another bad": {{"A", byA}, {"B", byA[:20] + "AAAA" + byA[24:]}},
	} {
		if ids, err := signers(list, PAE(PayloadType, body), []Key{a, b}); err == nil {
			t.Error(name, ids)
		}
	}
	if _, err := signers([]Signature{{"A", byA}}, PAE("application/vnd.example.other+json", body), []Key{a}); err == nil {
		t.Error("the type of the payload is not signed")
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	must(t, err)
	return b
}

// What is not exactly an envelope of ours is refused, with the reason.
func TestStrictEnvelopes(t *testing.T) {
	k, secret := key('k')
	body := statement(t)
	good := envelope(t, body, k, secret)
	v, err := VerifyEnvelope([]byte(good), []Key{k})
	if err != nil || v.Statement.Predicate.SubjectIs != "params" || string(v.Bytes) != string(body) {
		t.Fatalf("VerifyEnvelope = a receipt of %q with other bytes or %v; want the signed statement",
			v.Statement.Predicate.SubjectIs, err)
	}
	payload := base64.StdEncoding.EncodeToString(body)
	signed := func(body string) string { return envelope(t, []byte(body), k, secret) }
	for name, c := range map[string]struct{ envelope, code string }{
		"a key twice":            {strings.Replace(good, "{", `{"payloadType":"`+PayloadType+`",`, 1), "receipt_form"},
		"another case":           {strings.Replace(good, `"payload":`, `"Payload":`, 1), "receipt_form"},
		"an unknown field":       {strings.Replace(good, "{", `{"x":1,`, 1), "receipt_form"},
		"trailing data":          {good + "{}", "receipt_form"},
		"two documents":          {good + good, "receipt_form"},
		"an array":               {"[" + good + "]", "receipt_form"},
		"nothing":                {"", "receipt_form"},
		"null":                   {"null", "receipt_form"},
		"another type":           {strings.Replace(good, PayloadType, "application/json", 1), "receipt_form"},
		"a type in another case": {strings.Replace(good, PayloadType, "application/vnd.in-toto+JSON", 1), "receipt_form"},
		"unpadded payload":       {strings.Replace(good, payload, strings.TrimRight(payload+"=", "="), 1) + " x", "receipt_form"},
		"payload with a line":    {strings.Replace(good, payload, payload[:8]+`\n`+payload[8:], 1), "receipt_form"},
		"payload changed": {strings.Replace(good, payload, base64.StdEncoding.EncodeToString([]byte(strings.Replace(string(body),
			"succeeded", "cancelled", 1))), 1), "receipt_signature"},
		"a statement of another type": {signed(strings.Replace(string(body), "Statement/v1", "Statement/v0.1", 1)), "receipt_form"},
		"another predicate": {signed(strings.Replace(string(body), PredicateType, "https://slsa.dev/provenance/v1", 1)),
			"receipt_form"},
		"no subject": {signed(`{"_type":"` + StatementType + `","predicateType":"` + PredicateType + `","subject":[]}`), "receipt_form"},
		"no run":     {signed(strings.Replace(string(body), "run_4892C8PXMRCH3ZCVXQYKTVJ9DG", "", 1)), "receipt_form"},
		"a digest in capitals": {signed(strings.ReplaceAll(string(body), strings.Repeat("a", 64), strings.Repeat("A", 64))),
			"receipt_form"},
		"a field twice": {signed(strings.Replace(string(body), `"attempt":1`, `"attempt":1,"attempt":1`, 1)), "receipt_form"},
		"too long":      {good + strings.Repeat(" ", maxEnvelope), "receipt_form"},
	} {
		_, err := VerifyEnvelope([]byte(c.envelope), []Key{k})
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := VerifyEnvelope([]byte(good), nil); fault.CodeOf(err) != "receipt_key_unknown" {
		t.Error(err)
	}
	// A field of a later version is ignored, as in-toto has it.
	later := signed(strings.Replace(string(body), `"attempt":1`, `"attempt":1,"later":{}`, 1))
	if _, err := VerifyEnvelope([]byte(later), []Key{k}); err != nil {
		t.Error(err)
	}
}

// Keys travel as PEM.
func TestKeyPEM(t *testing.T) {
	k, _ := key('k')
	back, err := ParsePEM(k.PEM())
	if err != nil || back.ID != k.ID || !back.Public.Equal(k.Public) {
		t.Errorf("ParsePEM of a key's PEM = key %s, %v; want %s", back.ID, err, k.ID)
	}
	for _, text := range []string{"", "x", k.PEM() + k.PEM(), strings.Replace(k.PEM(), "MCow", "MCox", 1),
		strings.ReplaceAll(k.PEM(), "PUBLIC", "PRIVATE")} {
		if _, err := ParsePEM(text); fault.CodeOf(err) != "receipt_key" {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzVerifyEnvelope(f *testing.F) {
	k, secret := key('k')
	f.Add([]byte(envelope(f, statement(f), k, secret)))
	f.Add([]byte(`{"payloadType":"` + PayloadType + `","payload":"e30=","signatures":[{"sig":"AAAA"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := VerifyEnvelope(data, []Key{k})
		if err != nil {
			if fault.KindOf(err) != fault.Validation {
				t.Fatal(err)
			}
			return
		}
		var e Envelope
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatal("encoding/json reads it differently:", err)
		}
		body, err := base64.StdEncoding.DecodeString(e.Payload)
		if err != nil {
			body, err = base64.URLEncoding.DecodeString(e.Payload)
		}
		if err != nil || string(body) != string(v.Bytes) || e.PayloadType != PayloadType {
			t.Fatal("another reader gets another payload", err)
		}
		if string(v.Bytes) != string(statement(t)) {
			t.Fatal("VerifyEnvelope accepted a statement that was not signed")
		}
	})
}
