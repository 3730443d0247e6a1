// Package sshtest is an SSH server for tests: that of x/crypto, in the process of the test, with a real /bin/sh and a
// given profile. Tests must also pass with OpenSSH on the dev cluster.
package sshtest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
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

// Server is an SSH server with its counters.
type Server struct {
	Address string
	Dir     string // of what follows
	Known   string // known_hosts, with the server's key
	Key     string // the private key of the only user, under any name
	HostKey ssh.Signer
	UserKey ssh.Signer

	Allowed  atomic.Int64 // sessions at a time on all connections; 10
	Logins   atomic.Int64 // tried
	Accepted atomic.Int64 // connections
	Deaf     atomic.Bool  // connections are closed at once
	Frozen   atomic.Bool  // keep-alives are not answered any more
	Mute     atomic.Bool  // the SFTP server answers only the init packet

	t        *testing.T
	profile  string // run before the command, with its standard input
	sessions atomic.Int64
	sftp     atomic.Pointer[func(ch io.ReadWriteCloser)]

	mu     sync.Mutex
	config *ssh.ServerConfig // see Configure
	listen net.Listener
	conns  []net.Conn
}

// NewKey creates a key, and returns it with its file.
func NewKey(t *testing.T) (ssh.Signer, []byte) {
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

// Serve starts a server. Its login shell runs profile before a command, with the command's standard input.
func Serve(t *testing.T, profile string) *Server {
	t.Helper()
	s := &Server{t: t, Dir: t.TempDir(), profile: profile}
	s.Known, s.Key = filepath.Join(s.Dir, "known_hosts"), filepath.Join(s.Dir, "key")
	s.Allowed.Store(10)
	s.HostKey, _ = NewKey(t)
	var file []byte
	s.UserKey, file = NewKey(t)
	must(t, os.WriteFile(s.Key, file, 0o600))
	s.config = &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.Logins.Add(1)
		if bytes.Equal(key.Marshal(), s.UserKey.PublicKey().Marshal()) {
			return nil, nil
		}
		return nil, errors.New("no")
	}}
	s.config.AddHostKey(s.HostKey)
	var err error
	s.listen, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s.Address = s.listen.Addr().String()
	t.Cleanup(func() {
		s.listen.Close()
		s.Cut()
	})
	go s.accept(s.listen)
	s.Know(knownhosts.Line([]string{s.Address}, s.HostKey.PublicKey()))
	return s
}

// Know writes known_hosts.
func (s *Server) Know(lines string) {
	s.t.Helper()
	must(s.t, os.WriteFile(s.Known, []byte(lines+"\n"), 0o600))
}

func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.Accepted.Add(1)
		if s.Deaf.Load() {
			c.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		go s.connection(c)
	}
}

// Configure changes the server's configuration for later connections.
func (s *Server) Configure(change func(*ssh.ServerConfig)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.config)
}

// Trust lets users log in only with certificates of an authority.
func (s *Server) Trust(authority ssh.PublicKey) {
	check := &ssh.CertChecker{IsUserAuthority: func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), authority.Marshal()) }}
	s.Configure(func(c *ssh.ServerConfig) {
		c.PublicKeyCallback = func(m ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			s.Logins.Add(1)
			if _, ok := k.(*ssh.Certificate); !ok {
				return nil, errors.New("certificates only")
			}
			return check.Authenticate(m, k)
		}
	})
}

// Credentials returns a function for [remote.Config.Credentials]: it creates a new key with a certificate.
func Credentials(authority ssh.Signer, user string, life time.Duration) func(context.Context) (ssh.Signer, time.Time, error) {
	return func(context.Context) (ssh.Signer, time.Time, error) {
		until := time.Now().Add(life)
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, until, err
		}
		key, err := ssh.NewSignerFromKey(private)
		if err != nil {
			return nil, until, err
		}
		cert := &ssh.Certificate{Key: key.PublicKey(), CertType: ssh.UserCert, KeyId: "test", ValidPrincipals: []string{user},
			ValidAfter: uint64(time.Now().Add(-time.Minute).Unix()), ValidBefore: uint64(until.Unix())}
		if err := cert.SignCert(rand.Reader, authority); err != nil {
			return nil, until, err
		}
		both, err := ssh.NewCertSigner(cert, key)
		return both, until, err
	}
}

// SFTP sets a function that serves the SFTP channels instead of a real server.
func (s *Server) SFTP(serve func(ch io.ReadWriteCloser)) { s.sftp.Store(&serve) }

// Cut ends all connections.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
	s.conns = nil
}

func (s *Server) connection(c net.Conn) {
	s.mu.Lock()
	config := *s.config
	s.mu.Unlock()
	conn, channels, requests, err := ssh.NewServerConn(c, &config)
	if err != nil {
		c.Close()
		return
	}
	defer conn.Close()
	go func() {
		for r := range requests {
			if r.WantReply && !s.Frozen.Load() {
				r.Reply(false, nil)
			}
		}
	}()
	for n := range channels {
		switch n.ChannelType() {
		case "session":
			if s.sessions.Add(1) > s.Allowed.Load() {
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

func (s *Server) session(ch ssh.Channel, requests <-chan *ssh.Request) {
	defer s.sessions.Add(-1)
	for r := range requests {
		var what struct{ Text string }
		ssh.Unmarshal(r.Payload, &what)
		switch {
		case r.Type == "exec" && what.Text == "/bin/sh -s":
			r.Reply(true, nil)
			go s.exec(ch)
		case r.Type == "subsystem" && what.Text == "sftp":
			r.Reply(true, nil)
			if serve := s.sftp.Load(); serve != nil {
				go (*serve)(ch)
				continue
			}
			io.WriteString(ch, "Welcome!\n")
			if s.Mute.Load() {
				continue
			}
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

func (s *Server) exec(ch ssh.Channel) {
	cmd := exec.Command("/bin/sh", "-c", s.profile+"\n/bin/sh -s")
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
