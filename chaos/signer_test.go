package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// A certificate that is made to end soon is the signer's in everything else, and sshd trusts it as before.
func TestShortenedCertificate(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "authority")
	must(t, err)
	file := filepath.Join(t.TempDir(), "ca")
	must(t, os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	key, err := ssh.NewPublicKey(public)
	must(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	must(t, err)
	cert := &ssh.Certificate{Key: key, CertType: ssh.UserCert, KeyId: "k", ValidPrincipals: []string{"chaosa0"},
		ValidBefore: uint64(time.Now().Add(time.Hour).Unix())}
	must(t, cert.SignCert(rand.Reader, signer))
	answer, err := json.Marshal(map[string]any{"certificate": string(ssh.MarshalAuthorizedKey(cert)), "serial": "7"})
	must(t, err)
	short, err := shortened(answer, file, time.Minute)
	must(t, err)
	var a struct{ Certificate, Serial string }
	if err := json.Unmarshal(short, &a); err != nil || a.Serial != "7" {
		t.Fatalf("the shortened answer is %s (%v), want serial 7", short, err)
	}
	parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(a.Certificate))
	must(t, err)
	got := parsed.(*ssh.Certificate)
	check := ssh.CertChecker{IsUserAuthority: func(k ssh.PublicKey) bool { return string(k.Marshal()) == string(key.Marshal()) }}
	late := uint64(time.Now().Add(61 * time.Second).Unix())
	if err := check.CheckCert("chaosa0", got); err != nil || got.KeyId != "k" || got.ValidBefore > late {
		t.Errorf("the certificate of %q is valid before %d (%v), want k and a minute at most", got.KeyId, got.ValidBefore, err)
	}
	if _, err := shortened([]byte(`{"error":{"code":"user_refused"}}`), file, time.Second); err == nil {
		t.Error("an answer without a certificate was shortened")
	}
}
