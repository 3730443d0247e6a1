package run

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"slurmgate/cached"
	"slurmgate/fault"
)

// Site is the configuration of one of a gateway's sites, and its ports.
type Site struct {
	Config Config // Config.Site is its name
	Parts  Parts  // those that all sites share: Store, Index, Objects, Contracts and so on. Open returns the rest
	// Open returns the site's ports: Renderer, Submitter, Queue, Accounting, Canceller, Workspace and Images. It is called again while it
	// fails.
	Open func(ctx context.Context) (Parts, error)
	Wrap func(Parts) Parts // wraps all parts, the ports too; nil: it wraps nothing
}

// Sites has the sites of one gateway, each with its own engine: watcher, budget, pauses and workers. The subject of a
// call decides which engine carries it out, so no site waits for another. Only the limits on runs in flight apply to
// all of them together. All methods are safe for concurrent use.
type Sites struct {
	store Store
	log   *slog.Logger
	retry time.Duration
	order []*member // as configured
	named map[string]*member

	workers *workerCalls // nil: the gateway calls no service workers
}

type member struct {
	*Engine
	name    string
	open    func(ctx context.Context) (Parts, error)
	opening *opening
	trying  sync.Mutex // held while the site is being opened

	partitions cached.Value[[]Partition]
	images     imageChecks
}

// retryOpening is the time between two tries to open a site that is away.
const retryOpening = 15 * time.Second

// patience is how long slower sites are waited for when another is ready.
const patience = 5 * time.Second

// NewSites returns the engines of the sites, which are not open yet. There must be at least one site.
func NewSites(sites ...Site) *Sites {
	s := &Sites{store: sites[0].Parts.Store, log: sites[0].Parts.Log, retry: retryOpening, named: map[string]*member{}}
	for _, x := range sites {
		o := &opening{site: x.Config.Site}
		p := x.Parts
		p.Renderer, p.Submitter, p.Queue, p.Accounting, p.Canceller, p.Workspace, p.Images = o, o, o, o, o, o, o
		p.Pace = o.pace
		if x.Wrap != nil {
			p = x.Wrap(p)
		}
		p.Log = p.Log.With("site", x.Config.Site)
		m := &member{Engine: NewEngine(x.Config, p), name: x.Config.Site, open: x.Open, opening: o}
		m.away = o.away
		if len(s.order) > 0 {
			m.limits.inFlightRuns = s.order[0].limits.inFlightRuns
		}
		s.order, s.named[m.name] = append(s.order, m), m
	}
	return s
}

// Open opens all sites in parallel, and returns why the others could not be opened, by name. As soon as one of the
// needed sites is open, the others get patience more. [Sites.Start] keeps trying.
func (s *Sites) Open(ctx context.Context, needed ...string) map[string]error {
	opened := make(chan *member, len(s.order))
	for _, m := range s.order {
		go func() {
			m.tryOpen(ctx)
			opened <- m
		}()
	}
	var late <-chan time.Time
	for range s.order {
		select {
		case m := <-opened:
			if late == nil && m.opening.away() == nil && slices.Contains(needed, m.name) {
				late = time.After(patience)
			}
			continue
		case <-late:
		case <-ctx.Done():
		}
		break
	}
	away := map[string]error{}
	for _, m := range s.order {
		if err := m.opening.away(); err != nil {
			if away[m.name] = err; m.opening.why.Load() != nil {
				away[m.name] = m.opening.why.Load()
			}
		}
	}
	return away
}

