package cli

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/site"
)

// How long the shell waits.
const (
	lockPatience = 20 * time.Second // for a process that is starting or stopping to be the gateway
	freshTime    = 20 * time.Second // for Slurm's first answer
)

// link is a connection to the gateway: to the process that holds the ledger, or to the gateway that this process has become. Several calls
// may run at once; when the gateway goes away, one of them finds the next gateway for all.
type link struct {
	open func(ctx context.Context) (*httpapi.Client, Gateway, error) // finds the gateway, or becomes it

	turn   chan struct{} // held while client, own and closed are read or changed
	client *httpapi.Client
	own    Gateway // nil when another process is the gateway
	closed bool
}

// newLink opens a link.
func newLink(ctx context.Context, open func(ctx context.Context) (*httpapi.Client, Gateway, error)) (*link, error) {
	l := &link{open: open, turn: make(chan struct{}, 1)}
	var err error
	l.client, l.own, err = open(ctx)
	return l, err
}

// way returns the client of the gateway as it is now.
func (l *link) way() *httpapi.Client {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.client
}

// ours returns the gateway in this process; nil when another process is the gateway.
func (l *link) ours() Gateway {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.own
}

// ServiceDown is the code of a verb that finds no gateway where the site is a service.
const ServiceDown = "service_down"

// Gone reports whether an error means that the gateway ended, or was ending, during a call.
func Gone(err error) bool {
	return slices.Contains([]string{"gateway_gone", "gateway_stopping"}, fault.CodeOf(err))
}

// retry makes the same call again when the gateway went away, with the next one: a shell that was the gateway has ended, and another is it
// now, or this process becomes it. Every call is safe to repeat: what is not idempotent carries a key, see [ownKey].
func (l *link) retry(ctx context.Context, call func(*httpapi.Client) error) error {
	for range 20 {
		c := l.way()
		err := call(c)
		if !Gone(err) || ctx.Err() != nil {
			return err
		}
		if again, failed := l.reopen(ctx, c); failed != nil {
			return failed
		} else if !again {
			return err
		}
	}
	return call(l.way())
}

// reopen replaces a client whose gateway is gone, unless another call has done so already. It reports whether there is
// another gateway now: the link has none after this process was the gateway itself, or has closed the link. A service that
// starts again has lockPatience for it.
func (l *link) reopen(ctx context.Context, gone *httpapi.Client) (again bool, err error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return false, nil
	}
	defer func() { <-l.turn }()
	switch {
	case l.client != gone:
		return true, nil
	case l.own != nil || l.closed:
		return false, nil
	}
	for patience := time.Now().Add(lockPatience); ; time.Sleep(50 * time.Millisecond) {
		c, own, err := l.open(ctx)
		if err == nil {
			l.client, l.own = c, own
			return true, nil
		}
		if fault.CodeOf(err) != ServiceDown || time.Now().After(patience) || ctx.Err() != nil {
			return false, err
		}
	}
}

// ownKey gives a call that is not idempotent by itself an idempotency key before its first try, so that the same call can be sent again.
func ownKey(req *gate.Request, idempotency string) {
	if req.IdempotencyKey == nil && !req.DryRun && idempotency != gate.Idempotent {
		key := "client-" + uuid.NewString()
		req.IdempotencyKey = &key
	}
}

// connect finds the gateway, or becomes it.
func (a *Shell) connect(ctx context.Context) (*Session, error) {
	s, err := site.Load(a.Site)
	if err != nil {
		return nil, err
	}
	l, err := newLink(ctx, func(ctx context.Context) (*httpapi.Client, Gateway, error) { return a.reach(ctx, s) })
	if err != nil {
		return nil, err
	}
	return &Session{app: a, site: s, link: l}, nil
}

// reach finds the gateway of a site, or becomes it.
func (a *Shell) reach(ctx context.Context, s *site.Site) (c *httpapi.Client, own Gateway, err error) {
	c, err = a.Reach(ctx, s.Gateway.Socket, func() (err error) {
		own, err = a.Open(ctx, s, a.look, a.Log)
		return err
	})
	if own == nil || err != nil {
		return c, nil, err
	}
	if n, ok := own.(interface{ Notice() string }); ok {
		a.Say("%s", n.Notice())
	}
	if c, err = a.Dial(ctx, own.Socket()); err != nil {
		own.Close()
	}
	return c, own, err
}

// Reach dials the gateway at a socket. Without a gateway it calls instead and returns no client; it repeats that
// while another process starts or stops being the gateway, for lockPatience for each process.
func (a *Shell) Reach(ctx context.Context, socket string, instead func() error) (*httpapi.Client, error) {
	holder, patience := "", time.Time{}
	for {
		c, err := a.Dial(ctx, socket)
		if err == nil || !fault.Is(err, fault.NotFound) && !Gone(err) {
			return c, err
		}
		if err = instead(); fault.CodeOf(err) != "gateway_running" {
			return nil, err
		}
		if err.Error() != holder { // of many shells each may be the gateway for a while
			holder, patience = err.Error(), time.Now().Add(lockPatience)
		}
		if time.Now().After(patience) || ctx.Err() != nil {
			return nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// close ends the session. A process that is the gateway first finishes its accepted work, without a time limit on
// copying; an interrupt leaves it to the next gateway.
func (s *Session) close(ctx context.Context, a *Shell) {
	s.turn <- struct{}{}
	s.closed = true // a call that is still running opens no other gateway
	own := s.own
	<-s.turn
	if own == nil {
		return
	}
	soon, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	if own.FinishWork(soon) != nil && ctx.Err() == nil {
		a.Say("finishing what was taken on (inputs are being copied); Ctrl-C leaves it to the next slurmgate, or to slurmgate serve")
		if own.FinishWork(ctx) != nil {
			a.Say("left; the next slurmgate takes it up")
		}
	}
	own.Close()
}

// fresh waits until Slurm has been asked, when this process is the gateway: a read by a shell that has just opened the
// ledger should not show yesterday's state.
func (s *Session) fresh(ctx context.Context) {
	own := s.ours()
	if own == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, freshTime)
	defer stop()
	if err := own.CaughtUp(ctx); err != nil {
		s.app.Log.Warn("Slurm could not be queried", "err", err)
	}
}
