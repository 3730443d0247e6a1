package signer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"slurmgate/fault"
)

// authority is the key that signs certificates.
type authority struct {
	public ssh.PublicKey
	key    ssh.Signer // from a file; nil: the agent has it
	agent  string     // socket
}

// openAuthority reads the key, or checks that the agent has it.
func openAuthority(ctx context.Context, c CA) (*authority, error) {
	if c.Key != "" {
		key, err := readKey(c.Key)
		if err != nil {
			return nil, err
		}
		return &authority{public: key.PublicKey(), key: key}, nil
	}
	data, err := os.ReadFile(c.PublicKey)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ca_key", "ca.public_key cannot be read", err)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ca_key", "ca.public_key "+c.PublicKey+" is not a public key", err)
	}
	a := &authority{public: public, agent: c.Agent}
	return a, a.withAgent(ctx, func(ssh.Signer) error { return nil })
}

// readKey reads the private key, which only this user may be able to read.
func readKey(path string) (ssh.Signer, error) {
	if err := secret(path); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ca_key", "the CA's key cannot be read", err)
	}
	key, err := ssh.ParsePrivateKey(data)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
		return nil, fault.New(fault.Validation, "ca_key", "the CA's key "+path+" has a passphrase, which cannot be typed here").
			WithNext("load it into an ssh-agent and name that in ca.agent, or remove the passphrase (ssh-keygen -p)")
	}
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ca_key", "the CA's key "+path+" cannot be used", err).
			WithNext("make one with: ssh-keygen -t ed25519 -N '' -f " + path)
	}
	return key, nil
}

// sign signs a certificate.
func (a *authority) sign(ctx context.Context, cert *ssh.Certificate) error {
	if a.key != nil {
		return cert.SignCert(rand.Reader, a.key)
	}
	return a.withAgent(ctx, func(key ssh.Signer) error { return cert.SignCert(rand.Reader, key) })
}

// withAgent calls do with the agent's key. Each use has a separate connection, so an agent may be restarted at any
// time.
func (a *authority) withAgent(ctx context.Context, do func(ssh.Signer) error) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", a.agent)
	if err != nil {
		return a.silent(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	keys, err := agent.NewClient(conn).Signers()
	if err != nil {
		return a.silent(err)
	}
	for _, key := range keys {
		if bytes.Equal(key.PublicKey().Marshal(), a.public.Marshal()) {
			return do(key)
		}
	}
	return away(fmt.Sprintf("the SSH agent at %s does not have the CA's key %s", a.agent, ssh.FingerprintSHA256(a.public)), nil).
		WithNext("load it: ssh-add, or ssh-add -s for a PKCS#11 token, as the signer's user")
}

func (a *authority) silent(err error) error {
	return away("the SSH agent at "+a.agent+", which has the CA's key, does not answer", err).
		WithNext("start the agent and load the key again")
}

// line returns the CA's public key as sshd reads it in TrustedUserCAKeys.
func (a *authority) line() string {
	return string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(a.public))) + " slurmgate-signer"
}
