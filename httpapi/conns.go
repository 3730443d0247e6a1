package httpapi

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"slurmgate/fault"
)

// Limits bound the connections of a socket or a port. 0 is no bound.
type Limits struct {
	Connections int // open at a time
	PerCaller   int // of these, of one caller
	PerAddress  int // of these, from one address or user, as long as no request has said whose they are
}

// conns are the open connections of a listener. A connection belongs to the caller of its latest request; before the
// first, to its address or user. When places run short, an idle one is closed: of the owner with the most of them,
// the oldest. So a client with many open connections loses them, and a new connection is accepted.
type conns struct {
	Limits
	mu     sync.Mutex
	open   int
	owners map[string]*holder
}

// holder is a caller, or an address or user whose connections have not said whose they are.
type holder struct {
	name  string
	open  int
	spare *list.List // of *conn: those that can be closed, the oldest first
}

// conn is a connection in the table.
type conn struct {
	net.Conn
	table  *conns
	source string // the address, or uid:N
	uid    int    // of the user at the other end of a unix socket; -1: of none
	pid    int    // of the process there, as it connected

	// Under conns.mu.
	owner  *holder
	caller bool          // the owner is a caller
	at     *list.Element // in owner.spare; nil: it cannot be closed now
	gone   bool
}

func newConns(l Limits) *conns { return &conns{Limits: l, owners: map[string]*holder{}} }

// anonymous returns the name of the owner of a connection before its first request. No caller's key begins like this.
func anonymous(source string) string { return "?" + source }

// enter makes room for a connection and adds it. It returns nil if there is no room: every connection serves a request.
func (t *conns) enter(c net.Conn, source string, uid int) *conn {
	n := &conn{Conn: c, table: t, source: source, uid: uid}
	t.mu.Lock()
	var victim *conn
	switch o := t.owners[anonymous(source)]; {
	case t.PerAddress > 0 && o != nil && o.open >= t.PerAddress:
		victim = o.oldest()
	case t.Connections > 0 && t.open >= t.Connections:
		if victim = t.greediest(); victim == nil {
			t.mu.Unlock()
			return nil
		}
	}
	if victim != nil {
		victim.leave()
	}
	t.open++
	n.join(anonymous(source))
	n.at = n.owner.spare.PushBack(n)
	t.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close()
	}
	return n
}

// oldest returns the connection to close if one of the owner's is to be closed; nil: none can be.
func (o *holder) oldest() *conn {
	if e := o.spare.Front(); e != nil {
		return e.Value.(*conn)
	}
	return nil
}

func (t *conns) greediest() *conn {
	var most *holder
	for _, o := range t.owners {
		if o.spare.Len() > 0 && (most == nil || o.spare.Len() > most.spare.Len()) {
			most = o
		}
	}
	if most == nil {
		return nil
	}
	return most.oldest()
}

func (c *conn) join(name string) {
	o := c.table.owners[name]
	if o == nil {
		o = &holder{name: name, spare: list.New()}
		c.table.owners[name] = o
	}
	o.open++
	c.owner = o
}

// part takes the connection from its owner.
func (c *conn) part() {
	c.use()
	if c.owner.open--; c.owner.open == 0 {
		delete(c.table.owners, c.owner.name)
	}
}

// use keeps the connection from being closed to make room.
func (c *conn) use() {
	if c.at != nil {
		c.owner.spare.Remove(c.at)
		c.at = nil
	}
}

// leave takes the connection out of the table.
func (c *conn) leave() {
	if !c.gone {
		c.gone = true
		c.part()
		c.table.open--
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.table.mu.Lock()
	c.leave()
	c.table.mu.Unlock()
	return c.Conn.Close()
}

// SyscallConn implements [syscall.Conn].
func (c *conn) SyscallConn() (syscall.RawConn, error) { return c.Conn.(syscall.Conn).SyscallConn() }

// belongs assigns the connection to the caller of a request. If the caller has as many connections at work as it may,
// it is refused.
func (c *conn) belongs(caller string) error {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.gone || c.caller && c.owner.name == caller {
		return nil // it is closed already, or was this caller's before
	}
	if o := t.owners[caller]; o != nil && t.PerCaller > 0 && o.open >= t.PerCaller {
		victim := o.oldest()
		if victim == nil {
			return fault.New(fault.Transport, "too_many_connections",
				fmt.Sprintf("all %d connections that one caller may have are at work", t.PerCaller)).
				WithNext("close some, or repeat the request in a few seconds").WithRetry(retryIn)
		}
		victim.leave()
		go victim.Conn.Close()
	}
	c.part()
	c.join(caller)
	c.caller = true
	return nil
}

const retryIn = 2 // seconds

// state follows the server's states of a connection: between two requests it can be closed. One without a caller can
// be closed at any time.
func (t *conns) state(c net.Conn, s http.ConnState) {
	n, ok := c.(*conn)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case n.gone || !n.caller:
	case s == http.StateActive:
		n.use()
	case s == http.StateIdle && n.at == nil:
		n.at = n.owner.spare.PushBack(n)
	}
}

