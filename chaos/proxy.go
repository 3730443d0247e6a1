package main

import (
	"bytes"
	"io"
	"maps"
	"net"
	"strings"
	"sync"
	"time"
)

// networkFaults describes the faults of the connections through a proxy.
type networkFaults struct {
	cuts  []cut         // the first connection is cut at the first of them, and so on
	delay time.Duration // in each direction
	lost  int           // of a hundred pieces, so many arrive a retransmission later
	moves bool          // after a cut, the next connection reaches another host
}

// cut ends a connection after so many bytes of one direction.
type cut struct {
	down  bool // from the server
	after int64
}

// retransmission is the delay of a lost piece.
const retransmission = 220 * time.Millisecond

// observed counts what connections through a proxy have met so far.
type observed struct {
	cuts    int // connections that were cut
	ended   int // connections that the other end closed or did not accept
	delayed int // bytes that came later
	late    int // pieces that came a retransmission later
	posts   int // requests of slurmrestd that may have an effect
	refused int // answers of slurmrestd that the token is not good
}

// less returns the counts since before.
func (f observed) less(before observed) observed {
	return observed{f.cuts - before.cuts, f.ended - before.ended, f.delayed - before.delayed, f.late - before.late, f.posts - before.posts,
		f.refused - before.refused}
}

// proxy connects a gateway to an sshd, or to slurmrestd. It cuts connections, delays what they carry, and leads to
// another host.
type proxy struct {
	listener net.Listener

	mu       sync.Mutex
	hosts    []string // the first one, until the network faults move to the next
	now      networkFaults
	at       int // of hosts
	open     map[net.Conn]bool
	ports    map[int]bool // of this machine, of connections so far
	observed observed
}

// newProxy listens on this machine's loopback, for connections to hosts. One that begins with / is a socket.
func newProxy(hosts ...string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return newProxyOn(l, hosts...), nil
}

func newProxyOn(l net.Listener, hosts ...string) *proxy {
	p := &proxy{listener: l, hosts: hosts, open: map[net.Conn]bool{}, ports: map[int]bool{}}
	go p.serve()
	return p
}

// lead leads the connections that begin from now on to a host.
func (p *proxy) lead(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts = []string{host}
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// set changes the faults for connections that begin from now on, and for data on open ones.
func (p *proxy) set(w networkFaults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = w
	if len(w.cuts) == 0 && !w.moves {
		p.at = 0
	}
}

// sofar returns the counts so far, and the ports of this machine that the connections had.
func (p *proxy) sofar() (observed, map[int]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.observed, maps.Clone(p.ports)
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.carry(client)
	}
}

func (p *proxy) carry(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	host := p.hosts[p.at%len(p.hosts)]
	at := cut{after: -1}
	if len(p.now.cuts) > 0 {
		at, p.now.cuts = p.now.cuts[0], p.now.cuts[1:]
	}
	p.mu.Unlock()
	network := "tcp"
	if strings.HasPrefix(host, "/") {
		network = "unix"
	}
	server, err := net.Dial(network, host)
	if err != nil {
		p.mu.Lock()
		p.observed.ended++
		p.mu.Unlock()
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.open[server] = true
	if at, ok := server.LocalAddr().(*net.TCPAddr); ok {
		p.ports[at.Port] = true
	}
	p.mu.Unlock()
	limit := map[bool]int64{false: -1, true: -1}
	limit[at.down] = at.after
	type end struct{ down, wasCut bool }
	ended := make(chan end, 2)
	go func() { ended <- end{false, p.copy(server, client, false, limit[false])} }()
	go func() { ended <- end{true, p.copy(client, server, true, limit[true])} }()
	first := <-ended // one direction ends, both do
	p.mu.Lock()
	defer p.mu.Unlock()
	open := p.open[server] // else it was cut from here
	delete(p.open, server)
	if first.wasCut {
		p.cut()
	} else if first.down && open {
		p.observed.ended++
	}
}

// cut counts a cut and moves on; the caller has the lock.
func (p *proxy) cut() {
	p.observed.cuts++
	if p.now.moves {
		p.at++
	}
}

// cutNow cuts what is open.
func (p *proxy) cutNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) > 0 {
		p.cut()
	}
	for c := range p.open {
		c.Close()
		delete(p.open, c)
	}
}

// piece holds the data of one read, and when it may be written.
type piece struct {
	data []byte
	due  time.Time
}

// copy carries one direction; limit is the byte to cut it at, negative: none. It reports whether it was cut.
func (p *proxy) copy(to io.Writer, from io.Reader, down bool, limit int64) (wasCut bool) {
	pieces := make(chan piece, 1024)
	written := make(chan struct{})
	go func() {
		defer close(written)
		broken := false
		for x := range pieces {
			time.Sleep(time.Until(x.due))
			if !broken {
				_, err := to.Write(x.data)
				broken = err != nil
			}
		}
	}()
	buf, count := make([]byte, 32<<10), 0
	for {
		n, err := from.Read(buf)
		if limit >= 0 && int64(n) >= limit {
			n, wasCut = int(limit), true
		}
		if limit >= 0 {
			limit -= int64(n)
		}
		p.mu.Lock()
		due := time.Now().Add(p.now.delay)
		if p.now.delay > 0 {
			p.observed.delayed += n
		}
		count++
		if p.now.lost > 0 && count*p.now.lost/100 > (count-1)*p.now.lost/100 {
			due = due.Add(retransmission)
			p.observed.late++
		}
		switch { // a request and an answer begin with a read of their own
		case !down && bytes.HasPrefix(buf[:n], []byte("POST ")):
			p.observed.posts++
		case down && bytes.HasPrefix(buf[:n], []byte("HTTP/1.1 401 ")):
			p.observed.refused++
		}
		p.mu.Unlock()
		if n > 0 {
			pieces <- piece{append([]byte(nil), buf[:n]...), due}
		}
		if err != nil || wasCut {
			close(pieces)
			<-written
			return wasCut
		}
	}
}
