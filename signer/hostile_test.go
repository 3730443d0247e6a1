package signer

import (
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
)

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	key, err := ssh.NewSignerFromKey(private)
	must(t, err)
	return key
}

// The gateway uses no certificate but the one it asked for, whatever answers at the socket; and no answer is too long or too late for it.
func TestClientChecks(t *testing.T) {
	ca, own, other := newKey(t), newKey(t), newKey(t)
	r := Request{User: "alice", PublicKey: string(ssh.MarshalAuthorizedKey(own.PublicKey())), SourceAddresses: []string{"127.0.0.1"},
		Minutes: 5}
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	must(t, err)
	defer l.Close()
	answers := make(chan []byte, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := readLine(c); err == nil {
				_, _ = c.Write(<-answers) // a client that has enough ends the connection
			}
			c.Close()
		}
	}()
	c := Client{Socket: socket}
	signed := func(change func(*ssh.Certificate)) []byte {
		data, err := line(r)
		must(t, err)
		w, err := parseRequest(data)
		must(t, err)
		cert, err := w.certificate(time.Now())
		must(t, err)
		change(cert)
		must(t, cert.SignCert(rand.Reader, ca))
		data, err = line(answer{Certificate: string(ssh.MarshalAuthorizedKey(cert))})
		must(t, err)
		return data
	}
	answers <- signed(func(*ssh.Certificate) {})
	if _, err := c.Sign(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*ssh.Certificate){
		"another key":   func(c *ssh.Certificate) { c.Key = other.PublicKey() },
		"another user":  func(c *ssh.Certificate) { c.ValidPrincipals = []string{"alice", "root"} },
		"any user":      func(c *ssh.Certificate) { c.ValidPrincipals = nil },
		"other options": func(c *ssh.Certificate) { c.Extensions = map[string]string{"permit-pty": ""} },
		"an address":    func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{sourceAddress: "0.0.0.0/0"} },
		"a host":        func(c *ssh.Certificate) { c.CertType = ssh.HostCert },
		"for ever":      func(c *ssh.Certificate) { c.ValidBefore = ssh.CertTimeInfinity },
		"over":          func(c *ssh.Certificate) { c.ValidBefore = uint64(time.Now().Unix()) },
	} {
		answers <- signed(change)
		if _, err := c.Sign(t.Context(), r); fault.CodeOf(err) != Misfit || !strings.Contains(err.Error(), "answered with") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for text, want := range map[string]string{
		"\n": Misfit, "[]\n": Misfit, "{}\n": Misfit, `{"certificate":"ssh-ed25519 AAAA"}` + "\n": Misfit, "": Away, "{}": Away,
		strings.Repeat("x", 2*maxLine): Away,
		`{"error":{"code":"user_refused","message":"no","retry_seconds":-5}}` + "\n": Refused,
		`{"error":{"code":"signer_busy","message":"no","retry_seconds":9}}` + "\n":   Busy,
		`{"error":{"code":"internal"}}` + "\n":                                       Misfit,
	} {
		answers <- []byte(text)
		_, err := c.Sign(t.Context(), r)
		if fault.CodeOf(err) != want || (fault.KindOf(err) == fault.Policy) != (want == Refused) || (fault.RetryOf(err) == 9) != (want == Busy) {
			t.Errorf("%.100q: %v", text, err)
		}
	}
	slow := Client{Socket: socket, Limit: time.Millisecond}
	if _, err := slow.Sign(t.Context(), r); fault.CodeOf(err) != Away {
		t.Error(err)
	}
	if _, err := (Client{Socket: socket + "-away"}).Sign(t.Context(), r); fault.CodeOf(err) != Away || !fault.Is(err, fault.Transport) {
		t.Error(err)
	}
	answers <- nil // for the slow one
}

// Rates of users who were quiet for a minute are forgotten; while there are too many others, further ones wait.
func TestManyUsers(t *testing.T) {
	l, now := newLimiter(1<<30, 1), time.Unix(1<<30, 0)
	for i := range maxUsers {
		if err := l.take(string(rune(i)), now.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := l.take("another", now.Add(20*time.Second)); fault.CodeOf(err) != Busy {
		t.Error(err)
	}
	if err := l.take("another", now.Add(65*time.Second)); err != nil || len(l.users) > maxUsers/2 {
		t.Error(err, len(l.users))
	}
}

// FuzzRequest: an accepted request is for one user, one key of the right kind and some addresses, and its certificate
// has these and nothing more.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"user":"alice","public_key":"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGw2rWRpxMzyPVGMfsqdKyLpyPDcSNaFTLuVfDq0PDzM",` +
		`"run_id":"r","caller":"c","gateway":"g","source_addresses":["127.0.0.1","::1/128"],"minutes":5}` + "\n"))
	f.Add([]byte(`{"about":true}`))
	f.Add([]byte(`{"user":"a b","source_addresses":["0.0.0.0/0"],"minutes":-1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := parseRequest(data)
		if err != nil || w.About {
			return
		}
		cert, err := w.certificate(time.Unix(1<<30, 0))
		must(t, err)
		if len(cert.ValidPrincipals) != 1 || checkName(cert.ValidPrincipals[0]) != "" || len(cert.Extensions) > 0 || len(cert.KeyId) > 500 ||
			cert.Key.Type() != ssh.KeyAlgoED25519 || cert.ValidBefore-cert.ValidAfter > 61*60 {
			t.Fatalf("the certificate has principals %q, extensions %v, key id %q, key %s, %d s", cert.ValidPrincipals,
				cert.Extensions, cert.KeyId, cert.Key.Type(), cert.ValidBefore-cert.ValidAfter)
		}
		if strings.Count(cert.KeyId, "=") != 3 || strings.ContainsFunc(cert.KeyId, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("key id %q", cert.KeyId)
		}
		for _, a := range strings.Split(cert.CriticalOptions[sourceAddress], ",") {
			if n, err := parseNetwork(a); err != nil || n.String() != a {
				t.Fatalf("address %q: %v", a, err)
			}
		}
	})
}

// FuzzConfig: a configuration that is accepted is within its bounds.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("ca: {key: /ca}\ngateway_users: [svc]\nsource_addresses: [127.0.0.1]\nminutes: 60\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("signer.yaml", data)
		if err != nil {
			return
		}
		if len(c.nets) == 0 || len(c.GatewayUsers) == 0 || c.Minutes < 1 || c.Minutes > maxMinutes || c.MinUID < 1 || c.MinUID > c.MaxUID ||
			c.PerUserMinute < 1 || c.PerUserMinute > c.PerMinute || (c.CA.Key == "") == (c.CA.Agent == "") || c.Socket == "" || c.Log == "" {
			t.Fatalf("Parse accepted an incomplete configuration: %+v", c)
		}
	})
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
