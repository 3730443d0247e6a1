package remote

import (
	"crypto/rand"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"slurmgate/fault"
	"slurmgate/remote/sshtest"
)

// try runs a script on the host.
func try(t *testing.T, c Config) error {
	t.Helper()
	h := open(t, c)
	defer h.Close()
	_, err := h.Run(t.Context(), Call{Script: "true", Limit: 1})
	return err
}

// sign creates a certificate of a key.
func sign(t *testing.T, key ssh.PublicKey, by ssh.Signer, kind uint32, principal string, until time.Time) *ssh.Certificate {
	t.Helper()
	cert := &ssh.Certificate{Key: key, CertType: kind, KeyId: "test", ValidPrincipals: []string{principal},
		ValidAfter: uint64(time.Now().Add(-time.Hour).Unix()), ValidBefore: uint64(until.Unix())}
	must(t, cert.SignCert(rand.Reader, by))
	return cert
}

// Only a host key in known_hosts is accepted. Otherwise no login is tried.
//
// proves SITE-03
func TestHostKeys(t *testing.T) {
	s, c := serve(t, "")
	other, _ := sshtest.NewKey(t)
	authority, _ := sshtest.NewKey(t)
	at := []string{s.Address}
	host, _, err := net.SplitHostPort(s.Address)
	must(t, err)
	ours, others := knownhosts.Line(at, s.HostKey.PublicKey()), knownhosts.Line(at, other.PublicKey())
	hash := func(key ssh.PublicKey) string {
		return knownhosts.HashHostname(knownhosts.Normalize(s.Address)) + " " + string(ssh.MarshalAuthorizedKey(key))
	}
	trusted := "@cert-authority " + knownhosts.Line(at, authority.PublicKey())
	for name, x := range map[string]struct{ lines, want string }{
		"known":                  {ours, ""},
		"hashed":                 {hash(s.HostKey.PublicKey()), ""},
		"one of several":         {others + "\n" + ours, ""},
		"unknown":                {"", "in none of the known_hosts files"},
		"of another host":        {knownhosts.Line([]string{"192.0.2.1"}, s.HostKey.PublicKey()), "in none of the known_hosts files"},
		"changed":                {others, "another one than at"},
		"changed, hashed":        {hash(other.PublicKey()), "another one than at"},
		"revoked":                {ours + "\n@revoked * " + string(ssh.MarshalAuthorizedKey(s.HostKey.PublicKey())), "is revoked"},
		"only an authority":      {trusted, ""},
		"authority of elsewhere": {"@cert-authority 192.0.2.1 " + string(ssh.MarshalAuthorizedKey(authority.PublicKey())), "known_hosts"},
		"another authority":      {"@cert-authority " + others, "known_hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			s, c := s, c
			if strings.Contains(name, "authority") { // the server shows a certificate
				s, c = serve(t, "")
				signed := sign(t, s.HostKey.PublicKey(), authority, ssh.HostCert, host, time.Now().Add(time.Hour))
				cert, err := ssh.NewCertSigner(signed, s.HostKey)
				must(t, err)
				s.Configure(func(c *ssh.ServerConfig) { c.AddHostKey(cert) })
				x.lines = strings.ReplaceAll(x.lines, knownhosts.Normalize(at[0]), knownhosts.Normalize(s.Address))
			}
			s.Know(x.lines)
			before := s.Logins.Load()
			err := try(t, c)
			if x.want == "" {
				must(t, err)
				return
			}
			if fault.CodeOf(err) != BadHostKey || !strings.Contains(err.Error(), x.want) || !NotStarted(err) {
				t.Error(err)
			}
			if s.Logins.Load() != before {
				t.Error("a login was tried")
			}
		})
	}
}

// known_hosts is read for each connection.
func TestHostKeyIsCorrected(t *testing.T) {
	s, c := serve(t, "")
	lines, err := os.ReadFile(s.Known)
	must(t, err)
	s.Know("")
	h := open(t, c)
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); fault.CodeOf(err) != BadHostKey {
		t.Error(err)
	}
	s.Know(string(lines))
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); err != nil {
		t.Error(err)
	}
}

