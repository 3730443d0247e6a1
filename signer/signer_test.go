package signer_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/nss"
	"slurmgate/signer"
	"slurmgate/signer/signertest"
)

var alice = nss.User{Name: "alice", UID: 2001, GID: 2001, Home: "/home/alice", Shell: "/bin/bash"}

// request asks for a certificate for a new key.
func request(t *testing.T, user string) signer.Request {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer.Request{User: user, PublicKey: string(ssh.MarshalAuthorizedKey(key)), RunID: "r1", Caller: "peer:" + user, Gateway: "lab",
		SourceAddresses: []string{"127.0.0.1"}, Minutes: 5}
}

// A certificate is for one user, a few minutes and some addresses; it has no extensions, and its line is in the log.
func TestSign(t *testing.T) {
	s := signertest.Start(t, "", alice)
	r := request(t, "alice")
	r.SourceAddresses, r.Caller = []string{"127.0.0.1", "::1"}, "oidc:https://id.lab.example|al ice=\n\x1b[2J"
	began := time.Now()
	cert, err := s.Sign(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := cert.KeyId; got != "slurmgate gateway=lab run=r1 caller=oidc:https://id.lab.example|al%20ice%3D%0A%1B[2J" {
		t.Errorf("key id %q", got)
	}
	if len(cert.ValidPrincipals) != 1 || cert.ValidPrincipals[0] != "alice" || len(cert.Extensions) != 0 ||
		len(cert.CriticalOptions) != 1 || cert.CriticalOptions["source-address"] != "127.0.0.1/32,::1/128" {
		t.Errorf("%+v", cert)
	}
	from, to := time.Unix(int64(cert.ValidAfter), 0), time.Unix(int64(cert.ValidBefore), 0)
	if from.After(began.Add(-59*time.Second)) || to.Sub(from) != 6*time.Minute {
		t.Errorf("valid from %s to %s", from, to)
	}
	if authority := string(ssh.MarshalAuthorizedKey(cert.SignatureKey)); !strings.HasPrefix(s.CA, strings.TrimSpace(authority)) {
		t.Errorf("%s signed it; the CA is %s", authority, s.CA)
	}
	log, err := os.ReadFile(s.Log)
	if err != nil || strings.Count(string(log), "\n") != 1 || !strings.Contains(string(log), `"event":"signed"`) {
		t.Errorf("%v\n%s", err, log)
	}
}
