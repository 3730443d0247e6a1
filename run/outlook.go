package run

import (
	"context"
	"sync"
	"time"

	"slurmgate/cached"
	"slurmgate/fault"
)

// Budget is how much of a site's budget of requests to Slurm is used.
type Budget struct {
	PerMinute  int   `json:"per_minute"`  // RPCs that the site file allows
	LastMinute int   `json:"last_minute"` // RPCs made in the last minute
	Left       int   `json:"left"`        // RPCs that may be made now without waiting
	Burst      int   `json:"burst"`       // the most that Left can be
	Total      int64 `json:"-"`           // RPCs made since the site was opened

	Shared *SharedBudget `json:"shared"` // budget of all gateways of this host; nil: not configured
}

// SharedBudget is the budget of requests to Slurm of all gateways of this host together.
type SharedBudget struct {
	PerMinute int     `json:"per_minute"`
	Left      int     `json:"left"`    // RPCs that may be made now without waiting
	Problem   *string `json:"problem"` // why it is not used; nil: it is used
}

// Connection is a kept connection of the gateway to a host of a remote site.
type Connection struct {
	To     string // its purpose: slurm or files; users: all connections as users together
	Up     bool   // for users: the signer answered its last request
	Losses int64  // how often it was lost since the gateway started

	Users   int // users connected now, if To is users
	Refused int // users refused at their last login
}

// Condition is whether a site carries out its runs now.
type Condition string

// The conditions of a site.
const (
	SiteReady   Condition = "ready"
	SiteDrained Condition = "drained" // an admin has stopped new runs
	SiteIsAway  Condition = "away"    // it could not be opened, or its Slurm or its filesystem does not answer
	SitePaused  Condition = "paused"  // Slurm accepts no jobs for now
)

// SiteState is what is known of a site now. Reading it queries nothing.
type SiteState struct {
	Condition  Condition
	Opened     bool       // at any time since the gateway started
	Away       bool       // set for a drained site too
	Since      *time.Time // begin of an outage or a drain, if known
	Until      *time.Time // when a pause ends
	Problem    error      // why runs wait; nil if the site is ready or only drained
	Drain      *Drain
	Pauses     []SitePause // pauses of all sends, or of those to a partition, an account or a QOS
	Answered   *time.Time  // when Slurm last answered completely
	Accounting *bool       // nil: unknown before the site is open
	Budget     *Budget     // nil: no budget, or the site is not open yet
	Links      []Connection
}

// SitePause is a time without sends of one kind.
type SitePause struct {
	What   string    `json:"what"` // site, or which partition, account or QOS
	Until  time.Time `json:"until"`
	Code   string    `json:"code"`
	Detail *string   `json:"detail"` // Slurm's message
}

// State returns what is known of a site. ok is false if there is no site of that name.
func (s *Sites) State(name string) (st SiteState, ok bool) {
	m := s.named[name]
	if m == nil {
		return st, false
	}
	st.Condition, st.Drain, st.Pauses = SiteReady, m.pressure.draining(), m.pressure.list()
	if at, _ := m.watcher.answered(); !at.IsZero() {
		st.Answered = new(at.UTC())
	}
	if p := m.opening.parts.Load(); p != nil {
		st.Opened = true
		_, none := p.Accounting.(NoAccounting)
		st.Accounting = new(!none)
		if p.Budget != nil {
			st.Budget = new(p.Budget())
		}
	}
	if m.Connections != nil {
		st.Links = m.Connections()
	}
	since, away := m.outage()
	if away != nil {
		st.Away, st.Condition, st.Since, st.Problem = true, SiteIsAway, utc(since), away
	} else if p := m.pressure.sendPause(); p != nil {
		st.Condition, st.Until, st.Problem = SitePaused, utc(p.until), p.fault()
	}
	if st.Problem == nil {
		st.Problem = m.hung.fault("")
	}
	if st.Drain != nil {
		st.Condition, st.Since, st.Until = SiteDrained, utc(st.Drain.Since), nil
	}
	return st, true
}

