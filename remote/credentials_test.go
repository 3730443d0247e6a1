package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"slurmgate/fault"
	"slurmgate/remote/sshtest"
)

// caller is a host whose server trusts an authority, with counters of the authority.
type caller struct {
	server *sshtest.Server
	config Config
	signed atomic.Int64
	refuse atomic.Pointer[fault.Error]
}

func asCaller(t *testing.T, life time.Duration) *caller {
	t.Helper()
	s, config := serve(t, "")
	authority, _ := sshtest.NewKey(t)
	s.Trust(authority.PublicKey())
	c := &caller{server: s, config: config}
	c.config.User, c.config.Key = "alice", ""
	sign := sshtest.Credentials(authority, "alice", life+time.Hour) // the server's clock counts whole seconds
	c.config.Credentials = func(ctx context.Context) (ssh.Signer, time.Time, error) {
		if err := c.refuse.Load(); err != nil {
			return nil, time.Time{}, err
		}
		c.signed.Add(1)
		key, _, err := sign(ctx)
		return key, time.Now().Add(life), err
	}
	return c
}

// now returns the connection for new calls.
func (h *Host) now(t *testing.T) *link {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == nil {
		t.Fatal("no connection")
	}
	return h.link
}

// Each connection has a separate key and certificate, and calls share the connection.
//
// proves SITE-08
func TestCredentials(t *testing.T) {
	c := asCaller(t, time.Hour)
	h := open(t, c.config)
	ok(t, h)
	ok(t, h)
	if n := c.signed.Load(); n != 1 {
		t.Errorf("%d certificates for one connection", n)
	}
	client, err := h.More(t.Context())
	must(t, err)
	client.Close()
	c.server.Cut()
	<-h.now(t).gone
	ok(t, h)
	if n := c.signed.Load(); n != 3 {
		t.Errorf("%d certificates for three connections", n)
	}
	bad := c.config
	bad.Key = c.server.Key
	if _, err := New(bad, h.log); !fault.Is(err, fault.Validation) {
		t.Error(err)
	}
}

// An error of the signer reaches the caller with its own code, and proves that nothing was started. So does a refused
// login, after which the host is not contacted for minutes.
//
// proves SITE-08
func TestCredentialsRefused(t *testing.T) {
	c := asCaller(t, time.Hour)
	h := open(t, c.config)
	c.refuse.Store(fault.New(fault.Policy, "user_refused", "alice is in the group sudo"))
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); !fault.Is(err, fault.Policy) || fault.CodeOf(err) != "user_refused" ||
		!NotStarted(err) {
		t.Error(err)
	}
	if n := c.server.Logins.Load(); n != 0 {
		t.Errorf("%d logins without a certificate", n)
	}
	c.refuse.Store(nil)
	ok(t, h)

	other, _ := sshtest.NewKey(t)
	c.server.Trust(other.PublicKey())
	h = open(t, c.config)
	h.timing.refused = time.Hour
	for range 3 {
		_, err := h.Run(t.Context(), Call{Script: "true", Limit: 1})
		if !fault.Is(err, fault.Transport) || fault.CodeOf(err) != Refused || !NotStarted(err) || fault.RetryOf(err) < 250 ||
			!strings.Contains(err.Error(), "alice") || !strings.Contains(err.Error(), c.server.Address) ||
			!strings.Contains(err.Error(), "TrustedUserCAKeys") {
			t.Errorf("%v (retry %d)", err, fault.RetryOf(err))
		}
	}
	if n := c.server.Accepted.Load(); n != 2 {
		t.Errorf("%d connections: a refused login was tried again at once", n)
	}

	c = asCaller(t, time.Hour)
	h = open(t, c.config)
	h.timing.refused = time.Hour
	ok(t, h)
	c.server.Trust(other.PublicKey())
	for range 3 {
		if _, err := h.More(t.Context()); fault.CodeOf(err) != Refused {
			t.Error(err)
		}
	}
	ok(t, h) // over the existing connection
	if n := c.server.Accepted.Load(); n != 2 {
		t.Errorf("%d connections: a refused login was tried again for each transfer", n)
	}
}

// New calls use a new connection before the certificate ends. Running calls finish on the old one, which then closes.
// Neither counts as a loss.
//
// proves SITE-08
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	c := asCaller(t, time.Second)
	h := open(t, c.config)
	h.timing.quiet, h.timing.grace = 10*time.Millisecond, time.Hour
	dir := t.TempDir()
	done := make(chan error, 1)
	go func() {
		_, err := h.Run(t.Context(), Call{Script: `touch "$1"/up; while [ ! -e "$1"/end ]; do sleep 0.01; done`, Args: []string{dir}, Limit: 1})
		done <- err
	}()
	await(t, dir+"/up")
	old := h.now(t)
	must(t, untilTime(t.Context(), old.until))
	ok(t, h)
	if h.now(t) == old || !old.works() {
		t.Error("a call after the end of the certificate had no new connection, or ended the call under way")
	}
	if _, err := h.Run(t.Context(), Call{Script: `touch "$1"/end`, Args: []string{dir}, Limit: 1}); err != nil {
		t.Error(err)
	}
	must(t, <-done)
	<-old.gone
	<-h.now(t).gone // the connection without calls
	ok(t, h)
	if _, lost := h.State(); lost != 0 {
		t.Errorf("%d connections count as lost", lost)
	}
}

