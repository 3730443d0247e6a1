package main

import (
	"io"
	"net"
	"sync"
	"time"
)

// weather is what a proxy does to the connections through it.
type weather struct {
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

// retransmission is how much later a lost piece arrives.
const retransmission = 220 * time.Millisecond

// proxy stands between a gateway and an sshd. It cuts connections, delays what they carry, and leads to another host.
type proxy struct {
	listener net.Listener
	hosts    []string // the first one, until weather moves

	mu   sync.Mutex
	now  weather
	at   int // of hosts
	open map[net.Conn]bool
	cuts int // done so far
}

// newProxy listens on this machine's loopback, for connections to hosts.
func newProxy(hosts ...string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, hosts: hosts, open: map[net.Conn]bool{}}
	go p.serve()
	return p, nil
}

func (p *proxy) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

// set changes the weather for connections that begin from now on, and for what goes through open ones.
func (p *proxy) set(w weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = w
	if len(w.cuts) == 0 && !w.moves {
		p.at = 0
	}
}

// done is how many cuts there were.
func (p *proxy) done() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
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
	server, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	p.open[server] = true
	p.mu.Unlock()
	limit := map[bool]int64{false: -1, true: -1}
	limit[at.down] = at.after
	ended := make(chan bool, 2)
	go func() { ended <- p.copy(server, client, limit[false]) }()
	go func() { ended <- p.copy(client, server, limit[true]) }()
	wasCut := <-ended // one direction ends, both do
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, server)
	if wasCut {
		p.cut()
	}
}

// cut counts a cut and moves on; the caller has the lock.
func (p *proxy) cut() {
	p.cuts++
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
	}
}

// piece is what one read brought, and when it may be written.
type piece struct {
	data []byte
	due  time.Time
}

// copy carries one direction; limit is the byte to cut it at, negative: none. It reports whether it was cut.
func (p *proxy) copy(to io.Writer, from io.Reader, limit int64) (wasCut bool) {
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
		count++
		if p.now.lost > 0 && count*p.now.lost/100 > (count-1)*p.now.lost/100 {
			due = due.Add(retransmission)
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
