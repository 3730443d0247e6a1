package asuser

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/run"
)

// Parts carry out runs as one user. Their RunDir is that user's.
type Parts struct {
	run.Submitter
	run.Canceller
	run.Workspace
}

// Login logs in as one user. It is safe for concurrent use.
type Login interface {
	// Open connects if necessary, and returns the parts. It is called again after a failure.
	Open(ctx context.Context) (Parts, error)
	// Drop ends all connections immediately, and with them the running calls. The next call logs in again, if it may.
	Drop(reason string)
	// Up reports whether there is a connection now.
	Up() bool
	// Close ends all connections. No call is running then, unless the gateway ends.
	Close()
}

// Config provides users' logins and their bounds. Every field is required.
type Config struct {
	// UserOf returns the user that a run is executed as; empty: the gateway's own. It never changes.
	UserOf func(ctx context.Context, runID string) (string, error)
	// LeaderOf returns a run that was sent in the array of this name. All its runs have the same user.
	LeaderOf func(ctx context.Context, array string) (runID string, err error)
	// Login returns the login of a user, without connecting. latest returns the last run that needed it; empty: none.
	Login func(user string, latest func() string) (Login, error)
	// RunDir returns the folder of a user's run as jobs see it; with an empty user, a path that names no user.
	RunDir func(user, runID string) string
	// Limit bounds the number of logged-in users.
	Limit int
	// Idle is how long a user's parts stay open without use.
	Idle time.Duration
}

// Fault codes of this package.
const (
	// NoUser is a Conflict: the run was executed as the gateway's own user, whose files are not here.
	NoUser = "run_of_the_gateway"
	// Busy is a Transport fault: the greatest number of users is logged in, and all of them are in use.
	Busy = "users_busy"
)

// openTime bounds an attempt to open a user's parts, which does not end with the call that began it.
const openTime = 2 * time.Minute

// Users holds the parts of all users. All methods are safe for concurrent use.
type Users struct {
	cfg Config
	ctx context.Context // ends with Close
	end context.CancelFunc

	mu     sync.Mutex
	in     map[string]*login // by user
	freed  chan struct{}     // closed and replaced when a place may be free
	known  map[string]string // cache: run → user
	closed bool
}

// login is a user's login with its calls.
type login struct {
	Login
	user    string
	calls   int // running
	latest  string
	since   time.Time // idle since
	timer   *time.Timer
	parts   *Parts // nil: not open
	opening *opening
	refused bool // the last attempt to open was refused
}

// opening is an attempt to open a user's parts; done is closed when it ends.
type opening struct {
	done  chan struct{}
	parts *Parts
	err   error
}

// New returns Users without any login.
func New(c Config) *Users {
	ctx, end := context.WithCancel(context.Background())
	return &Users{cfg: c, ctx: ctx, end: end, in: map[string]*login{}, freed: make(chan struct{}), known: map[string]string{}}
}

// Close ends all connections, and with them the running calls.
func (u *Users) Close() {
	u.end()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	u.closed = true
	close(u.freed) // wakes those who wait for a place
	for _, l := range u.in {
		u.forget(l)
		l.Close()
	}
}

// Drop ends the connections of a user who may no longer be logged in.
func (u *Users) Drop(user, reason string) {
	u.mu.Lock()
	l := u.in[user]
	u.mu.Unlock()
	if l != nil {
		l.Drop(reason)
	}
}

// DropUnless ends the connections of all users for whom may returns false.
func (u *Users) DropUnless(may func(user string) bool, reason string) {
	u.mu.Lock()
	var gone []*login
	for user, l := range u.in {
		if !may(user) {
			gone = append(gone, l)
		}
	}
	u.mu.Unlock()
	for _, l := range gone {
		l.Drop(reason)
	}
}

// State returns how many users are connected now, and how many were refused at their last login.
func (u *Users) State() (connected, refused int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, l := range u.in {
		if l.refused {
			refused++
		} else if l.Up() {
			connected++
		}
	}
	return connected, refused
}

// As calls f with a user's parts, for a call that belongs to no run.
func (u *Users) As(ctx context.Context, user string, f func(Parts) error) error {
	p, leave, err := u.enter(ctx, user, "")
	if err != nil {
		return err
	}
	defer leave()
	return f(p)
}

// userOf returns the user of a run.
func (u *Users) userOf(ctx context.Context, runID string) (string, error) {
	u.mu.Lock()
	user := u.known[runID]
	u.mu.Unlock()
	if user != "" {
		return user, nil
	}
	user, err := u.cfg.UserOf(ctx, runID)
	if err != nil {
		return "", err
	}
	if user == "" {
		return "", fault.New(fault.Conflict, NoUser, runID+" was executed as the gateway's own user, before this site ran jobs as their callers "+
			"(run_as: caller), so the gateway cannot reach its files any more").
			WithNext("set slurm.run_as back to self to finish or clean up such runs, or remove the files by hand")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.known) >= maxKnown {
		clear(u.known)
	}
	u.known[runID] = user
	return user, nil
}

