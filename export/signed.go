package export

import (
	"bytes"
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

// Keys writes keys.json: the keys that a receipt names, and nothing of what may happen to them later.
func Keys(keys []receipt.Key) ([]byte, error) {
	docs := []keyDoc{}
	for _, k := range keys {
		docs = append(docs, keyDoc{k.ID, "ed25519", k.PEM()})
	}
	return document(map[string]any{"keys": docs})
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

// pems are the texts in a JSON document that are PEM blocks, in the order of its keys.
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

// receipt checks the signed receipt, and what it says against the archive. An error is one of the caller's keys.
func (c *checker) receipt(trusted []byte) error {
	var keys []receipt.Key
	var err error
	if trusted != nil {
		if keys, err = readKeys(trusted); err != nil {
			return fault.Wrap(fault.Validation, "receipt_key", "the file with the keys cannot be used", err)
		}
	}
	envelope, signed := c.documents[ReceiptFile]
	if !signed {
		c.Signature.Text = "none: the archive has no receipt, so nothing shows who made it"
		if trusted != nil {
			c.bad(ReceiptFile, "it is missing, so the keys that were given prove nothing")
		}
		return nil
	}
	if trusted == nil {
		if keys, err = readKeys(c.documents[KeysFile]); err != nil {
			c.bad(KeysFile, fault.Prose(err))
		}
	}
	v, err := receipt.VerifyEnvelope(envelope, keys)
	if err != nil {
		c.bad(ReceiptFile, fault.Prose(err))
		c.Signature.Text = "not good: " + fault.Prose(err)
		return nil
	}
	c.Signature = Signature{Signed: true, KeyIDs: v.KeyIDs, Trusted: trusted != nil}
	c.Signature.Text = "good, by key " + strings.Join(v.KeyIDs, ", ") + ", which is one of the keys that you gave"
	if trusted == nil {
		c.Signature.Text = "good, by key " + strings.Join(v.KeyIDs, ", ") + " of the archive's own keys.json. Only the gateway's administrator " +
			"can say whether that is the gateway's key: get its keys from there and give them with --keys"
	}
	if v.Statement.Predicate.Note != "" {
		c.note("%s", v.Statement.Predicate.Note)
	}
	if c.RunID != "" {
		c.agrees(v.Statement)
	}
	return nil
}

// agrees holds a statement against run.json, whose files were held against the archive.
func (c *checker) agrees(s receipt.Statement) {
	r, p := c.run, s.Predicate
	if p.RunID != r.RunID || p.Attempt != r.Attempt || !p.End.RunEnded {
		c.bad(ReceiptFile, fmt.Sprintf("it is about attempt %d of %s, and not about this run's end", p.Attempt, p.RunID))
		return
	}
	for _, x := range [][3]string{{"project", p.ProjectID, r.Project},
		{"tool", p.Tool.ID + " " + p.Tool.Version, r.ToolID + " " + r.ToolVersion},
		{"state", p.End.State, r.State}, {"reason", p.End.Reason, r.Reason}, {"executed as", p.Execution.ExecutedAs, r.ExecutedAs}} {
		if x[1] != x[2] {
			c.bad(runFile, fmt.Sprintf("%s: it has %q, but the receipt has %q", x[0], x[2], x[1]))
		}
	}
	want := map[string]string{receipt.Image: r.Image, receipt.Params: r.ParamsHash, receipt.Policy: r.PolicyHash, receipt.Plan: r.PlanHash,
		receipt.Pack: r.PackHash}
	if r.Script != nil {
		want[receipt.Script] = r.Script.SHA256
	}
	for _, a := range r.Inputs {
		want["input/"+a.Relpath] = a.SHA256
	}
	c.same("materials", p.ResolvedDependencies, want)
	want = map[string]string{}
	for _, a := range r.Outputs {
		want[receipt.OutputName(a.Role, a.Label)] = a.SHA256
	}
	if answer, ok := c.found[answerFile]; ok {
		want[receipt.Answer] = answer.sha256
	}
	if p.SubjectIs == "params" {
		want[receipt.Params] = r.ParamsHash
	}
	c.same("subjects", s.Subject, want)
	for _, b := range p.Byproducts {
		for _, l := range r.Logs {
			if b.Name == l.Role && b.Digest.SHA256 != l.SHA256 {
				c.bad(runFile, fmt.Sprintf("log %s has SHA-256 %s, but the receipt has %s", l.Role, l.SHA256, b.Digest.SHA256))
			}
		}
	}
}

// same holds what a receipt lists against the run.
func (c *checker) same(what string, listed []receipt.Resource, want map[string]string) {
	found := map[string]bool{}
	for _, l := range listed {
		hash, ours := want[l.Name]
		switch found[l.Name] = true; {
		case !ours:
			c.bad(runFile, fmt.Sprintf("the receipt has %q among its %s, and the run has no such thing", l.Name, what))
		case hash[strings.LastIndexByte(hash, ':')+1:] != l.Digest.SHA256:
			c.bad(runFile, fmt.Sprintf("%q is %s, but the receipt has %s", l.Name, hash, l.Digest.SHA256))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if want[name] != "" && !found[name] {
			c.bad(runFile, fmt.Sprintf("%q is not among the receipt's %s", name, what))
		}
	}
}