// tryOpen opens the site, unless a try is in flight: it may hang for as long as a filesystem does.
func (m *member) tryOpen(ctx context.Context) {
	if !m.trying.TryLock() {
		return
	}
	defer m.trying.Unlock()
	p, err := m.open(ctx)
	if err == nil {
		m.opening.parts.Store(&p)
		return
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok {
		e = &fault.Error{Kind: fault.Transport, Msg: err.Error()}
	}
	m.opening.failed(m.Now(), e)
}

// Start starts the engine of every site, also of sites that are away; those take up their runs when the site is open.
// The returned function waits for all work in flight.
func (s *Sites) Start(ctx context.Context) (wait func(), err error) {
	if s.workers != nil {
		if err := s.workers.sweep(ctx); err != nil {
			return nil, err
		}
	}
	for _, m := range s.order { // before any run is sent
		if err := m.limits.count(ctx, m.Index); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var waits []func()
	wait = func() {
		for _, w := range waits {
			w()
		}
	}
	for _, m := range s.order {
		w, err := m.Engine.Start(ctx)
		if err != nil {
			stop()
			wait()
			return nil, err
		}
		waits = append(waits, w)
	}
	var keepers sync.WaitGroup
	for _, m := range s.order {
		if m.opening.away() != nil {
			keepers.Go(func() { s.keepOpening(ctx, m) })
		}
	}
	waits = append(waits, func() { stop(); keepers.Wait() })
	return wait, nil
}

// keepOpening tries until the site is open, and then takes up its runs.
func (s *Sites) keepOpening(ctx context.Context, m *member) {
	every := time.NewTicker(s.retry)
	defer every.Stop()
	said := ""
	for err := m.opening.away(); err != nil; err = m.opening.away() {
		if text := err.Error(); text != said {
			s.log.Warn("a site is away; its runs wait", "site", m.name, "err", err)
			said = text
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		tried := make(chan struct{})
		go func() { m.tryOpen(ctx); close(tried) }()
		select {
		case <-tried:
		case <-ctx.Done():
			return
		}
	}
	s.log.Info("a site that was away is open", "site", m.name)
	m.resume(ctx)
}

// resume takes up the runs of a site that was away.
func (e *Engine) resume(ctx context.Context) {
	waiting, err := e.Index.Waiting(ctx, "", 0, Staging, Submitting, Collecting, Deferred)
	if err != nil {
		e.unread(ctx, "cannot read the ledger", "err", err)
	}
	for _, w := range waiting {
		e.pressure.makeDue(w.RunID)
	}
	e.offer(waiting)
	e.watcher.wake()
}

// Names returns the names of the sites.
func (s *Sites) Names() (names []string) {
	for _, m := range s.order {
		names = append(names, m.name)
	}
	return names
}

// Away returns why the site cannot take runs to their end now: it could not be opened, or its Slurm does not answer;
// nil if no reason is known.
func (s *Sites) Away(name string) error {
	m := s.named[name]
	if m == nil {
		return nil
	}
	if err := m.opening.away(); err != nil {
		return err
	}
	return m.Ready()
}

// Ready returns which sites delay their runs, and why: a Transport fault with the code of the first. nil if none is
// known to.
func (s *Sites) Ready() error {
	var first error
	var others []string
	for _, m := range s.order {
		switch err := cmp.Or(s.Away(m.name), m.hung.fault("")); {
		case err == nil:
		case first == nil:
			first = err
			if len(s.order) > 2 { // more than a cluster and the gateway's own host
				first = fault.Wrap(fault.Transport, fault.CodeOf(err), "site "+m.name, err)
			}
		default:
			others = append(others, "site "+m.name+": "+fault.Prose(err))
		}
	}
	if len(others) == 0 {
		return first
	}
	return fault.Wrap(fault.Transport, fault.CodeOf(first), strings.Join(others, "; "), first)
}

// Watched returns when a site's Slurm last answered completely, and why it does not answer now.
func (s *Sites) Watched(site string) (at time.Time, err error) {
	if m := s.named[site]; m != nil {
		if at, err = m.Engine.Watched(); err == nil {
			err = m.opening.away()
		}
	}
	return at, err
}

// parallel calls f for every site in parallel. The error is that of the first site in the order of the site file that
// has one.
func (s *Sites) parallel(f func(*member) error) error {
	errs := make([]error, len(s.order))
	var wg sync.WaitGroup
	for i, m := range s.order {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// CaughtUp calls [Engine.CaughtUp] for all sites. Once a cluster and the gateway's own host have caught up, the others
// get patience more: a controller that hangs does not delay the runs of another.
func (s *Sites) CaughtUp(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var ready atomic.Int32
	return s.parallel(func(m *member) error {
		err := m.CaughtUp(ctx)
		if err == nil && ready.Add(1) == 2 {
			time.AfterFunc(patience, stop)
		}
		return err
	})
}

// Settled calls [Engine.Settled] for all sites.
func (s *Sites) Settled(ctx context.Context) error {
	return s.parallel(func(m *member) error { return m.Settled(ctx) })
}

// Overslept returns the longest time by which a site's watching loop has missed the end of its pause; 0 while all of
// them run, or wait for Slurm or a filesystem.
func (s *Sites) Overslept() (longest time.Duration) {
	for _, m := range s.order {
		longest = max(longest, m.watcher.overslept())
	}
	return longest
}