func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// outage returns why the site cannot take runs to their end now, apart from drains and Slurm's limits, and since when;
// nil: it can.
func (m *member) outage() (since time.Time, err error) {
	if err := m.opening.away(); err != nil {
		return m.opening.failing(), err
	}
	if p := m.pressure.sendPause(); p != nil && p.outage() {
		return p.since, p.fault()
	}
	if since, err := m.watcher.failing(); err != nil {
		return since, m.unanswered(err)
	}
	return time.Time{}, m.unstaged()
}

const (
	partitionsFresh = 10 * time.Minute // an older answer is used while Slurm is queried again
	partitionsAgain = time.Minute      // between two tries
	briefWait       = 2 * time.Second  // how long a choice of a site waits for missing information
)

// Partitions returns the partitions of a site; nil if they are unknown. An answer older than partitionsFresh is renewed
// in the background. Only the first call waits for it, and only for glance.
func (s *Sites) Partitions(ctx context.Context, name string) []Partition {
	m := s.named[name]
	if m == nil {
		return nil
	}
	p := m.opening.parts.Load()
	if p == nil || p.Partitions == nil {
		return nil
	}
	ask := func(ctx context.Context) ([]Partition, error) {
		list, err := p.Partitions(ctx)
		if err != nil {
			m.Log.Warn("the site's partitions are not known, so runs are placed without them", "err", err)
		}
		return list, err
	}
	rule := cached.Rule{Fresh: partitionsFresh, Pause: partitionsAgain, Limit: partitionsAgain}
	known := m.partitions.Look(m.Now, rule, false, ask)
	if known.At.IsZero() && known.Busy != nil {
		known.Wait(ctx, briefWait)
		known = m.partitions.Look(m.Now, rule, false, ask)
	}
	return known.Value
}

// imageChecks has the checks of images of a site: those in flight, and those of the last minute that found the image.
type imageChecks struct {
	mu       sync.Mutex
	byDigest map[string]*imageCheck
}

type imageCheck struct {
	began time.Time
	done  chan struct{} // closed when err is set
	err   error
}

// imageFresh is how long a site is assumed to have an image that a check found. Before a run executes, its image is
// verified in any case.
const imageFresh = time.Minute

// join returns the check of an image that is in flight or fresh; otherwise it starts one with verify.
func (l *imageChecks) join(digest string, now time.Time, verify func() error) *imageCheck {
	l.mu.Lock()
	defer l.mu.Unlock()
	for digest, old := range l.byDigest {
		if old.ended() && (old.err != nil || now.Sub(old.began) > imageFresh) {
			delete(l.byDigest, digest)
		}
	}
	if l.byDigest == nil {
		l.byDigest = map[string]*imageCheck{}
	}
	one := l.byDigest[digest]
	if one == nil {
		one = &imageCheck{began: now, done: make(chan struct{})}
		l.byDigest[digest] = one
		go func() {
			one.err = verify()
			close(one.done)
		}()
	}
	return one
}

func (l *imageCheck) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// HasImage checks whether a site has an image, unchanged; NotFound if not. If the site does not answer within glance it
// returns a Transport fault: the check continues, and its result counts for the next call.
func (s *Sites) HasImage(ctx context.Context, name, digest string) error {
	m, err := s.at(name)
	if err != nil {
		return err
	}
	now := m.Now()
	look := m.images.join(digest, now, func() error {
		_, err := m.Images.Verify(context.WithoutCancel(ctx), digest)
		return err
	})
	timer := time.NewTimer(look.began.Add(briefWait).Sub(now))
	defer timer.Stop()
	select {
	case <-look.done:
		return look.err
	default:
	}
	select {
	case <-look.done:
		return look.err
	case <-timer.C:
	case <-ctx.Done():
	}
	return fault.New(fault.Transport, "image_store_slow", "the image store did not answer in time")
}
