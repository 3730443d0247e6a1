package receipt

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// openssl runs openssl in dir.
func openssl(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "openssl", args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

// A second implementation verifies our signatures, from the envelope and the PEM alone: openssl, over the bytes that
// DSSE defines, put together without our PAE. It refuses them with one byte changed, and computes the same key id.
//
// proves EXP-02
func TestOpenSSLVerifiesReceipts(t *testing.T) {
	k, secret := key('k')
	var e struct {
		Payload, PayloadType string
		Signatures           []struct{ Sig string }
	}
	must(t, json.Unmarshal([]byte(envelope(t, statement(t), k, secret)), &e))
	body, err := base64.StdEncoding.DecodeString(e.Payload)
	must(t, err)
	sig, err := base64.StdEncoding.DecodeString(e.Signatures[0].Sig)
	must(t, err)
	dir := t.TempDir()
	signed := "DSSEv1 " + strconv.Itoa(len(e.PayloadType)) + " " + e.PayloadType + " " + strconv.Itoa(len(body)) + " " + string(body)
	for name, data := range map[string]string{"key.pem": k.PEM(), "signed": signed, "sig": string(sig),
		"changed": strings.Replace(signed, "succeeded", "cancelled", 1)} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	verify := []string{"pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-sigfile", "sig", "-in"}
	if out, err := openssl(t, dir, append(verify, "signed")...); err != nil || !strings.Contains(out, "Verified Successfully") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := openssl(t, dir, append(verify, "changed")...); err == nil {
		t.Error("openssl accepts a changed receipt:", out)
	}
	if out, err := openssl(t, dir, "pkey", "-pubin", "-in", "key.pem", "-outform", "DER", "-out", "key.der"); err != nil {
		t.Fatal(err, out)
	}
	out, err := openssl(t, dir, "dgst", "-sha256", "-r", "key.der")
	if err != nil || !strings.HasPrefix(out, k.ID+" ") {
		t.Errorf("%v %s, want %s", err, out, k.ID)
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
