package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"slurmgate/fault"
)

func owned(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return !ok || int(sys.Uid) == os.Geteuid()
}

// keyFile reads the private key and its certificate. They are read again for each connection, so a renewed certificate
// needs no restart.
func (c Config) keyFile() (ssh.Signer, error) {
	if err := private(c.Key); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(c.Key)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ssh_key", fmt.Sprintf("the key file %s cannot be read", c.Key), err)
	}
	signer, err := ssh.ParsePrivateKey(data)
	if _, encrypted := errors.AsType[*ssh.PassphraseMissingError](err); encrypted {
		return nil, invalid("ssh_key", fmt.Sprintf("the key file %s is encrypted, and its passphrase cannot be typed here", c.Key)).
			WithNext("use an SSH agent, or a key without a passphrase (ssh-keygen -p)")
	}
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ssh_key", c.Key+" is not a private key that can be used", err).
			WithNext("name the private half of a key in OpenSSH's format; ssh-keygen makes one")
	}
	if c.Certificate == "" {
		return signer, nil
	}
	cert, err := c.certificate()
	if err != nil {
		return nil, err
	}
	signer, err = ssh.NewCertSigner(cert, signer)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ssh_certificate",
			fmt.Sprintf("the certificate %s is not of the key %s", c.Certificate, c.Key), err)
	}
	return signer, nil
}

func (c Config) certificate() (*ssh.Certificate, error) {
	data, err := os.ReadFile(c.Certificate)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ssh_certificate", fmt.Sprintf("the certificate %s cannot be read", c.Certificate),
			err)
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(data)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ssh_certificate", c.Certificate+" is not a certificate", err)
	}
	cert, ok := key.(*ssh.Certificate)
	if !ok || cert.CertType != ssh.UserCert {
		return nil, invalid("ssh_certificate", c.Certificate+" is not a user certificate")
	}
	return cert, nil
}

// fresh returns a fault if the certificate is not valid at the time now.
func fresh(path string, cert *ssh.Certificate, now time.Time) error {
	at := uint64(max(0, now.Unix()))
	utc := func(t uint64) string { return time.Unix(int64(t), 0).UTC().Format(time.RFC3339) }
	switch {
	case cert.ValidBefore != ssh.CertTimeInfinity && at >= cert.ValidBefore:
		return invalid("ssh_certificate", fmt.Sprintf("the certificate %s expired at %s", path, utc(cert.ValidBefore))).
			WithNext("have it renewed by the authority that signed it, and put the new one in its place; no restart is needed")
	case at < cert.ValidAfter:
		return invalid("ssh_certificate", fmt.Sprintf("the certificate %s is not valid before %s", path, utc(cert.ValidAfter))).
			WithNext("wait until then, or correct this host's clock")
	}
	return nil
}

// signers returns the keys for the login, and when they end (zero: never); done ends the use of an agent.
func (c Config) signers(ctx context.Context) (list []ssh.Signer, until time.Time, done func(), err error) {
	done = func() {}
	if c.Credentials == nil {
		if list, done, err = c.configured(); err != nil {
			err = fault.Wrap(fault.Transport, BadLogin, "there is nothing to log in with as "+c.name(), err)
		}
		return list, until, done, err
	}
	one, until, err := c.Credentials(ctx)
	if err != nil {
		return nil, until, done, notStarted{err}
	}
	return []ssh.Signer{one}, until, done, nil
}

// configured returns the keys of the files or of the agent.
func (c Config) configured() (list []ssh.Signer, done func(), err error) {
	done = func() {}
	var cert *ssh.Certificate
	if c.Certificate != "" {
		if cert, err = c.certificate(); err == nil {
			err = fresh(c.Certificate, cert, time.Now())
		}
		if err != nil {
			return nil, done, err
		}
	}
	if c.Agent == "" {
		one, err := c.keyFile()
		return []ssh.Signer{one}, done, err
	}
	conn, err := net.DialTimeout("unix", c.Agent, 5*time.Second)
	if err != nil {
		return nil, done, fmt.Errorf("the SSH agent at %s does not answer: %w", c.Agent, err)
	}
	done = func() { conn.Close() }
	list, err = agent.NewClient(conn).Signers()
	switch {
	case err != nil:
		err = fmt.Errorf("the SSH agent at %s does not answer: %w", c.Agent, err)
	case cert != nil:
		list, err = withCertificate(list, cert, c)
	case len(list) == 0:
		err = fmt.Errorf("the SSH agent at %s has no keys", c.Agent)
	}
	if err != nil {
		done()
		return nil, func() {}, err
	}
	return list, done, nil
}

func withCertificate(list []ssh.Signer, cert *ssh.Certificate, c Config) ([]ssh.Signer, error) {
	for _, s := range list {
		if bytes.Equal(s.PublicKey().Marshal(), cert.Key.Marshal()) {
			signer, err := ssh.NewCertSigner(cert, s)
			return []ssh.Signer{signer}, err
		}
	}
	return nil, fmt.Errorf("the SSH agent at %s does not have the key of the certificate %s", c.Agent, c.Certificate)
}
