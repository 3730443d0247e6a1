package signer_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/nss"
	"slurmgate/signer"
	"slurmgate/signer/signertest"
)

// say sends bytes to a socket and reads the answer's error.
func say(t *testing.T, socket, request string) (code, message string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	must(t, err)
	defer c.Close()
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	must(t, c.(*net.UnixConn).CloseWrite())
	var a struct {
		Certificate string
		Error       struct{ Code, Message string }
	}
	text, err := bufio.NewReader(c).ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(text), &a)
	}
	if err != nil || a.Certificate != "" {
		t.Fatalf("%q: %v in %q", request, err, text)
	}
	return a.Error.Code, a.Error.Message
}

// The signer checks everything itself, whatever the client checked before.
//
// proves SITE-08
func TestStrictRequests(t *testing.T) {
	s := signertest.Start(t, "minutes: 2\n", alice)
	good, err := json.Marshal(request(t, "alice"))
	must(t, err)
	with := func(old, text string) string {
		changed := strings.Replace(string(good), old, text, 1)
		if changed == string(good) {
			t.Fatalf("%s has no %s", good, old)
		}
		return changed + "\n"
	}
	rsa := `"public_key":"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQCjhg==","old":"`
	for request, want := range map[string]string{
		"":                                 "no request",
		string(good):                       "no request", // its end is missing
		strings.Repeat(" ", 1<<17):         "no request",
		"[]\n":                             "not the JSON object",
		"{}\n":                             "empty",
		string(good) + string(good) + "\n": "not the JSON object",
		with(`"user":"alice"`, `"user":"alice","user":"root"`):     "not the JSON object",
		with(`"user"`, `"User"`):                                   "not the JSON object",
		with(`"minutes":5`, `"minutes":5,"extensions":{}`):         "not the JSON object",
		with(`"minutes":5`, `"minutes":0`):                         "1 to 60",
		with(`"minutes":5`, `"minutes":61`):                        "1 to 60",
		with(`"minutes":5`, `"minutes":1e99`):                      "not the JSON object",
		with(`"user":"alice"`, `"user":"root"`):                    "no such user",
		with(`"user":"alice"`, `"user":"alice\n"`):                 "space",
		with(`["127.0.0.1"]`, `[]`):                                "0 source addresses",
		with(`["127.0.0.1"]`, `["0.0.0.0/0"]`):                     "does not sign for the source address 0.0.0.0/0",
		with(`["127.0.0.1"]`, `["127.0.0.1","10.0.0.1"]`):          "10.0.0.1",
		with(`["127.0.0.1"]`, `["127.0.0.1,10.0.0.1"]`):            "neither an address",
		with(`["127.0.0.1"]`, `["::ffff:10.0.0.1"]`):               "::ffff:10.0.0.1",
		with(`["127.0.0.1"]`, `["::ffff:10.0.0.0/104"]`):           "neither an address",
		with(`"public_key":"`, rsa):                                "not the JSON object",
		with(`"public_key":"`, `"public_key":"no-pty `):            "not a public key",
		with(`"public_key":"ssh-ed25519`, `"public_key":"ssh-rsa`): "not a public key",
	} {
		if code, msg := say(t, s.Socket, request); !strings.Contains(msg, want) || code != signer.Misfit && code != signer.Refused {
			t.Errorf("%.200q: %s %s, want %s", request, code, msg, want)
		}
	}
	cert, err := s.Sign(t.Context(), request(t, "alice"))
	if err != nil || cert.ValidBefore-cert.ValidAfter != 3*60 {
		t.Errorf("for 5 minutes, with 2 as the most, Sign returned %+v, %v; want a certificate of 3 minutes with its clock skew", cert, err)
	}
	about, err := s.About(t.Context())
	if err != nil || about.PublicKey != s.CA || about.Minutes != 2 || len(about.SourceAddresses) != 2 {
		t.Errorf("About = key %q, %d minutes, %d addresses, %v; want %q, 2, 2", about.PublicKey, about.Minutes,
			len(about.SourceAddresses), err, s.CA)
	}
}

