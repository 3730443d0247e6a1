package run

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Whatever is done as a user may hang for as long as that user likes: in the user's login shell, quota or files. So it
// must not block what others need for long. A user has some of the workers at most. A worker that is busy with a user's
// run for longer than userPatience gets a stand-in, and its place to send or to collect is freed. The watcher continues
// without a check that hangs.
const (
	userPatience  = 10 * time.Second
	checksOfOne   = 4               // checks of one user's files by the watcher, in parallel
	watchPatience = 2 * time.Second // how long the watcher waits for such checks
)

// userSlots bounds how many things are done in parallel as one user. An item without a slot waits: release returns it
// at its turn.
type userSlots[K comparable] struct {
	most int

	mu      sync.Mutex
	used    map[string]int
	waiting map[string]*turns[K]
}

func newUserSlots[K comparable](most int) *userSlots[K] {
	return &userSlots[K]{most: most, used: map[string]int{}, waiting: map[string]*turns[K]{}}
}

func (u *userSlots[K]) take(user string, s Share, what K) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := u.waiting[user]
	if u.used[user] >= u.most {
		if t == nil {
			t = newTurns[K](nil)
			u.waiting[user] = t
		}
		t.add(s, what)
		return false
	}
	if t != nil {
		t.remove(what)
	}
	u.used[user]++
	return true
}

// release frees a slot and returns the item whose turn it is; ok is false if nothing waits.
func (u *userSlots[K]) release(user string) (s Share, next K, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used[user]--; u.used[user] == 0 {
		delete(u.used, user)
	}
	if t := u.waiting[user]; t != nil {
		if s, next, ok = t.next(nil, nil); t.len() == 0 {
			delete(u.waiting, user)
		}
	}
	return s, next, ok
}

// as processes an id of the queue as a user: within the user's slots, with a stand-in for the worker if it takes long.
// Without a slot it is done later.
func (q *workQueue[K]) as(ctx context.Context, u *userSlots[K], user string, s Share, id K, work func(context.Context, K), do func()) {
	if !u.take(user, s, id) {
		return
	}
	defer func() {
		if s, next, ok := u.release(user); ok {
			q.add(s, next)
		}
	}()
	defer q.standIn(ctx, work)()
	do()
}

// standIn starts another worker once the caller's has been busy for longer than userPatience; back stops that worker.
func (q *workQueue[K]) standIn(ctx context.Context, work func(context.Context, K)) (back func()) {
	needed, stop := context.WithCancel(ctx)
	t := time.AfterFunc(userPatience, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.closed && needed.Err() == nil {
			q.standIns.Go(func() { q.whileNeeded(needed, ctx, work) })
		}
	})
	return func() {
		t.Stop()
		stop()
	}
}

// stepAs calls step, within the slots of the user that the run is executed as.
func (e *Engine) stepAs(ctx context.Context, h handed) (err error) {
	r := h.view.Run
	if r.ExecutedAs == "" {
		return e.step(ctx, h.view, h.params)
	}
	e.work.as(ctx, e.users, r.ExecutedAs, ShareOf(r), r.ID, e.advance, func() { err = e.step(ctx, h.view, h.params) })
	return err
}

// lend calls free once the work as the run's user has taken longer than userPatience; stop prevents that.
func lend(v View, free func()) (stop func()) {
	if v.Run.ExecutedAs == "" {
		return func() {}
	}
	t := time.AfterFunc(userPatience, free)
	return func() { t.Stop() }
}

// heldLongest is how long a user's side is believed that the user's sbatch is still running. An sbatch gives up after
// two minutes, or is delayed by Slurm's limit of RPCs for longer; what it submits after that finds the claim taken.
const heldLongest = 10 * time.Minute

func (e *Engine) believesHeld(v View) bool {
	return v.Run.ExecutedAs == "" || e.Now().Sub(v.Run.UpdatedAt).Abs() < heldLongest
}

// userChecks counts the watcher's checks of users' runs that have not returned.
type userChecks struct {
	mu     sync.Mutex
	users  map[string]int
	runs   map[string]bool
	flying sync.WaitGroup
}

// begin records a check; false: one of the run hangs, or as many of its user are in flight as may be.
func (l *userChecks) begin(r Run) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[r.ID] || l.users[r.ExecutedAs] >= checksOfOne {
		return false
	}
	l.users[r.ExecutedAs]++
	l.runs[r.ID] = true
	return true
}

func (l *userChecks) end(r Run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, r.ID)
	if l.users[r.ExecutedAs]--; l.users[r.ExecutedAs] == 0 {
		delete(l.users, r.ExecutedAs)
	}
}

// eachOfUsers calls do for users' runs, in parallel to the cycle: each user's in separate lanes. It waits for them up to
// watchPatience. A run that no lane has begun by then is left for the next cycle; one whose check hangs is finished
// when the check returns.
func (c *cycle) eachOfUsers(ctx context.Context, list []View, do func(View) (bool, error)) {
	within, stop := context.WithTimeout(ctx, watchPatience)
	defer stop()
	byUser := map[string][]View{}
	for _, v := range list {
		byUser[v.Run.ExecutedAs] = append(byUser[v.Run.ExecutedAs], v)
	}
	var lanes sync.WaitGroup
	for _, runs := range byUser {
		next := make(chan View, len(runs))
		for _, v := range runs {
			next <- v
		}
		close(next)
		for range min(checksOfOne, len(runs)) {
			lanes.Add(1)
			c.checks.flying.Go(func() {
				defer lanes.Done()
				for v := range next {
					if within.Err() != nil {
						return
					}
					if c.checks.begin(v.Run) {
						c.one(ctx, v.Run.ID, do, nil)
						c.checks.end(v.Run)
					}
				}
			})
		}
	}
	all := make(chan struct{})
	c.checks.flying.Go(func() { lanes.Wait(); close(all) })
	select {
	case <-all:
	case <-within.Done():
	}
}

// gather collects views from several goroutines.
type gather struct {
	mu   sync.Mutex
	list []View
}

func (g *gather) add(v View) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, v)
}

// since returns when the oldest of the submissions was made, or at if that is earlier.
func (g *gather) since(at time.Time) time.Time {
	for _, v := range g.list {
		at = slices.MinFunc([]time.Time{at, v.Submission.CreatedAt}, time.Time.Compare)
	}
	return at
}
