package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"slurmgate/fault"
)

// Key is a public key that receipts may be signed with.
type Key struct {
	ID        string // [KeyID]
	Public    ed25519.PublicKey
	CreatedAt time.Time
	RetiredAt *time.Time // nil: it signs
}

// KeyID returns the id of a key: the hexadecimal SHA-256 of its SubjectPublicKeyInfo in DER, as `openssl pkey -pubin
// -outform DER | sha256sum` prints it.
func KeyID(public ed25519.PublicKey) string {
	der := append(slices.Clone(spkiPrefix), public...)
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// spkiPrefix is the DER of every ed25519 SubjectPublicKeyInfo (RFC 8410) before the 32 bytes of the key.
var spkiPrefix = []byte{0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00}

// PEM returns the public key as openssl reads it.
func (k Key) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: append(slices.Clone(spkiPrefix), k.Public...)}))
}

// ParsePEM reads one public key.
func ParsePEM(text string) (Key, error) {
	bad := func(msg string) (Key, error) {
		return Key{}, fault.New(fault.Validation, "receipt_key", msg).
			WithNext("print the keys with: slurmgate keys --json")
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "PUBLIC KEY" || len(strings.TrimSpace(string(rest))) > 0 {
		return bad("the key is not one PEM block of type PUBLIC KEY")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	public, ok := parsed.(ed25519.PublicKey)
	if err != nil || !ok {
		return bad("the key is not an ed25519 public key")
	}
	return Key{ID: KeyID(public), Public: public}, nil
}

// PAE returns DSSE's pre-authentication encoding: the bytes that are signed.
func PAE(payloadType string, body []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(body), body)
}

// Sign signs a statement.
func Sign(secret ed25519.PrivateKey, statement []byte) []byte {
	return ed25519.Sign(secret, PAE(PayloadType, statement))
}

// Envelope is a DSSE envelope as JSON. The fields are in the order of canonical JSON (RFC 8785), so that no face changes its bytes.
type Envelope struct {
	Payload     string      `json:"payload"` // base64 of the statement
	PayloadType string      `json:"payloadType"`
	Signatures  []Signature `json:"signatures"`
}

// Signature is one signature of an envelope.
type Signature struct {
	KeyID string `json:"keyid,omitempty"` // a hint, which is not signed
	Sig   string `json:"sig"`             // base64
}

// Wrap puts a signed statement into an envelope. The same parts give the same bytes.
func Wrap(statement []byte, keyID string, sig []byte) ([]byte, error) {
	return json.Marshal(Envelope{base64.StdEncoding.EncodeToString(statement), PayloadType,
		[]Signature{{keyID, base64.StdEncoding.EncodeToString(sig)}}})
}

// Verified is the proven contents of an envelope.
type Verified struct {
	Statement Statement
	Bytes     []byte // the statement as it was signed
	KeyIDs    []string
	// Exact: the envelope is byte for byte as [Wrap] writes it, so that no byte of it is free.
	Exact bool
}

// The bounds of what is read. A statement has some 300 bytes for each input and output.
const (
	maxEnvelope   = 8 << 20
	maxSignatures = 16
)

// VerifyEnvelope checks an envelope: its form, at least one signature by one of the keys, and the statement within. It is strict: one JSON
// object of exactly DSSE's fields, each once; canonical base64 of either alphabet; no signature twice. A signature by another key is
// ignored, as DSSE has it; one that names one of the keys and does not verify is an error, since then something was changed.
func VerifyEnvelope(envelope []byte, keys []Key) (v Verified, err error) {
	if v, err = open(envelope, keys); err != nil {
		return v, err
	}
	v.Statement, err = ParseStatement(v.Bytes)
	return v, err
}

// open checks an envelope and at least one of its signatures, and returns what was signed. The statement is not read.
func open(envelope []byte, keys []Key) (v Verified, err error) {
	if len(envelope) > maxEnvelope {
		return v, broken(fmt.Sprintf("the envelope has %d bytes; the limit is %d", len(envelope), maxEnvelope))
	}
	var e Envelope
	if err := json.Unmarshal(envelope, &e, json.RejectUnknownMembers(true)); err != nil {
		return v, fault.Wrap(fault.Validation, "receipt_form", "the envelope is not a DSSE envelope", err)
	}
	if e.PayloadType != PayloadType {
		return v, broken(fmt.Sprintf("the payload is of type %q; a statement is of type %s", fault.Clip(e.PayloadType), PayloadType))
	}
	if v.Bytes, err = unbase64(e.Payload); err != nil {
		return v, broken("the payload is not base64")
	}
	if v.KeyIDs, err = signers(e.Signatures, PAE(e.PayloadType, v.Bytes), keys); err != nil {
		return v, err
	}
	sig, err := unbase64(e.Signatures[0].Sig)
	if err != nil {
		return v, broken("a signature is not base64")
	}
	exact, err := Wrap(v.Bytes, v.KeyIDs[0], sig)
	v.Exact = bytes.Equal(exact, envelope)
	return v, err
}

// signers returns the keys whose signatures verify.
func signers(list []Signature, signed []byte, keys []Key) (ids []string, err error) {
	if len(list) == 0 || len(list) > maxSignatures {
		return nil, broken(fmt.Sprintf("the envelope has %d signatures; it must have 1 to %d", len(list), maxSignatures))
	}
	var seen []string
	for _, s := range list {
		sig, err := unbase64(s.Sig)
		if err != nil || len(sig) == 0 {
			return nil, broken("a signature is not base64")
		}
		if slices.Contains(seen, string(sig)) {
			return nil, broken("the envelope has the same signature twice")
		}
		seen = append(seen, string(sig))
		named := false
		for _, k := range keys {
			// The id is a hint that is not signed: without it each key is tried.
			if s.KeyID != "" && s.KeyID != k.ID {
				continue
			}
			named = named || s.KeyID != ""
			if len(k.Public) == ed25519.PublicKeySize && ed25519.Verify(k.Public, signed, sig) {
				if slices.Contains(ids, k.ID) {
					return nil, broken("two signatures are of the same key")
				}
				ids, named = append(ids, k.ID), false
				break
			}
		}
		if named {
			return nil, fault.New(fault.Validation, "receipt_signature", "the signature of key "+s.KeyID+" does not match: the receipt was changed")
		}
	}
	if len(ids) == 0 {
		return nil, fault.New(fault.Validation, "receipt_key_unknown", "no signature is of a key that was given").
			WithNext("get the gateway's public keys from its admin (slurmgate keys --json)")
	}
	return ids, nil
}

// unbase64 decodes standard or URL-safe base64, whole and in its one canonical form.
func unbase64(s string) ([]byte, error) {
	alphabet := base64.StdEncoding
	if strings.ContainsAny(s, "-_") {
		alphabet = base64.URLEncoding
	}
	if strings.ContainsAny(s, "\r\n") { // which the decoder skips
		return nil, base64.CorruptInputError(0)
	}
	return alphabet.Strict().DecodeString(s)
}

// ParseStatement reads a statement of ours and checks its form. Fields it does not know are ignored, as in-toto has it: a later version may
// add some. It does not say who signed it.
func ParseStatement(body []byte) (s Statement, err error) {
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fault.Wrap(fault.Validation, "receipt_form", "the payload is not the statement of a receipt", err)
	}
	switch {
	case s.Type != StatementType:
		return s, broken(fmt.Sprintf("the statement is of type %q; a receipt is of type %s", fault.Clip(s.Type), StatementType))
	case s.PredicateType != PredicateType && strings.HasPrefix(s.PredicateType, PredicateTypes):
		return s, fault.New(fault.Validation, UnknownPredicate, fmt.Sprintf("the receipt is of type %q, and this slurmgate knows %s alone",
			fault.Clip(s.PredicateType), PredicateType)).WithNext("use the slurmgate of the gateway that made it")
	case s.PredicateType != PredicateType:
		return s, broken(fmt.Sprintf("the predicate is of type %q; a receipt's is %s", fault.Clip(s.PredicateType), PredicateType))
	case len(s.Subject) == 0:
		return s, broken("the statement has no subject")
	case s.Predicate.RunID == "" || s.Predicate.Attempt < 1:
		return s, broken("the statement names no run and attempt")
	}
	for _, r := range slices.Concat(s.Subject, s.Predicate.ResolvedDependencies, s.Predicate.Byproducts) {
		sum, err := hex.DecodeString(r.Digest.SHA256)
		if err != nil || len(sum) != sha256.Size || strings.ToLower(r.Digest.SHA256) != r.Digest.SHA256 {
			return s, broken(fmt.Sprintf("%q has no SHA-256", fault.Clip(r.Name)))
		}
	}
	return s, nil
}

// UnknownPredicate is the code of the fault for a receipt of a version that this program does not support.
const UnknownPredicate = "receipt_predicate"

func broken(msg string) error { return fault.New(fault.Validation, "receipt_form", msg) }
