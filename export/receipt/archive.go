package receipt

import (
	"bytes"
	"crypto/ed25519"
	"fmt"

	"github.com/go-json-experiment/json"

	"slurmgate/fault"
)

// Signer signs with the key that a gateway signs with now.
type Signer struct {
	GatewayID string
	Key       Key
	secret    ed25519.PrivateKey
}

// NewSigner returns the signer of a gateway's secret key.
func NewSigner(gatewayID string, secret ed25519.PrivateKey) Signer {
	public := ed25519.PublicKey(bytes.Clone(secret[len(secret)-ed25519.PublicKeySize:]))
	return Signer{gatewayID, Key{ID: KeyID(public), Public: public}, secret}
}

// Sign signs a statement.
func (s Signer) Sign(statement []byte) []byte { return Sign(s.secret, statement) }

// Archive identifies an archive and its form. It is the predicate of a statement whose subject is the archive's list
// of files, which has the SHA-256 of every other file.
type Archive struct {
	Format  int     `json:"format"`
	RunID   string  `json:"runId,omitempty"`
	BatchID string  `json:"batchId,omitempty"` // of the archive of a batch, which is of no one run
	Gateway Gateway `json:"gateway"`
}

// archiveStatement is what is signed of an archive.
type archiveStatement struct {
	Type          string     `json:"_type"`         // [StatementType]
	Subject       []Resource `json:"subject"`       // MANIFEST
	PredicateType string     `json:"predicateType"` // [ArchiveType]
	Predicate     Archive    `json:"predicate"`
}

// SignArchive returns the envelope of the statement about an archive whose list of files has that name and SHA-256 (64 hex digits). Its
// length does not depend on the checksum.
func (s Signer) SignArchive(a Archive, list, sha256 string) ([]byte, error) {
	a.Gateway.ID = s.GatewayID
	body, err := json.Marshal(archiveStatement{StatementType, []Resource{Hashed(list, sha256)}, ArchiveType, a})
	if err != nil {
		return nil, err
	}
	return Wrap(body, s.Key.ID, s.Sign(body))
}

// VerifyArchive checks the envelope of the statement about an archive, and returns its contents and the SHA-256 of
// the list of files. The envelope must be byte for byte what [Signer.SignArchive] writes: nothing else proves its
// bytes.
func VerifyArchive(envelope []byte, list string, keys []Key) (a Archive, sha256, keyID string, err error) {
	v, err := open(envelope, keys)
	if err != nil {
		return a, "", "", err
	}
	var s archiveStatement
	if err := json.Unmarshal(v.Bytes, &s); err != nil {
		return a, "", "", fault.Wrap(fault.Validation, "receipt_form", "the payload is not the statement about an archive", err)
	}
	switch {
	case s.Type != StatementType || s.PredicateType != ArchiveType:
		err = broken(fmt.Sprintf("the payload is a %q about a %q; that about an archive is a %s about a %s", fault.Clip(s.Type),
			fault.Clip(s.PredicateType), StatementType, ArchiveType))
	case len(s.Subject) != 1 || s.Subject[0].Name != list:
		err = broken("the statement is not about " + list)
	case !v.Exact:
		err = broken("the envelope is not written as slurmgate writes it")
	}
	if err != nil {
		return a, "", "", err
	}
	return s.Predicate, s.Subject[0].Digest.SHA256, v.KeyIDs[0], nil
}
