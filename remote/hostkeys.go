package remote

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"
	plainhosts "golang.org/x/crypto/ssh/knownhosts"

	"slurmgate/fault"
)

// UnknownKey is the cause of a fault with code [BadHostKey] if no known_hosts file has a key of the host.
type UnknownKey struct {
	Address     string
	Fingerprint string // SHA256:…
	Line        string // for a known_hosts file
	err         error
}

func (u *UnknownKey) Error() string { return u.err.Error() }

// knownHosts reads the known_hosts files. They are read again for each connection, so a corrected line needs no
// restart.
func (c Config) knownHosts() (*knownhosts.HostKeyDB, error) {
	if len(c.KnownHosts) == 0 {
		return nil, invalid("ssh_known_hosts", "no known_hosts file for "+c.Address+", so no host key could be accepted").
			WithNext("name one in known_hosts of the site file; ssh-keyscan prints the keys, and the cluster's admins publish their fingerprints")
	}
	db, err := knownhosts.NewDB(c.KnownHosts...)
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "ssh_known_hosts",
			fmt.Sprintf("the known_hosts files for %s cannot be used", c.Address), err).
			WithNext("correct the file, or its path in known_hosts of the site file, and let the service's user read it")
	}
	return db, nil
}

// hostKeys returns the algorithms of the known keys, so that a host with several keys shows one of those, and the check
// of the key, which stores its fault in bad.
func (c Config) hostKeys(bad *error) ([]string, ssh.HostKeyCallback, error) {
	db, err := c.knownHosts()
	if err != nil {
		return nil, nil, err
	}
	check := db.HostKeyCallback()
	algorithms := db.HostKeyAlgorithms(c.Address)
	if len(algorithms) == 0 { // for an unknown host: prefer the key that people compare first
		algorithms = []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512,
			ssh.KeyAlgoRSASHA256}
	}
	return algorithms, func(address string, at net.Addr, key ssh.PublicKey) error {
		err := check(address, at, key)
		if err != nil {
			*bad = c.hostKeyFault(key, err)
		}
		return err
	}, nil
}

func (c Config) hostKeyFault(key ssh.PublicKey, err error) error {
	files := strings.Join(c.KnownHosts, ", ")
	is := func(msg, next string) error {
		return fault.Wrap(fault.Transport, BadHostKey, msg, err).WithNext(next)
	}
	var revoked *plainhosts.RevokedError
	var wanted *plainhosts.KeyError
	switch {
	case errors.As(err, &revoked):
		return is(fmt.Sprintf("the host key of %s (%s) is revoked at %s:%d", c.Address, fingerprint(key), revoked.Revoked.Filename,
			revoked.Revoked.Line), "do not log in there; ask the cluster's admins for the new host key")
	case errors.As(err, &wanted) && len(wanted.Want) > 0:
		var at []string
		for _, w := range wanted.Want {
			if line := fmt.Sprintf("%s:%d", w.Filename, w.Line); !slices.Contains(at, line) {
				at = append(at, line)
			}
		}
		return is(fmt.Sprintf("the host key of %s is %s, another one than at %s", c.Address, fingerprint(key), strings.Join(at, ", ")),
			"another host may be answering: ask the cluster's admins whether the key was changed, and only then replace the line")
	case errors.As(err, &wanted):
		err = &UnknownKey{Address: c.Address, Fingerprint: ssh.FingerprintSHA256(key), Line: plainhosts.Line([]string{c.Address}, key), err: err}
		return is(fmt.Sprintf("the host key of %s (%s) is in none of the known_hosts files (%s)", c.Address, fingerprint(key), files),
			"compare the fingerprint with the one that the cluster's admins publish, then add the key (ssh-keyscan)")
	}
	return is(fmt.Sprintf("the host key of %s (%s) is not accepted", c.Address, fingerprint(key)),
		"check the certificate of the host and the @cert-authority lines in "+files)
}