// maxKnown bounds the memory for users of runs; the ledger has all of them.
const maxKnown = 100_000

// of returns the parts of a run's user. The caller must call leave when its call ends.
func (u *Users) of(ctx context.Context, runID string) (p Parts, leave func(), err error) {
	user, err := u.userOf(ctx, runID)
	if err != nil {
		return p, nil, err
	}
	return u.enter(ctx, user, runID)
}

// enter returns a user's parts. The caller must call leave when its call ends.
func (u *Users) enter(ctx context.Context, user, runID string) (p Parts, leave func(), err error) {
	l, err := u.place(ctx, user, runID)
	if err != nil {
		return p, nil, err
	}
	leave = sync.OnceFunc(func() { u.left(l) })
	opened, err := u.open(ctx, l)
	if err != nil {
		leave()
		return p, nil, err
	}
	return *opened, leave, nil
}

// place returns a user's login, and counts a call on it. If all places are taken, the user who has been idle longest is
// logged out.
func (u *Users) place(ctx context.Context, user, runID string) (*login, error) {
	for {
		u.mu.Lock()
		l, err := u.taken(user)
		if l != nil {
			l.calls++
			if runID != "" {
				l.latest = runID
			}
		}
		freed := u.freed
		u.mu.Unlock()
		if l != nil || err != nil {
			return l, err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, fault.Wrap(fault.Transport, Busy, fmt.Sprintf("%d users are logged in, which is the limit, and all of them are in use",
				u.cfg.Limit), ctx.Err()).
				WithNext("raise slurm.caller.connections in the site file if this happens often").WithRetry(10)
		}
	}
}

// taken returns a user's login, created if there is room, or nil. The caller holds mu.
func (u *Users) taken(user string) (*login, error) {
	if u.closed {
		return nil, fault.New(fault.Transport, "closing", "the gateway is closing").WithRetry(5)
	}
	if l := u.in[user]; l != nil {
		return l, nil
	}
	if len(u.in) >= u.cfg.Limit {
		var oldest *login
		for _, l := range u.in {
			if l.calls == 0 && (oldest == nil || l.since.Before(oldest.since)) {
				oldest = l
			}
		}
		if oldest == nil {
			return nil, nil
		}
		u.leave(oldest)
	}
	l := &login{user: user}
	made, err := u.cfg.Login(user, func() string {
		u.mu.Lock()
		defer u.mu.Unlock()
		return l.latest
	})
	if err != nil {
		return nil, err
	}
	l.Login = made
	u.in[user] = l
	return l, nil
}

// left ends a call. A user without calls may be replaced by another one, and is logged out after a while.
func (u *Users) left(l *login) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.calls--; l.calls > 0 {
		return
	}
	l.since = time.Now()
	if u.closed {
		return
	}
	close(u.freed)
	u.freed = make(chan struct{})
	if l.timer != nil {
		l.timer.Stop()
	}
	l.timer = time.AfterFunc(u.cfg.Idle, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if l.calls == 0 && u.in[l.user] == l && time.Since(l.since) >= u.cfg.Idle {
			u.leave(l)
		}
	})
}

// leave logs a user out. The caller holds mu.
func (u *Users) leave(l *login) {
	u.forget(l)
	go l.Close() // may wait for a connection that is stuck
}

func (u *Users) forget(l *login) {
	delete(u.in, l.user)
	if l.timer != nil {
		l.timer.Stop()
	}
}

// open opens a user's parts. Concurrent calls wait for the same attempt.
func (u *Users) open(ctx context.Context, l *login) (*Parts, error) {
	u.mu.Lock()
	if p := l.parts; p != nil {
		u.mu.Unlock()
		return p, nil
	}
	o := l.opening
	if o == nil {
		o = &opening{done: make(chan struct{})}
		l.opening = o
		l.calls++ // for the attempt itself, which outlives the call that began it
		go u.try(l, o)
	}
	u.mu.Unlock()
	select {
	case <-o.done:
		return o.parts, o.err
	case <-ctx.Done():
		return nil, fault.Wrap(fault.Transport, "login_slow", "no login as "+l.user+" within the time allowed", ctx.Err()).WithRetry(10)
	}
}

func (u *Users) try(l *login, o *opening) {
	ctx, stop := context.WithTimeout(u.ctx, openTime)
	defer stop()
	p, err := l.Open(ctx)
	u.mu.Lock()
	l.opening = nil
	if o.err = err; err == nil {
		o.parts, l.parts = &p, &p
	}
	e, is := errors.AsType[*fault.Error](err)
	l.refused = is && e.Kind == fault.Policy
	u.mu.Unlock()
	close(o.done)
	u.left(l)
}
