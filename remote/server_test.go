package remote

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// server is an SSH server in this process whose login shell is /bin/sh with a profile. The suite of tests passes against OpenSSH too, see
// TestClusterSSH.
type server struct {
	t       *testing.T
	address string
	dir     string
	hostKey ssh.Signer
	config  *ssh.ServerConfig
	profile string // run before the command, with its standard input
	listen  net.Listener

	sessions atomic.Int64 // open now
	allowed  atomic.Int64 // sessions at a time
	logins   atomic.Int64 // tried
	accepted atomic.Int64 // connections
	deaf     atomic.Bool  // connections are closed at once
	frozen   atomic.Bool  // nothing is answered any more

	mu    sync.Mutex
	conns []net.Conn
}

func newKey(t *testing.T) (ssh.Signer, []byte) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	signer, err := ssh.NewSignerFromKey(private)
	must(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	must(t, err)
	return signer, pem.EncodeToMemory(block)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve starts a server that accepts the key of the Config.
func serve(t *testing.T, profile string) (*server, Config) {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), profile: profile}
	s.allowed.Store(10)
	s.hostKey, _ = newKey(t)
	user, file := newKey(t)
	must(t, os.WriteFile(filepath.Join(s.dir, "key"), file, 0o600))
	s.config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.logins.Add(1)
		if bytes.Equal(key.Marshal(), user.PublicKey().Marshal()) {
			return nil, nil
		}
		return nil, errors.New("no")
	}}
	s.config.AddHostKey(s.hostKey)
	var err error
	s.listen, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s.address = s.listen.Addr().String()
	t.Cleanup(func() {
		s.listen.Close()
		s.cut()
	})
	go s.accept(s.listen)
	s.know(knownhosts.Line([]string{s.address}, s.hostKey.PublicKey()))
	return s, Config{Address: s.address, User: "lab", KnownHosts: []string{filepath.Join(s.dir, "known_hosts")},
		Key: filepath.Join(s.dir, "key")}
}

// know writes known_hosts.
func (s *server) know(lines string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.dir, "known_hosts"), []byte(lines+"\n"), 0o600))
}

func (s *server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.accepted.Add(1)
		if s.deaf.Load() {
			c.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		go s.connection(c)
	}
}

// cut ends all connections.
func (s *server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *server) connection(c net.Conn) {
	conn, channels, requests, err := ssh.NewServerConn(c, s.config)
	if err != nil {
		c.Close()
		return
	}
	defer conn.Close()
	go func() {
		for r := range requests {
			if r.WantReply && !s.frozen.Load() {
				r.Reply(false, nil)
			}
		}
	}()
	for n := range channels {
		switch n.ChannelType() {
		case "session":
			if s.sessions.Add(1) > s.allowed.Load() {
				s.sessions.Add(-1)
				n.Reject(ssh.ConnectionFailed, "open failed")
				continue
			}
			ch, requests, err := n.Accept()
			if err == nil {
				go s.session(ch, requests)
			}
		case "direct-tcpip":
			go forward(n)
		default:
			n.Reject(ssh.UnknownChannelType, "no")
		}
	}
}

func forward(n ssh.NewChannel) {
	var to struct {
		Host  string
		Port  uint32
		From  string
		FromN uint32
	}
	ssh.Unmarshal(n.ExtraData(), &to)
	out, err := net.Dial("tcp", net.JoinHostPort(to.Host, fmt.Sprint(to.Port)))
	if err != nil {
		n.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	ch, requests, err := n.Accept()
	if err != nil {
		out.Close()
		return
	}
	go ssh.DiscardRequests(requests)
	go func() {
		io.Copy(ch, out)
		ch.Close()
	}()
	io.Copy(out, ch)
	out.Close()
}

func (s *server) session(ch ssh.Channel, requests <-chan *ssh.Request) {
	defer s.sessions.Add(-1)
	for r := range requests {
		var what struct{ Text string }
		ssh.Unmarshal(r.Payload, &what)
		switch {
		case r.Type == "exec" && what.Text == command:
			r.Reply(true, nil)
			go s.exec(ch)
		case r.Type == "subsystem" && what.Text == "sftp":
			r.Reply(true, nil)
			io.WriteString(ch, "Welcome!\n")
			if server, err := sftp.NewServer(ch); err == nil {
				go func() {
					server.Serve()
					ch.Close()
				}()
			}
		case r.WantReply:
			r.Reply(false, nil)
		}
	}
}

func (s *server) exec(ch ssh.Channel) {
	cmd := exec.Command("/bin/sh", "-c", s.profile+"\n"+command)
	cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
	in, err := cmd.StdinPipe()
	must(s.t, err)
	go func() {
		io.Copy(in, ch)
		in.Close()
	}()
	cmd.WaitDelay = time.Second
	cmd.Run()
	ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(max(0, cmd.ProcessState.ExitCode()))}))
	ch.Close()
}

// open makes a Host with short times.
func open(t *testing.T, c Config) *Host {
	t.Helper()
	h, err := New(c, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(h.Close)
	h.timing = timing{first: 20 * time.Millisecond, longest: 200 * time.Millisecond, patience: time.Second, alive: 500 * time.Millisecond,
		hello: 10 * time.Second, busy: time.Second}
	return h
}