// Only the users of the configuration are answered, though others can open the socket.
//
// proves SITE-08
func TestStrangers(t *testing.T) {
	s := signertest.Start(t, "", alice)
	s.Serve(s.Config("socket: "+s.Socket+"2\n"), os.Getuid()+1)
	c := signer.Client{Socket: s.Socket + "2"}
	for range 200 { // more than there are places
		_, err := c.Sign(t.Context(), request(t, "alice"))
		if fault.CodeOf(err) != signer.Misfit || !strings.Contains(err.Error(), "accepts no requests of user id") {
			t.Fatal(err)
		}
	}
	st, err := os.Stat(s.Socket)
	if err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("%v %v", st.Mode(), err)
	}
}

// A client that connects and sends nothing delays no other, and when all places are taken the next one gets an error
// at once.
func TestSlowClients(t *testing.T) {
	s := signertest.Start(t, "", alice)
	hang := func(n int) {
		for range n {
			c, err := net.Dial("unix", s.Socket)
			must(t, err)
			t.Cleanup(func() { c.Close() })
		}
	}
	hang(60)
	if _, err := s.Sign(t.Context(), request(t, "alice")); err != nil {
		t.Error(err)
	}
	for range 10 { // four are enough, unless the signer has not yet freed the place of a request that it has answered
		hang(1)
		if _, err := s.Sign(t.Context(), request(t, "alice")); fault.CodeOf(err) == signer.Busy && fault.RetryOf(err) == 1 {
			return
		} else if err != nil {
			t.Errorf("Sign among many silent clients = %v, want a certificate or %s", err, signer.Busy)
		}
	}
	t.Errorf("Sign among 70 silent clients = a certificate, want %s", signer.Busy)
}

// A user's rate does not use up that of the others, and an error has the time until a retry.
func TestRates(t *testing.T) {
	bob := alice
	bob.Name, bob.UID = "bob", 2002
	s := signertest.Start(t, "per_minute: 4\nper_user_minute: 2\n", alice, bob)
	for i, user := range []string{"alice", "alice", "alice", "alice", "bob", "bob", "bob"} {
		_, err := s.Sign(t.Context(), request(t, user))
		wait := fault.RetryOf(err)
		if full := i == 2 || i == 3 || i == 6; full != (fault.CodeOf(err) == signer.Busy) || full && (wait < 1 || wait > 60) {
			t.Errorf("%d %s: %v, again in %d s", i, user, err, wait)
		}
	}
}

// A certificate that cannot be logged does not leave the signer, and a line that was written in part is taken back.
//
// proves SITE-08
func TestLogFails(t *testing.T) {
	s := signertest.Start(t, "", alice)
	if _, err := s.Sign(t.Context(), request(t, "alice")); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(s.Log)
	must(t, err)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	small := was
	small.Cur = uint64(len(before)) + 10 // as a disk with 10 bytes left
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &small))
	_, err = s.Sign(t.Context(), request(t, "alice"))
	if failed := unix.Setrlimit(unix.RLIMIT_FSIZE, &was); failed != nil {
		t.Fatal(failed)
	}
	if fault.CodeOf(err) != signer.Away || !strings.Contains(err.Error(), "log cannot be written") {
		t.Errorf("a full disk: %v", err)
	}
	if after, err := os.ReadFile(s.Log); err != nil || string(after) != string(before) {
		t.Errorf("%v: %q became %q", err, before, after)
	}
	// logrotate renames the file and signals no process.
	must(t, os.Rename(s.Log, s.Log+".1"))
	if _, err := s.Sign(t.Context(), request(t, "alice")); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(s.Log); err != nil || st.Size() < 100 || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	must(t, os.Rename(s.Log, s.Log+".2"))
	must(t, os.Mkdir(s.Log, 0o700))
	if _, err := s.Sign(t.Context(), request(t, "alice")); fault.CodeOf(err) != signer.Away {
		t.Errorf("a folder in the log's place: %v", err)
	}
}

