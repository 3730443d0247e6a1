package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"slurmgate/fault"
)

// relay passes requests on to the gateway of the moment. While one gateway makes room for the next, connections stay open and new requests
// wait, so that clients notice nothing.
type relay struct {
	mu      sync.Mutex
	handler http.Handler
	next    chan struct{} // closed when held requests may go on; nil: nothing is held
	ended   bool          // no gateway follows
	inside  map[*passage]struct{}
	left    chan struct{} // has a value after each request that ended, or whose body arrived
}

// passage is a request in progress.
type passage struct {
	cancel context.CancelFunc
	w      http.ResponseWriter
	paced  atomic.Bool // it lasts as long as its client likes: its body is arriving, or its answer is a download
}

type passageKey struct{}

// transfers notes that a request lasts as long as its client likes, and needs nothing else of the gateway.
func transfers(ctx context.Context) {
	if p, ok := ctx.Value(passageKey{}).(*passage); ok {
		p.paced.Store(true)
	}
}

// arrivingBody notes that the body of a request is arriving, from the first read to the end.
type arrivingBody struct {
	io.ReadCloser
	paced   *atomic.Bool
	arrived func()
}

// Read implements io.Reader.
func (b *arrivingBody) Read(p []byte) (int, error) {
	b.paced.Store(true)
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.paced.Store(false)
		b.arrived()
	}
	return n, err
}

func newRelay(h http.Handler) *relay {
	return &relay{handler: h, inside: map[*passage]struct{}{}, left: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	p := &passage{cancel: cancel, w: w}
	h := r.enter(ctx, p)
	if h == nil {
		w.Header().Set("Connection", "close")
		problem(w, fault.New(fault.Transport, "gateway_stopping",
			"the gateway is stopping").WithNext("repeat the request in a few seconds").WithRetry(retryIn))
		return
	}
	defer r.leave(p)
	req = req.WithContext(context.WithValue(ctx, passageKey{}, p))
	if req.ContentLength != 0 {
		req.Body = &arrivingBody{req.Body, &p.paced, r.signal}
	}
	h.ServeHTTP(w, req)
}

// enter waits until a gateway takes requests. It returns nil if none will, or if the client has disconnected.
func (r *relay) enter(ctx context.Context, p *passage) http.Handler {
	for {
		r.mu.Lock()
		next := r.next
		if next == nil {
			defer r.mu.Unlock()
			r.inside[p] = struct{}{}
			return r.handler
		}
		ended := r.ended
		r.mu.Unlock()
		if ended {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *relay) leave(p *passage) {
	r.mu.Lock()
	delete(r.inside, p)
	r.mu.Unlock()
	r.signal()
}

func (r *relay) signal() {
	select {
	case r.left <- struct{}{}:
	default:
	}
}

func anyRequest(*passage) bool { return true }

func pacedRequest(p *passage) bool { return p.paced.Load() }

// hold makes new requests wait from now on.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
}

// empty waits until no such request is in progress. When ctx ends, it returns how many still are.
func (r *relay) empty(ctx context.Context, such func(*passage) bool) int {
	for {
		n := 0
		r.each(such, func(*passage) { n++ })
		if n == 0 {
			return 0
		}
		select {
		case <-r.left:
		case <-ctx.Done():
			return n
		}
	}
}

// cut ends such requests in progress: their contexts, and what they still read and write. It returns how many there are.
func (r *relay) cut(such func(*passage) bool) (n int) {
	r.each(such, func(p *passage) {
		n++
		p.cancel()
		control := http.NewResponseController(p.w)
		_ = control.SetReadDeadline(time.Now()) // a recorder in a test has none
		_ = control.SetWriteDeadline(time.Now())
	})
	return n
}

func (r *relay) each(such func(*passage) bool, f func(*passage)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.inside {
		if such(p) {
			f(p)
		}
	}
}

// pass sends the held requests and all that follow to h.
func (r *relay) pass(h http.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handler = h
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}

// end refuses the held requests: no gateway follows.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil && !r.ended {
		r.ended = true
		close(r.next)
	}
}

const (
	bodyGrace = time.Second     // for what a client sends or fetches, while new requests wait
	cutTime   = 5 * time.Second // for requests that were cut to come to their end
)

// AwaitTransfers waits for uploads and downloads in progress until ctx ends. New requests are served meanwhile.
func (s *Server) AwaitTransfers(ctx context.Context) { s.relay.empty(ctx, pacedRequest) }

// Hold makes new requests wait for the gateway that follows, ends streams, and waits for the requests in progress.
// Those that still wait for their clients after a second are cut, and all others when ctx ends; the error has their
// number.
func (s *Server) Hold(ctx context.Context) error {
	s.relay.hold()
	s.mu.Lock()
	endStreams := s.endStreams
	s.mu.Unlock()
	endStreams()
	grace, stop := context.WithTimeout(ctx, bodyGrace)
	defer stop()
	if s.relay.empty(grace, anyRequest) == 0 {
		return nil
	}
	n := s.relay.cut(pacedRequest)
	left := s.relay.empty(ctx, anyRequest)
	if left > 0 {
		n = max(n, s.relay.cut(anyRequest))
		soon, stop := context.WithTimeout(context.WithoutCancel(ctx), cutTime)
		defer stop()
		left = s.relay.empty(soon, anyRequest)
	}
	if n == 0 {
		return nil
	}
	return fault.New(fault.Timeout, "requests_cut",
		fmt.Sprintf("%d requests at %s were cut off, %d of which have not ended yet", n, s.addr, left))
}

// pass sends the held requests, and all that follow, to the next gateway.
func (s *Server) pass(h http.Handler, endStreams func(), l Limits) {
	s.door.limit(l)
	s.mu.Lock()
	s.endStreams = endStreams
	s.mu.Unlock()
	s.relay.pass(h)
}

// PassSocket sends the socket's requests, held ones first, to the gateway that follows. c.Path is that of the socket.
func (s *Server) PassSocket(c SocketConfig, h http.Handler, endStreams func()) error {
	s.door.admit(c)
	s.pass(h, endStreams, c.Limits)
	return setMode(c)
}

// PassPort sends the port's requests, held ones first, to the gateway that follows. c.Listen is that of the port.
func (s *Server) PassPort(c PortConfig, h http.Handler, endStreams func()) {
	s.pass(doors(c, s.addr)(h), endStreams, c.Limits)
}