// untilTime waits until a time.
func untilTime(ctx context.Context, at time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, at)
	defer cancel()
	<-ctx.Done()
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return nil
}

// A call that continues long after the end of its certificate is cut.
//
// proves SITE-08
func TestCallEndsWithItsCertificate(t *testing.T) {
	for life := 200 * time.Millisecond; ; life *= 2 { // until the script starts within that time
		h := open(t, asCaller(t, life).config)
		h.timing.grace = 100 * time.Millisecond
		_, err := h.Run(t.Context(), Call{Script: "sleep 600", Limit: 1, Once: true})
		if NotStarted(err) && life < time.Minute {
			continue
		}
		if fault.CodeOf(err) != Cut {
			t.Errorf("a call that outlives a certificate of %s ended with %v, want %s", life, err, Cut)
		}
		if _, lost := h.State(); lost != 0 {
			t.Errorf("%d connections count as lost", lost)
		}
		return
	}
}

// An idle connection is closed. An open SFTP channel does not count as use; a request on it does.
//
// proves SITE-08
func TestIdle(t *testing.T) {
	c := asCaller(t, time.Hour)
	c.config.Idle = time.Second // a busy machine takes less between two steps of the test
	h := open(t, c.config)
	if _, err := h.Run(t.Context(), Call{Script: "sleep 2", Limit: 1}); err != nil {
		t.Error(err)
	}
	for range 2 {
		client, err := h.SFTP(t.Context())
		must(t, err)
		_, err = client.ReadDir(c.server.Dir)
		must(t, err)
		l := h.now(t)
		<-l.gone
		client.Close()
		if l.calls != 0 {
			t.Errorf("%d calls are under way on a closed connection", l.calls)
		}
	}
	client, err := h.More(t.Context())
	must(t, err)
	if err := client.Wait(); err == nil { // an additional connection closes too
		t.Error("no error at the end of a connection")
	}
	ok(t, h)
	if _, lost := h.State(); lost != 0 {
		t.Errorf("%d connections count as lost", lost)
	}
}

// review decides when a connection ends. This is pure arithmetic; other tests use real connections.
func TestReview(t *testing.T) {
	base := time.Unix(1_000_000, 0)
	at := func(s float64) time.Time { return base.Add(time.Duration(s * float64(time.Second))) }
	const idle = 60 * time.Second
	for _, x := range []struct {
		now, last float64
		calls     int
		idle      time.Duration
		ends      bool // the link has a certificate until 300, and is renewed from 270
		wait      float64
	}{
		{now: 10, last: 0, idle: idle, wait: 50},
		{now: 59, last: 0, idle: idle, wait: 1},
		{now: 60, last: 0, idle: idle, wait: 0},
		{now: 60, last: 0, calls: 1, idle: idle, wait: 60},
		{now: 10, last: 0, ends: true, wait: 260},
		{now: 10, last: 0, ends: true, idle: idle, wait: 50},
		{now: 269, last: 268, ends: true, wait: 1},
		{now: 270, last: 269, ends: true, wait: 1},
		{now: 271, last: 269, ends: true, wait: 0},
		{now: 271, last: 200, calls: 1, ends: true, wait: 2},
		{now: 359, last: 200, calls: 1, ends: true, wait: 1},
		{now: 360, last: 200, calls: 1, ends: true, wait: 0},
		{now: 360, last: 360, ends: true, wait: 0},
	} {
		l := &link{last: at(x.last), calls: x.calls, closeAll: func() {}}
		if x.ends {
			l.until, l.renew = at(300), at(270)
		}
		if got := l.review(at(x.now), x.idle, usual); got != at(x.wait).Sub(base) || (got == 0) != (l.ended() != "") {
			t.Errorf("%+v: %s, ended %q", x, got, l.ended())
		}
	}
}