// proves SITE-03
func TestKeyFiles(t *testing.T) {
	s, c := serve(t, "")
	for name, x := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"readable by others": {func(c *Config) { must(t, os.Chmod(c.Key, 0o644)) }, "others can use it"},
		"of the group":       {func(c *Config) { must(t, os.Chmod(c.Key, 0o640)) }, "others can use it"},
		"missing":            {func(c *Config) { c.Key += ".not" }, "cannot be read"},
		"not a key":          {func(c *Config) { c.Key = c.KnownHosts[0] }, "is not a private key"},
		"neither":            {func(c *Config) { c.Key = "" }, "either a key file or an agent"},
		"no known_hosts":     {func(c *Config) { c.KnownHosts = nil }, "no known_hosts file"},
		"missing hosts":      {func(c *Config) { c.KnownHosts = []string{"/nonexistent"} }, "cannot be used"},
		"no user":            {func(c *Config) { c.User = "" }, "an address and a user"},
		"no certificate":     {func(c *Config) { c.Certificate = c.Key }, "is not a certificate"},
		"a jump host's":      {func(c *Config) { c.Jump = []Config{{Address: "192.0.2.1", User: "x"}} }, "either a key file or an agent"},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			must(t, os.Chmod(c.Key, 0o600))
			x.change(&c)
			if _, err := New(c, slog.New(slog.DiscardHandler)); !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), x.want) {
				t.Error(err)
			}
		})
	}
	must(t, os.Chmod(c.Key, 0o600))
	_, another := sshtest.NewKey(t)
	must(t, os.WriteFile(c.Key, another, 0o600))
	if err := try(t, c); fault.CodeOf(err) != BadLogin || !NotStarted(err) || !strings.Contains(err.Error(), c.Key) {
		t.Error(err)
	}
	if s.Logins.Load() == 0 {
		t.Error("no login was tried")
	}
}

// proves SITE-03
func TestCertificateAndAgent(t *testing.T) {
	s, c := serve(t, "")
	authority, _ := sshtest.NewKey(t)
	check := &ssh.CertChecker{IsUserAuthority: func(k ssh.PublicKey) bool {
		return string(k.Marshal()) == string(authority.PublicKey().Marshal())
	}}
	var plain func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error)
	s.Configure(func(c *ssh.ServerConfig) {
		plain = c.PublicKeyCallback
		c.PublicKeyCallback = func(m ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			if _, ok := k.(*ssh.Certificate); !ok {
				return nil, errors.New("certificates only")
			}
			return check.Authenticate(m, k)
		}
	})
	certified := func(principal string, until time.Time) string {
		path := filepath.Join(t.TempDir(), "cert.pub")
		must(t, os.WriteFile(path, ssh.MarshalAuthorizedKey(sign(t, s.UserKey.PublicKey(), authority, ssh.UserCert, principal, until)), 0o600))
		return path
	}
	with := func(change func(*Config)) error {
		c := c
		change(&c)
		return try(t, c)
	}
	good := certified("lab", time.Now().Add(time.Hour))
	must(t, with(func(c *Config) { c.Certificate = good }))
	if err := with(func(c *Config) { c.Certificate = certified("root", time.Now().Add(time.Hour)) }); fault.CodeOf(err) != BadLogin {
		t.Error(err)
	}
	if err := with(func(c *Config) { c.Certificate = certified("lab", time.Now().Add(-time.Minute)) }); fault.CodeOf(err) != BadLogin ||
		!strings.Contains(err.Error(), "expired at") {
		t.Error(err)
	}
	key, err := os.ReadFile(c.Key)
	must(t, err)
	private, err := ssh.ParseRawPrivateKey(key)
	must(t, err)
	ring := agent.NewKeyring()
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go agent.ServeAgent(ring, conn)
		}
	}()
	useAgent := func(c *Config) { c.Key, c.Agent = "", socket }
	if err := with(useAgent); fault.CodeOf(err) != BadLogin || !strings.Contains(err.Error(), "no keys") {
		t.Error(err)
	}
	must(t, ring.Add(agent.AddedKey{PrivateKey: private}))
	if err := with(func(c *Config) { useAgent(c); c.Certificate = good }); err != nil {
		t.Error(err)
	}
	s.Configure(func(c *ssh.ServerConfig) { c.PublicKeyCallback = plain })
	must(t, with(useAgent))
	l.Close()
	if err := with(useAgent); fault.CodeOf(err) != BadLogin || !strings.Contains(err.Error(), "does not answer") {
		t.Error(err)
	}
	encrypted, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("secret"))
	must(t, err)
	must(t, os.WriteFile(c.Key, pem.EncodeToMemory(encrypted), 0o600))
	if _, err := New(c, slog.New(slog.DiscardHandler)); !fault.Is(err, fault.Validation) || !strings.Contains(err.Error(), "is encrypted") {
		t.Error(err)
	}
}

// proves SITE-03
func TestJumpHosts(t *testing.T) {
	last, c := serve(t, "")
	first, a := serve(t, "")
	second, b := serve(t, "")
	c.Jump = []Config{a, b}
	h := open(t, c)
	for range 3 {
		if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if first.Accepted.Load() != 1 || second.Accepted.Load() != 1 || last.Accepted.Load() != 1 {
		t.Errorf("%d %d %d connections", first.Accepted.Load(), second.Accepted.Load(), last.Accepted.Load())
	}
	first.Cut()
	for end := time.Now().Add(time.Minute); ; {
		_, err := h.Run(t.Context(), Call{Script: "true", Limit: 1})
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	h.Close()
	second.Know("")
	if err := try(t, c); fault.CodeOf(err) != BadHostKey || !strings.Contains(err.Error(), second.Address) {
		t.Error(err)
	}
}