// The key may be an agent's; the signer queries it each time, and reports when it is unavailable.
//
// proves SITE-08
func TestAgent(t *testing.T) {
	s := signertest.Start(t, "", alice)
	dir := t.TempDir()
	socket, public := filepath.Join(dir, "agent"), filepath.Join(dir, "ca.pub")
	key, err := ssh.ParseRawPrivateKey(signertest.NewKey(t))
	must(t, err)
	other, err := ssh.ParseRawPrivateKey(signertest.NewKey(t))
	must(t, err)
	own, err := ssh.NewSignerFromKey(key)
	must(t, err)
	must(t, os.WriteFile(public, ssh.MarshalAuthorizedKey(own.PublicKey()), 0o600))
	keys := agent.NewKeyring()
	for _, k := range []any{other, key} {
		must(t, keys.Add(agent.AddedKey{PrivateKey: k}))
	}
	l, err := net.Listen("unix", socket)
	must(t, err)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_ = agent.ServeAgent(keys, c) // ends with the connection
			}()
		}
	}()
	config := s.Config("ca: {agent: " + socket + ", public_key: " + public + "}\nsocket: " + s.Socket + "2\n")
	s.Serve(config, os.Getuid())
	c := signer.Client{Socket: s.Socket + "2"}
	cert, err := c.Sign(t.Context(), request(t, "alice"))
	if err != nil || ssh.FingerprintSHA256(cert.SignatureKey) != ssh.FingerprintSHA256(own.PublicKey()) {
		t.Fatal(cert, err)
	}
	must(t, keys.Remove(own.PublicKey()))
	_, err = c.Sign(t.Context(), request(t, "alice"))
	if fault.CodeOf(err) != signer.Away || !strings.Contains(err.Error(), "does not have") {
		t.Error(err)
	}
	l.Close()
	if _, err := c.Sign(t.Context(), request(t, "alice")); fault.CodeOf(err) != signer.Away || !strings.Contains(err.Error(), "agent") {
		t.Error(err)
	}
	if _, err := signer.New(t.Context(), config, s.Users, nil, slog.New(slog.DiscardHandler)); fault.CodeOf(err) != signer.Away {
		t.Errorf("a signer started without its key: %v", err)
	}
}

// A socket that a dead signer left is replaced; what else is at its path stays.
func TestSocketPath(t *testing.T) {
	s := signertest.Start(t, "", alice)
	if _, err := s.Config("").Listen(t.Context(), s.Users); fault.CodeOf(err) != "socket_in_use" {
		t.Errorf("a second signer: %v", err)
	}
	_, err := s.Config("socket: "+s.Log+"\n").Listen(t.Context(), s.Users)
	if err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("a file in its place: %v", err)
	}
	s.Users.Join("gateways", os.Getgid())
	path := s.Socket + "3"
	for range 2 {
		l, err := s.Config("socket_group: gateways\nsocket: "+path+"\n").Listen(t.Context(), s.Users)
		must(t, err)
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o660 {
			t.Errorf("%v %v", st, err)
		}
		l.Close() // and its file stays, as that of a process that died
	}
	if _, err := s.Config("socket_group: nosuch\n").Listen(context.Background(), s.Users); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var alice = nss.User{Name: "alice", UID: 2001, GID: 2001, Home: "/home/alice", Shell: "/bin/bash"}

// request returns a request for a certificate for a new key.
func request(t *testing.T, user string) signer.Request {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	key, err := ssh.NewPublicKey(public)
	must(t, err)
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
	must(t, err)
	if got := cert.KeyId; got != "slurmgate gateway=lab run=r1 caller=oidc:https://id.lab.example|al%20ice%3D%0A%1B[2J" {
		t.Errorf("key id %q", got)
	}
	if len(cert.ValidPrincipals) != 1 || cert.ValidPrincipals[0] != "alice" || len(cert.Extensions) != 0 ||
		len(cert.CriticalOptions) != 1 || cert.CriticalOptions["source-address"] != "127.0.0.1/32,::1/128" {
		t.Errorf("the certificate has principals %q, extensions %v and options %v, want alice, none, two addresses", cert.ValidPrincipals,
			cert.Extensions, cert.CriticalOptions)
	}
	from, to := time.Unix(int64(cert.ValidAfter), 0), time.Unix(int64(cert.ValidBefore), 0)
	if signed := time.Now(); from.Before(began.Add(-61*time.Second)) || from.After(signed.Add(-time.Minute)) || to.Sub(from) != 6*time.Minute {
		t.Errorf("a certificate that was signed between %s and %s is valid from %s to %s, want a minute before to five after", began, signed,
			from, to)
	}
	if authority := string(ssh.MarshalAuthorizedKey(cert.SignatureKey)); !strings.HasPrefix(s.CA, strings.TrimSpace(authority)) {
		t.Errorf("%s signed it; the CA is %s", authority, s.CA)
	}
	log, err := os.ReadFile(s.Log)
	if err != nil || strings.Count(string(log), "\n") != 1 || !strings.Contains(string(log), `"event":"signed"`) {
		t.Errorf("%v\n%s", err, log)
	}
}