// Drop ends running calls and attempts to connect. The next call logs in again.
//
// proves SITE-08
func TestDrop(t *testing.T) {
	c := asCaller(t, time.Hour)
	h := open(t, c.config)
	dir := t.TempDir()
	further, err := h.More(t.Context())
	must(t, err)
	go func() {
		await(t, dir+"/up")
		h.Drop("the account was withdrawn")
	}()
	if _, err := h.Run(t.Context(), Call{Script: `touch "$1"/up; sleep 60`, Args: []string{dir}, Limit: 1}); fault.CodeOf(err) != Cut {
		t.Error(err)
	}
	further.Wait()
	ok(t, h)
	if _, lost := h.State(); c.signed.Load() != 3 || lost != 0 {
		t.Errorf("%d certificates, %d losses", c.signed.Load(), lost)
	}
	h = open(t, c.config)
	ask := h.cfg.Credentials
	h.cfg.Credentials = func(ctx context.Context) (ssh.Signer, time.Time, error) {
		defer h.Drop("the account was withdrawn")
		return ask(ctx)
	}
	if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); !NotStarted(err) || !strings.Contains(err.Error(), "was withdrawn") {
		t.Error(err)
	}
}

// Hosts that share Logins make at most that many logins at a time.
func TestLogins(t *testing.T) {
	c := asCaller(t, time.Hour)
	c.config.Logins = make(chan struct{}, 2)
	var under, most atomic.Int64
	ask := c.config.Credentials
	c.config.Credentials = func(ctx context.Context) (ssh.Signer, time.Time, error) {
		defer under.Add(-1)
		for n := under.Add(1); ; {
			if was := most.Load(); n <= was || most.CompareAndSwap(was, n) {
				return ask(ctx)
			}
		}
	}
	var all sync.WaitGroup
	for range 20 {
		h := open(t, c.config)
		all.Go(func() {
			if _, err := h.Run(t.Context(), Call{Script: "true", Limit: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > 2 {
		t.Errorf("%d at a time", n)
	}
	c.config.Logins <- struct{}{}
	c.config.Logins <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.config.dial(ctx); fault.CodeOf(err) != Unreachable {
		t.Error(err)
	}
}

// An SFTP server that a user has substituted cannot keep a request running for ever, or fill the memory with names.
//
// proves SITE-08
func TestServerOfTheUser(t *testing.T) {
	u32 := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	packet := func(kind byte, parts ...[]byte) []byte {
		body := append([]byte{kind}, slices.Concat(parts...)...)
		return append(u32(uint32(len(body))), body...)
	}
	name := slices.Concat(u32(1), []byte("x"), u32(0), u32(0)) // no attributes
	for what, answer := range map[string]func(id []byte) []byte{
		"no data":                    func(id []byte) []byte { return packet(sftpData, id, u32(0)) },
		"names":                      func(id []byte) []byte { return packet(sftpName, id, u32(1000), bytes.Repeat(name, 1000)) },
		"a packet that is too short": func(id []byte) []byte { return packet(sftpName, id) },
		"a count of too many":        func(id []byte) []byte { return packet(sftpName, id, u32(4_000_000_000)) },
	} {
		t.Run(what, func(t *testing.T) {
			c := asCaller(t, time.Hour)
			var answered atomic.Int64
			c.server.SFTP(func(ch io.ReadWriteCloser) {
				defer ch.Close()
				for {
					head := make([]byte, 4)
					if _, err := io.ReadFull(ch, head); err != nil {
						return
					}
					body := make([]byte, binary.BigEndian.Uint32(head))
					if _, err := io.ReadFull(ch, body); err != nil {
						return
					}
					switch body[0] {
					case 1: // init
						ch.Write(packet(2, u32(3)))
					case 3, 11: // open, opendir
						ch.Write(packet(102, body[1:5], u32(1), []byte("h")))
					case 5, 12: // read, readdir
						answered.Add(1)
						ch.Write(answer(body[1:5]))
					default:
						ch.Write(packet(101, body[1:5], u32(0), u32(0), u32(0)))
					}
				}
			})
			h := open(t, c.config)
			client, err := h.SFTP(t.Context())
			must(t, err)
			if list, err := client.ReadDir("/"); err == nil {
				t.Errorf("%d names", len(list))
			}
			client, err = h.SFTP(t.Context())
			must(t, err)
			if f, err := client.Open("/x"); err != nil {
				t.Error(err)
			} else if n, err := f.ReadAt(make([]byte, 10), 0); err == nil {
				t.Errorf("%d bytes", n)
			}
			if n := answered.Load(); n > 2*maxNames/1000 {
				t.Errorf("%d answers were taken", n)
			}
			ok(t, h)
		})
	}
}

// packets counts the packets of a stream for any division into parts.
func TestPackets(t *testing.T) {
	stream := []byte("\x00\x00\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x05hello\x00\x00\x00\x02x")
	for size := 1; size <= len(stream); size++ {
		p, n := packets{}, 0
		for i := 0; i < len(stream); i += size {
			n += p.pass(stream[i:min(i+size, len(stream))])
		}
		if n != 3 || p.rest != 1 {
			t.Error(fmt.Sprint("in parts of ", size, ": ", n, " packets"))
		}
	}
}
