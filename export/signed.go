package export

import (
	"bytes"
	"cmp"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/plan"
)

// keyDoc is a public key in keys.json.
type keyDoc struct {
	KeyID     string `json:"key_id"`
	Algorithm string `json:"algorithm"`
	PEM       string `json:"public_key"` // PEM, as slurmgate keys prints it
}

// keysDoc returns keys.json: the keys that signed, each once, without their later state.
func keysDoc(keys ...receipt.Key) map[string]any {
	docs := []keyDoc{}
	for _, k := range keys {
		if d := (keyDoc{k.ID, "ed25519", k.PEM()}); k.ID != "" && !slices.Contains(docs, d) {
			docs = append(docs, d)
		}
	}
	return map[string]any{"keys": docs}
}

// readKeys reads public keys: a file of PEM blocks, or JSON that has them as texts, wherever it has them.
func readKeys(data []byte) (keys []receipt.Key, err error) {
	text := data
	if t := bytes.TrimSpace(data); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		doc, err := plan.Read(data)
		if err != nil {
			return nil, err
		}
		text = []byte(strings.Join(pems(doc.Value), "\n"))
	}
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		text = rest
		k, err := receipt.ParsePEM(string(pem.EncodeToMemory(block)))
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, fault.New(fault.Validation, "receipt_key", "it holds no public key in PEM form")
	}
	return keys, nil
}

// pems returns the texts in a JSON document that are PEM blocks, in the order of its keys.
func pems(v any) (out []string) {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, "-----BEGIN ") {
			out = append(out, v)
		}
	case []any:
		for _, x := range v {
			out = append(out, pems(x)...)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out = append(out, pems(v[k])...)
		}
	}
	return out
}

// readKeys returns the keys that signatures are checked with: those that the caller trusts, or else the archive's
// own. An error is about one of the caller's keys.
func (c *checker) readKeys() (keys []receipt.Key, err error) {
	if c.keys != nil {
		if keys, err = readKeys(c.keys); err != nil {
			return nil, fault.Wrap(fault.Validation, "receipt_key", "the file with the keys cannot be used", err)
		}
		return keys, nil
	}
	if data, ok := c.documents[KeysFile]; ok {
		if keys, err = readKeys(data); err != nil {
			c.bad(KeysFile, fault.Prose(err))
		}
	}
	return keys, nil
}

// signature checks MANIFEST against its signature, which must be of want.
func (c *checker) signature(keys []receipt.Key, want receipt.Archive) {
	envelope, signed := c.documents[signatureFile]
	switch {
	case !signed && c.keys != nil:
		c.bad(signatureFile, "it is missing, so the keys that were given prove nothing")
	case !signed:
		c.cannotJudge(signatureFile, "it is missing: nothing shows that the gateway wrote these files")
	}
	if !signed {
		c.Signature.Text = "none: the archive has no " + signatureFile
		return
	}
	got, sum, key, err := receipt.VerifyArchive(envelope, manifestFile, keys)
	if err != nil {
		c.bad(signatureFile, fault.Prose(err))
		c.Signature.Text = "not good: " + fault.Prose(err)
		return
	}
	want.Gateway = got.Gateway
	if found := c.found[manifestFile]; found.sha256 != sum {
		c.bad(manifestFile, fmt.Sprintf("its SHA-256 is %s, but the gateway signed %s: the archive was changed, and the list with it",
			found.sha256, sum))
	} else if got != want {
		c.bad(signatureFile, fmt.Sprintf("it is the signature of format %d of %s, and this is format %d of %s", got.Format,
			cmp.Or(got.RunID, got.BatchID), want.Format, cmp.Or(want.RunID, want.BatchID)))
	}
	c.Signature = Signature{Signed: true, KeyIDs: []string{key}, Trusted: c.keys != nil}
	c.Signature.Text = "good, by key " + key + ", which is one of the keys that you gave"
	if c.keys == nil {
		c.Signature.Text = "good, by key " + key + " of the archive's own keys.json. Only the gateway's administrator can say whether " +
			"that is the gateway's key: get its keys from there and give them with --keys"
	}
}

// receipt checks the receipt of the run's end, and compares it with the archive.
func (c *checker) receipt(keys []receipt.Key) {
	envelope, signed := c.documents[ReceiptFile]
	if !signed {
		if c.RunID != "" && !c.gone(ReceiptFile) {
			c.bad(ReceiptFile, "it is missing")
		}
		return
	}
	v, err := receipt.VerifyEnvelope(envelope, keys)
	switch {
	case fault.CodeOf(err) == receipt.UnknownPredicate:
		c.cannotJudge(ReceiptFile, fault.Prose(err))
		return
	case err != nil:
		c.bad(ReceiptFile, fault.Prose(err))
		c.Signature.Signed, c.Signature.Text = false, "not good: "+ReceiptFile+": "+fault.Prose(err)
		return
	}
	if !v.Exact {
		c.bad(ReceiptFile, "it is not written as slurmgate writes it")
	}
	for _, k := range v.KeyIDs {
		if !slices.Contains(c.Signature.KeyIDs, k) {
			c.Signature.KeyIDs = append(c.Signature.KeyIDs, k)
			c.Signature.Text += "; the receipt's is by key " + k
		}
	}
	if v.Statement.Predicate.Note != "" {
		c.note("%s", v.Statement.Predicate.Note)
	}
	if c.RunID != "" {
		c.agrees(v.Statement)
	}
}
