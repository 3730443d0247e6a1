package signer_test

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/sys/unix"

	"slurmgate/fault"
	"slurmgate/signer"
	"slurmgate/signer/signertest"
)

// say sends bytes to a socket and reads the answer's error.
func say(t *testing.T, socket, request string) (code, message string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
		t.Errorf("5 minutes were asked for, 2 are the most: %v %+v", err, cert)
	}
	about, err := s.About(t.Context())
	if err != nil || about.PublicKey != s.CA || about.Minutes != 2 || len(about.SourceAddresses) != 2 {
		t.Errorf("%+v %v", about, err)
	}
}

// Only the users of the configuration are answered, whoever can open the socket.
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

// A client that connects and says nothing holds up nobody, and when all places are taken the next one hears so at once.
func TestSlowClients(t *testing.T) {
	s := signertest.Start(t, "", alice)
	hang := func(n int) {
		for range n {
			c, err := net.Dial("unix", s.Socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
		}
	}
	hang(60)
	if _, err := s.Sign(t.Context(), request(t, "alice")); err != nil {
		t.Error(err)
	}
	hang(4)
	if _, err := s.Sign(t.Context(), request(t, "alice")); fault.CodeOf(err) != signer.Busy || fault.RetryOf(err) != 1 {
		t.Error(err)
	}
}

// A user's rate does not use up that of the others, and an error says when to come again.
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
	if err != nil {
		t.Fatal(err)
	}
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	small := was
	small.Cur = uint64(len(before)) + 10 // as a disk with 10 bytes left
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
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
	// logrotate moves the file away and tells nobody.
	if err := os.Rename(s.Log, s.Log+".1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign(t.Context(), request(t, "alice")); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(s.Log); err != nil || st.Size() < 100 || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	if err := os.Rename(s.Log, s.Log+".2"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(s.Log, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sign(t.Context(), request(t, "alice")); fault.CodeOf(err) != signer.Away {
		t.Errorf("a folder in the log's place: %v", err)
	}
}

// The key may be an agent's; the signer asks it anew each time, and says so when it has gone.
//
// proves SITE-08
func TestAgent(t *testing.T) {
	s := signertest.Start(t, "", alice)
	dir := t.TempDir()
	socket, public := filepath.Join(dir, "agent"), filepath.Join(dir, "ca.pub")
	key, err := ssh.ParseRawPrivateKey(signertest.NewKey(t))
	if err != nil {
		t.Fatal(err)
	}
	other, err := ssh.ParseRawPrivateKey(signertest.NewKey(t))
	if err != nil {
		t.Fatal(err)
	}
	own, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(public, ssh.MarshalAuthorizedKey(own.PublicKey()), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := agent.NewKeyring()
	for _, k := range []any{other, key} {
		if err := keys.Add(agent.AddedKey{PrivateKey: k}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := keys.Remove(own.PublicKey()); err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o660 {
			t.Errorf("%v %v", st, err)
		}
		l.Close() // and its file stays, as that of a process that died
	}
	if _, err := s.Config("socket_group: nosuch\n").Listen(context.Background(), s.Users); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}
