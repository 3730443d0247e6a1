package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
)

// relay passes requests on to the gateway of the moment. While one gateway makes room for the next, connections stay open and new requests
// wait, so that clients notice nothing.
type relay struct {
	mu      sync.Mutex
	handler http.Handler
	next    chan struct{} // closed when held requests may go on; nil: nothing is held
	ended   bool          // no gateway follows
	inside  map[*passage]struct{}
	left    chan struct{} // has a value after each request that ended while others are held
}

// passage is a request in progress.
type passage struct {
	cancel context.CancelFunc
	w      http.ResponseWriter
}

func newRelay(h http.Handler) *relay {
	return &relay{handler: h, inside: map[*passage]struct{}{}, left: make(chan struct{}, 1)}
}

// ServeHTTP implements http.Handler.
func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	p := &passage{cancel, w}
	h := r.enter(ctx, p)
	if h == nil {
		w.Header().Set("Connection", "close")
		writeProblem(w, describe(gate.Other, http.StatusServiceUnavailable, fault.New(fault.Transport, "gateway_stopping",
			"the gateway is stopping").WithNext("repeat the request in a few seconds").WithRetry(retryIn)))
		return
	}
	defer r.leave(p)
	h.ServeHTTP(w, req.WithContext(ctx))
}

// enter waits until a gateway takes requests. It returns nil if none will, or if the client has gone.
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
	select {
	case r.left <- struct{}{}:
	default:
	}
}

// hold makes new requests wait from now on.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
}

// empty waits until no request is in progress. When ctx ends, it returns how many still are.
func (r *relay) empty(ctx context.Context) int {
	for {
		r.mu.Lock()
		n := len(r.inside)
		r.mu.Unlock()
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

// cut ends the requests in progress: their contexts, and what they still read and write.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.inside {
		p.cancel()
		control := http.NewResponseController(p.w)
		_ = control.SetReadDeadline(time.Now()) // a recorder in a test has none
		_ = control.SetWriteDeadline(time.Now())
	}
}

// pass gives the held requests and all that follow to h.
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

// cutTime is what requests that were cut have to come to their end.
const cutTime = 5 * time.Second

// Hold lets new requests wait for the gateway that follows, ends streams, and waits for the requests in progress. Those that are still
// in progress when ctx ends are cut; the error says how many.
func (s *Server) Hold(ctx context.Context) error {
	s.relay.hold()
	s.mu.Lock()
	endStreams := s.endStreams
	s.mu.Unlock()
	endStreams()
	n := s.relay.empty(ctx)
	if n == 0 {
		return nil
	}
	s.relay.cut()
	soon, stop := context.WithTimeout(context.WithoutCancel(ctx), cutTime)
	defer stop()
	return fault.New(fault.Timeout, "requests_cut",
		fmt.Sprintf("%d requests at %s were cut off, %d of which have not ended yet", n, s.addr, s.relay.empty(soon)))
}

// pass gives the held requests, and all that follow, to the next gateway.
func (s *Server) pass(h http.Handler, endStreams func(), l Limits) {
	s.door.limit(l)
	s.mu.Lock()
	s.endStreams = endStreams
	s.mu.Unlock()
	s.relay.pass(h)
}

// PassSocket gives the socket's requests, held ones first, to the gateway that follows. c.Path is that of the socket.
func (s *Server) PassSocket(c SocketConfig, h http.Handler, endStreams func()) error {
	s.door.admit(c)
	s.pass(h, endStreams, c.Limits)
	return setMode(c)
}

// PassPort gives the port's requests, held ones first, to the gateway that follows. c.Listen is that of the port.
func (s *Server) PassPort(c PortConfig, h http.Handler, endStreams func()) {
	s.pass(doors(c, s.addr)(h), endStreams, c.Limits)
}
