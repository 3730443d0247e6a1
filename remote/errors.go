package remote

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// Codes of the Transport faults of this package.
const (
	Unreachable = "ssh_unreachable" // no connection: nothing was started
	BadHostKey  = "ssh_host_key"    // the host key is unknown, changed or revoked; nothing was sent, no login was tried
	BadLogin    = "ssh_auth"        // the host does not accept user and key
	Refused     = "login_refused"   // the host does not accept the certificate for this user
	Busy        = "ssh_busy"        // the host allows no further session (MaxSessions): nothing was started
	NoShell     = "ssh_shell"       // the login shell did not start /bin/sh: nothing was started
	Cut         = "ssh_cut"         // the connection was lost, or time ran out: it is unknown whether the script ran to its end
)

// NotStarted reports whether an error proves that the script was not started, and never will be.
func NotStarted(err error) bool {
	switch fault.CodeOf(err) {
	case Unreachable, BadHostKey, BadLogin, Refused, Busy, NoShell:
		return true
	}
	_, none := errors.AsType[notStarted](err)
	return none
}

// notStarted marks an error of [Config.Credentials].
type notStarted struct{ error }

func (n notStarted) Unwrap() error { return n.error }

func (h *Host) fault(code, msg string, err error) *fault.Error {
	return fault.Wrap(fault.Transport, code, h.cfg.name()+": "+msg, err)
}

// maxSaid bounds a profile's text in an error, in bytes.
const maxSaid = 200

// profile returns the fault of a login shell that did not start /bin/sh.
func (h *Host) profile(code, what string, noise []byte) *fault.Error {
	said := ""
	if text := strings.TrimSpace(strings.ToValidUTF8(string(noise), "?")); text != "" {
		said = fmt.Sprintf("; it printed: %s", fault.ClipEnd(text, maxSaid))
	}
	return h.fault(code, what+said, nil).WithNext("log in as the user by hand: the login shell's start-up files (.bashrc, .cshrc, " +
		"config.fish, .zshenv) must not ask, wait, read standard input or exit when no terminal is there")
}

// refused returns the fault of a host that refuses the login.
func refused(hop Config, err error) *fault.Error {
	text := err.Error()
	if strings.Contains(text, "unable to authenticate") || strings.Contains(text, "oo many authentication failures") {
		if hop.Credentials != nil {
			return fault.Wrap(fault.Transport, Refused, fmt.Sprintf("%s does not let %s log in with a certificate that was just signed",
				hop.Address, hop.User), err).
				WithNext("look at the sshd log of the host for the reason, then check: that the account of " + hop.User + " exists there and is " +
					"neither locked nor expired; that sshd trusts the signer's key (TrustedUserCAKeys) and allows this user; that the clocks " +
					"agree; that sshd sees this gateway under one of source_addresses").
				WithRetry(int(refusedPause.Seconds()))
		}
		next := "check user, key and the user's authorized_keys there; the sshd log of the host has the reason"
		if hop.Certificate != "" {
			next = "check that the host trusts the authority that signed the certificate (TrustedUserCAKeys), and that the certificate is for " +
				"this user; the sshd log of the host has the reason"
		}
		return fault.Wrap(fault.Transport, BadLogin, fmt.Sprintf("%s does not accept the %s", hop.name(), hop.credential()), err).WithNext(next)
	}
	if strings.Contains(text, "no common algorithm for host key") {
		return fault.Wrap(fault.Transport, BadHostKey,
			hop.name()+" has no host key of a kind that known_hosts has for it", err).
			WithNext("compare the known_hosts lines of the host with the keys that the cluster's admins publish")
	}
	return fault.Wrap(fault.Transport, Unreachable,
		hop.name()+" ended the connection before the login; it may have too many connections (MaxStartups), or refuse this "+
			"host (PerSourcePenalties, a firewall)", err).
		WithNext("look at the sshd log of the host; the gateway tries again by itself")
}

func (c Config) credential() string {
	switch {
	case c.Agent != "":
		return "keys of the agent at " + c.Agent
	case c.Certificate != "":
		cert, err := c.certificate()
		if err != nil {
			return "certificate " + c.Certificate
		}
		return fmt.Sprintf("certificate %s, which %s signed for %s", c.Certificate, ssh.FingerprintSHA256(cert.SignatureKey),
			cmp.Or(strings.Join(cert.ValidPrincipals, ", "), "any user"))
	}
	return "key " + c.Key
}

// fingerprint formats a host key as ssh-keygen -l does.
func fingerprint(key ssh.PublicKey) string {
	if cert, ok := key.(*ssh.Certificate); ok {
		return fmt.Sprintf("a %s signed by %s", cert.Type(), cmp.Or(ssh.FingerprintSHA256(cert.SignatureKey), "no authority"))
	}
	return key.Type() + " " + ssh.FingerprintSHA256(key)
}
