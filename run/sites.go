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

// Site is what a gateway says about one of its sites.
type Site struct {
	Config Config // Config.Site is its name
	Parts  Parts  // what all sites share: Store, Index, Objects, Contracts and so on. Open brings the rest
	// Open returns the site's ports: Renderer, Submitter, Queue, Accounting, Canceller, Workspace and Images. It is called again while it
	// fails.
	Open func(ctx context.Context) (Parts, error)
	Wrap func(Parts) Parts // around all parts, the ports too; nil: nothing
}

// Sites are the sites of one gateway, each with an engine of its own: watcher, budget, pauses and workers. What a call is about says which
// engine carries it out, so nothing of one site waits for another. Only the limits on a tool's runs in flight hold for all of them
// together. All methods are safe for concurrent use.
type Sites struct {
	store Store
	log   *slog.Logger
	retry time.Duration
	order []*member // as configured
	named map[string]*member

	workers *workerCalls // nil: there are no calls of service workers
}

type member struct {
	*Engine
	name    string
	open    func(ctx context.Context) (Parts, error)
	opening *opening
	trying  sync.Mutex // held while the site is being opened

	partitions cached.Value[[]Partition]
	images     imageLooks
}

// retryOpening is the time between two tries to open a site that is away.
const retryOpening = 15 * time.Second

// patience is how long the slower sites are waited for when another is ready.
const patience = 5 * time.Second

// NewSites makes the engines of the sites, which are not open yet. There is at least one.
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

// Open opens all sites at once, and returns what keeps those closed that could not be opened, by name. As soon as one of the sites that are
// needed is open, the others get a few seconds more. [Sites.Start] goes on trying.
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

// tryOpen opens the site, unless that is under way: a try may hang for as long as a filesystem does.
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

// Start starts the engine of every site, those of sites that are away too; they take up their runs when the site is open. The returned
// function waits for what is under way.
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

// keepOpening opens a site as soon as that works.
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
		e.pressure.hurry(w.RunID)
	}
	e.offer(waiting)
	e.watcher.poke()
}

// Names are the names of the sites.
func (s *Sites) Names() (names []string) {
	for _, m := range s.order {
		names = append(names, m.name)
	}
	return names
}

// Away says why the site cannot take runs to their end now: it could not be opened, or its Slurm does not answer; nil while nothing is
// known.
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

// Ready says which sites delay their runs, and why; a Transport fault with the code of the first. Nil while nothing is known.
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

// Watched is when each site's Slurm last answered completely, and why it does not answer now.
func (s *Sites) Watched(site string) (at time.Time, err error) {
	if m := s.named[site]; m != nil {
		if at, err = m.Engine.Watched(); err == nil {
			err = m.opening.away()
		}
	}
	return at, err
}

// together calls f for every site at the same time. The error is that of the first site in the order of the site file that has one.
func (s *Sites) together(f func(*member) error) error {
	errs := make([]error, len(s.order))
	var wg sync.WaitGroup
	for i, m := range s.order {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// CaughtUp is [Engine.CaughtUp] of all sites. Once a cluster and the gateway's own host have caught up, the others get a few seconds more:
// a controller that hangs delays no look at the runs of another.
func (s *Sites) CaughtUp(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var ready atomic.Int32
	return s.together(func(m *member) error {
		err := m.CaughtUp(ctx)
		if err == nil && ready.Add(1) == 2 {
			time.AfterFunc(patience, stop)
		}
		return err
	})
}

// Settled is [Engine.Settled] of all sites.
func (s *Sites) Settled(ctx context.Context) error {
	return s.together(func(m *member) error { return m.Settled(ctx) })
}

// Overslept is the longest time by which a site's watching loop has missed the end of its pause; 0 while all of them turn or wait for
// Slurm or a filesystem.
func (s *Sites) Overslept() (longest time.Duration) {
	for _, m := range s.order {
		longest = max(longest, m.watcher.overslept())
	}
	return longest
}
