package remote

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// Certified makes [Config.Credentials] for a user: each call makes a new key, which stays in memory, and has sign certify its public half
// (both as lines of OpenSSH). A certificate is used only where it is of this key and for this user alone, and ends.
func Certified(user string, sign func(ctx context.Context, publicKey string) (certificate string, notAfter time.Time, err error)) func(
	context.Context) (ssh.Signer, time.Time, error) {
	return func(ctx context.Context) (ssh.Signer, time.Time, error) {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, time.Time{}, fault.Wrap(fault.Internal, "", "no key can be made", err)
		}
		key, err := ssh.NewSignerFromKey(private)
		if err != nil {
			return nil, time.Time{}, fault.Wrap(fault.Internal, "", "no key can be made", err)
		}
		line, notAfter, err := sign(ctx, string(bytes.TrimSpace(ssh.MarshalAuthorizedKey(key.PublicKey()))))
		if err != nil {
			return nil, time.Time{}, err
		}
		cert, err := certificateFor(user, key.PublicKey(), line, time.Now())
		if err != nil {
			return nil, time.Time{}, fault.Wrap(fault.Transport, BadLogin, "the signer's certificate for "+user+" cannot be used", err).
				WithNext("look at the signer's log; it and the gateway must be of the same version")
		}
		if end := time.Unix(int64(cert.ValidBefore), 0); notAfter.IsZero() || end.Before(notAfter) {
			notAfter = end
		}
		both, err := ssh.NewCertSigner(cert, key)
		return both, notAfter, err
	}
}

// certificateFor reads a certificate and checks that it is what was asked for.
func certificateFor(user string, key ssh.PublicKey, line string, now time.Time) (*ssh.Certificate, error) {
	parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return nil, err
	}
	cert, ok := parsed.(*ssh.Certificate)
	switch {
	case !ok || cert.CertType != ssh.UserCert:
		return nil, fmt.Errorf("it is not a user certificate")
	case !bytes.Equal(cert.Key.Marshal(), key.Marshal()):
		return nil, fmt.Errorf("it is of another key")
	case !slices.Equal(cert.ValidPrincipals, []string{user}):
		return nil, fmt.Errorf("it is for %q", cert.ValidPrincipals)
	case cert.ValidBefore > 1<<62:
		return nil, fmt.Errorf("it never ends")
	}
	return cert, fresh("of the signer", cert, now)
}
