package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"slurmgate/fault"
)

// Host is a login node or a data host, with one connection that all calls share. The connection is opened when it is
// needed, and again after it was lost, was closed because it was idle, or reached the end of its certificate. A Host is
// safe for concurrent use.
type Host struct {
	cfg    Config
	log    *slog.Logger
	timing timing
	ctx    context.Context // ends with Close
	stop   context.CancelFunc

	mu      sync.Mutex
	link    *link // for new calls; nil: not connected
	made    int   // connections so far
	lost    int   // connections that ended and were not closed by this Host
	links   map[*link]bool
	dropped int // calls of Drop
	reason  string
	dialing *attempt
	failure error // of the last attempt
	wait    time.Duration
	until   time.Time // when the next attempt may start
	extra   int       // connections opened by More
}

// timing holds the times that tests shorten.
type timing struct {
	first, longest time.Duration // back-off
	patience       time.Duration // a call waits for a back-off that ends within this time
	alive          time.Duration // between two keep-alives, and the wait for the answer to one
	hello          time.Duration // for a login shell to start /bin/sh
	busy           time.Duration // for a further session
	session        time.Duration // for a session to open, including connection and login
	quiet          time.Duration // idle time after which a connection with an ending certificate is closed
	refused        time.Duration // after a refused certificate
	grace          time.Duration // after the certificate's end, for running calls
}

var usual = timing{first: time.Second, longest: time.Minute, patience: 3 * time.Second, alive: 15 * time.Second, hello: 30 * time.Second,
	busy: 20 * time.Second, session: 90 * time.Second, quiet: 2 * time.Second, grace: time.Minute,
	refused: refusedPause}

// refusedPause is the pause after a host refused a certificate: some sshd penalise the whole source address for refused
// logins (PerSourcePenalties), and so all other users.
const refusedPause = 5 * time.Minute

// attempt is an attempt to connect; done is closed when it ends.
type attempt struct {
	done    chan struct{}
	link    *link
	err     error
	dropped int // calls of Drop before it
}

// New returns a host after it has checked the configuration and its files. It connects when the connection is first
// needed.
func New(c Config, log *slog.Logger) (*Host, error) {
	c = c.normal()
	if err := c.check(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Host{cfg: c, log: log.With("host", c.Address, "user", c.User), timing: usual, ctx: ctx, stop: stop,
		links: map[*link]bool{}}, nil
}

// Name returns user@address, for messages.
func (h *Host) Name() string { return h.cfg.name() }

// User returns the user whom calls run as.
func (h *Host) User() string { return h.cfg.User }

// State returns whether the host is connected now, and how many connections to it were lost. It does not contact the
// host.
func (h *Host) State() (up bool, lost int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.link != nil && h.link.works(), h.lost
}

// Close ends all connections, and with them all calls. The host cannot be used any more.
func (h *Host) Close() {
	h.stop()
	h.Drop("the host was closed")
}

// Drop ends all connections immediately, and with them all running calls. The next call logs in again.
func (h *Host) Drop(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = nil
	h.dropped++ // so that an attempt in progress ends too
	h.reason = reason
	for l := range h.links {
		l.end(reason)
	}
}

// Connection returns the number of the kept connection, and connects first if necessary. Facts about the host
// behind a name hold for one connection: the next one may lead to another login node.
func (h *Host) Connection(ctx context.Context) (int, error) {
	l, err := h.connect(ctx)
	if err != nil {
		return 0, err
	}
	l.leave()
	return l.number, nil
}

// connect returns the kept connection; the caller must call its leave after use. Concurrent calls wait for the same
// attempt to connect, which does not end with the call that began it.
func (h *Host) connect(ctx context.Context) (*link, error) {
	for {
		h.mu.Lock()
		if h.ctx.Err() != nil {
			h.mu.Unlock()
			return nil, h.fault(Unreachable, "the connection was closed", nil)
		}
		if h.link != nil && h.link.enter(time.Now()) {
			defer h.mu.Unlock()
			return h.link, nil
		}
		if rest := time.Until(h.until); rest > 0 && h.dialing == nil {
			err := h.failure
			h.mu.Unlock()
			if rest > h.timing.patience {
				return nil, fault.Wrap("", "", fmt.Sprintf("the next try is in %d s", int(rest.Seconds())+1), err).
					WithRetry(int(rest.Seconds()) + 1)
			}
			if !sleep(ctx, rest) {
				return nil, h.fault(Unreachable, "no connection within the time allowed", errors.Join(ctx.Err(), err))
			}
			continue
		}
		a := h.dialing
		if a == nil {
			a = &attempt{done: make(chan struct{}), dropped: h.dropped}
			h.dialing = a
			go h.attempt(a)
		}
		h.mu.Unlock()
		select {
		case <-a.done:
			if a.err == nil {
				a.link.hold()
			}
			return a.link, a.err
		case <-ctx.Done():
			return nil, h.fault(Unreachable, "no connection within the time allowed", ctx.Err())
		}
	}
}

// attempt connects once. After a failure the next attempt has to wait, longer each time, by an amount with jitter, so
// that several gateways do not retry in step.
func (h *Host) attempt(a *attempt) {
	d, err := h.cfg.dial(h.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialing = nil
	switch {
	case err == nil && h.dropped != a.dropped:
		d.closeAll()
		a.err = h.fault(Unreachable, "the connection was ended: "+h.reason, nil)
	case err == nil:
		a.link = h.adopt(d)
		h.made++
		a.link.number = h.made
		h.link = a.link
		h.failure = nil
		h.log.Info("connected over SSH", "connection", h.made)
		go h.keepAlive(a.link)
	default:
		a.err = err
		h.fails(err)
	}
	close(a.done)
}

// fails records a failed attempt. The caller holds mu.
func (h *Host) fails(err error) {
	h.failure = err
	h.wait = min(max(h.timing.first, 2*h.wait), h.timing.longest)
	d := h.wait/2 + rand.N(h.wait)
	if fault.CodeOf(err) == Refused {
		d = h.timing.refused
	}
	h.until = time.Now().Add(d)
	h.log.Warn("no connection over SSH", "error", err, "next_try_in", d.Round(time.Millisecond))
}

// keepAlive sends keep-alives, and closes the connection if the host does not answer. It returns when the connection
// has ended.
func (h *Host) keepAlive(l *link) {
	since := time.Now()
	tick := time.NewTicker(h.timing.alive)
	defer tick.Stop()
	for {
		select {
		case <-l.gone:
		case <-tick.C:
			answered := make(chan struct{})
			go func() {
				l.client.SendRequest("keepalive@openssh.com", true, nil)
				close(answered)
			}()
			select {
			case <-answered:
				continue
			case <-l.gone:
			case <-time.After(h.timing.alive):
				l.close()
			}
		}
		break
	}
	<-l.gone
	l.close()
	h.mu.Lock()
	defer h.mu.Unlock()
	if why := l.ended(); why != "" || h.ctx.Err() != nil {
		h.log.Info("the SSH connection was closed", "connection", l.number, "after", time.Since(since).Round(time.Second), "why", why)
		return
	}
	h.lost++
	h.log.Warn("the SSH connection was lost", "connection", l.number, "after", time.Since(since).Round(time.Second), "error", l.err)
	if l.used.Load() {
		h.wait = 0
	} else { // a host that drops each connection gets a back-off
		h.fails(h.fault(Unreachable, "the host ended the connection soon after the login", l.err))
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
