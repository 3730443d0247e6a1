package remote

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

// Config describes how to reach a host. All paths are of this machine.
type Config struct {
	Address     string   // host:port; without a port, 22
	User        string   // the user to log in as
	KnownHosts  []string // known_hosts files; other host keys are refused
	Key         string   // private key file, readable only for its owner; or Agent, or Credentials
	Certificate string   // user certificate of the key; may be empty
	Agent       string   // socket of an SSH agent that has the key
	Jump        []Config // hosts to go through, in order; their own Jump is ignored

	// Credentials returns a key with a user certificate, and when the certificate ends. It is called for each
	// connection, which ends with its certificate. Its errors reach the caller unchanged, and prove that nothing was
	// started.
	Credentials func(ctx context.Context) (ssh.Signer, time.Time, error)
	// Idle is how long a connection without a call stays open; 0: until it is lost or its certificate ends.
	Idle time.Duration
	// Logins bounds, by its capacity, the concurrent logins of all hosts that share it. nil: no bound.
	Logins chan struct{}
}

// name returns the host's name in messages.
func (c Config) name() string { return c.User + "@" + c.Address }

// normal returns the configuration with a port.
func (c Config) normal() Config {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		c.Address = net.JoinHostPort(strings.Trim(c.Address, "[]"), "22")
	}
	jump := make([]Config, len(c.Jump))
	for i, j := range c.Jump {
		jump[i] = j.normal()
	}
	c.Jump = jump
	return c
}

// check reads all files once, so that a faulty one is found at the start.
func (c Config) check() error {
	for _, hop := range append(c.Jump, c) {
		if hop.Address == "" || hop.User == "" {
			return invalid("ssh_config", "a host needs an address and a user")
		}
		ways := 0
		for _, given := range []bool{hop.Key != "", hop.Agent != "", hop.Credentials != nil} {
			if given {
				ways++
			}
		}
		if ways != 1 || hop.Credentials != nil && hop.Certificate != "" {
			return invalid("ssh_config", hop.name()+" needs either a key file or an agent")
		}
		if _, err := hop.knownHosts(); err != nil {
			return err
		}
		if hop.Key == "" {
			continue
		}
		if _, err := hop.keyFile(); err != nil {
			return err
		}
	}
	return nil
}

func invalid(code, msg string) *fault.Error {
	return fault.New(fault.Validation, code, msg)
}

// private returns a fault for a key file that others can use. A group may read a file of another owner: this is how a
// package lets a service read root's file.
func private(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fault.Wrap(fault.Validation, "ssh_key", fmt.Sprintf("the key file %s cannot be read", path), err).
			WithNext("correct the key in the site file, and let only the service's user read the file")
	}
	open := st.Mode().Perm() & 0o077
	if !owned(st) {
		open &= 0o027
	}
	if open != 0 {
		return invalid("ssh_key", fmt.Sprintf("the key file %s has mode %04o, so others can use it", path, st.Mode().Perm())).
			WithNext("chmod 600 " + path)
	}
	return nil
}