// door is a listener whose connections are in a table. It never waits for room.
type door struct {
	net.Listener
	*conns
	guard atomic.Pointer[guard] // nil: everybody may connect
}

// guard decides which users of this host may connect, before anything is read.
type guard struct {
	known  func(uid int) bool // nil: every one
	turned func(uid int)      // is called for a user who was turned away
}

// admit sets which users may connect from now on.
func (d *door) admit(c SocketConfig) {
	d.guard.Store(&guard{c.Known, (&rejectedUsers{report: c.Turned}).add})
}

// limit sets the limits for connections that come from now on.
func (t *conns) limit(l Limits) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Limits = l
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source, uid, pid := addressOf(client(c.RemoteAddr().String(), nil, nil)), -1, 0
		if s, ok := c.(syscall.Conn); ok && c.LocalAddr().Network() == "unix" {
			if uid, pid, err = peer(s); err != nil {
				_ = c.Close() // the peer has closed the connection
				continue
			}
			source = userSource(uid)
			if g := d.guard.Load(); g != nil && g.known != nil && !g.known(uid) {
				lastWords(s, unknownUser)
				_ = c.Close()
				g.turned(uid)
				continue
			}
		}
		if n := d.enter(c, source, uid); n != nil {
			n.pid = pid
			return n, nil
		}
		lastWords(c.(syscall.Conn), noRoom)
		_ = c.Close()
	}
}

// lastWords sends an answer without waiting: a fresh connection has room for it.
func lastWords(c syscall.Conn, answer []byte) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Write(func(fd uintptr) bool {
			_, _ = syscall.Write(int(fd), answer)
			return true
		})
	}
}

// noRoom is the answer on a connection for which there is no room.
var noRoom = closing(http.StatusServiceUnavailable, fault.New(fault.Transport, "too_many_connections",
	"all connections of this gateway are at work").WithNext("repeat the request in a few seconds").WithRetry(retryIn))

// unknownUser is the answer to a user without a grant.
var unknownUser = closing(http.StatusUnauthorized, fault.New(fault.Auth, "unauthenticated",
	"this gateway does not know your user").WithNext("ask the gateway's administrator for an entry in access.peers of the site file"))

// closing returns the whole answer on a connection that is then closed.
func closing(status int, err error) []byte {
	body, _ := json.Marshal(describe(Words(fault.Step.String), status, err)) // it can be encoded
	h := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n", status, http.StatusText(status),
		problemType, len(body))
	if s := fault.RetryOf(err); s > 0 {
		h += fmt.Sprintf("Retry-After: %d\r\n", s)
	}
	return append([]byte(h+"\r\n"), body...)
}

// rejectedUsers counts the rejected users, and reports each at most once a second.
type rejectedUsers struct {
	report func(uid, n int)
	mu     sync.Mutex
	seen   map[int]rejections
}

type rejections struct {
	n        int // not reported yet
	reported time.Time
}

const maxRejected = 64 // users counted apart

func (t *rejectedUsers) add(uid int) {
	if t.report == nil {
		return
	}
	t.mu.Lock()
	if t.seen == nil || len(t.seen) >= maxRejected {
		t.seen = map[int]rejections{}
	}
	u := t.seen[uid]
	u.n++
	n := u.n
	switch wait := time.Second - time.Since(u.reported); {
	case wait <= 0:
		u = rejections{reported: time.Now()}
	case n == 1:
		time.AfterFunc(wait, func() { t.rest(uid) })
		fallthrough
	default:
		n = 0
	}
	t.seen[uid] = u
	t.mu.Unlock()
	if n > 0 {
		t.report(uid, n)
	}
}

// rest reports the connections that followed within a second.
func (t *rejectedUsers) rest(uid int) {
	t.mu.Lock()
	n := t.seen[uid].n
	if n > 0 {
		t.seen[uid] = rejections{reported: time.Now()}
	}
	t.mu.Unlock()
	if n > 0 {
		t.report(uid, n)
	}
}

// connContext notes the connection of a request, and the peer of one to a unix socket.
func connContext(ctx context.Context, c net.Conn) context.Context {
	n, ok := c.(*conn)
	if !ok {
		return ctx
	}
	ctx = context.WithValue(ctx, connKey{}, n)
	if n.uid >= 0 {
		ctx = context.WithValue(ctx, peerKey{}, n.uid)
	}
	return ctx
}
