package run

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"slurmgate/plan"
)

// pendingArrays has the pending arrays: sets of runs that are ready to be sent and agree in everything that Slurm gets
// once for an array. A pending array is sent when it has as many runs as the site wants (Arrays.Min), when no other run
// has joined for a while, or when its first run has waited for Arrays.Linger; while the budget of RPCs delays it, it
// grows. A run waits only if its caller has other runs on the way. The attempts' folders are created when the array is
// sent, all together.
//
// All of it is in memory: in the ledger the runs are staging or deferred, and a gateway that dies has sent none of
// them.
type pendingArrays struct {
	cfg Arrays
	wg  sync.WaitGroup

	mu    sync.Mutex
	rest  *sync.Cond // signalled when a run has left
	byKey map[string]*pendingArray
	in    map[string]bool // runs that wait in a pending array, or are being sent with it
	of    map[string]int  // how many of them are executed as each user
	sizes map[string]int  // most tasks of the next array of a key, where Slurm has refused larger ones
	limit int             // tasks in an array of this Slurm, as far as its refusals show
}

type pendingArray struct {
	waiting []*arrayCandidate
	full    chan struct{} // has a value once there are enough
}

// arrayCandidate is a run in a pending array: what it is sent with, and its place in the limits.
type arrayCandidate struct {
	v       View
	was     View // before its files were created
	job     JobSpec
	files   []ControlFile // for its attempt's folder, which does not exist yet; nil: it exists
	w       Write         // stored with its next transition
	release func()
}

// waitingMost bounds the runs in pending arrays, whose scripts are in memory. Others wait in the ledger. Sends as a
// user may hang, so one user may have waitingOfOne of them; a run that finds no place because of other users' runs is
// sent alone.
const (
	waitingMost  = 4 * maxArray
	waitingOfOne = maxArray
)

func newPendingArrays(cfg Arrays) *pendingArrays {
	p := &pendingArrays{cfg: cfg, byKey: map[string]*pendingArray{}, in: map[string]bool{}, of: map[string]int{}, sizes: map[string]int{},
		limit: maxArray}
	p.rest = sync.NewCond(&p.mu)
	return p
}

// has reports whether the run is in a pending array: nothing else is done with it then.
func (p *pendingArrays) has(runID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in[runID]
}

// idle waits until no run is in a pending array; none reports that there was none at the call.
func (p *pendingArrays) idle(ctx context.Context) (none bool, err error) {
	defer context.AfterFunc(ctx, func() { p.mu.Lock(); p.rest.Broadcast(); p.mu.Unlock() })()
	p.mu.Lock()
	defer p.mu.Unlock()
	for none = len(p.in) == 0; len(p.in) > 0; {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		p.rest.Wait()
	}
	return none, nil
}

// size returns how many runs the next array of the key may have. Under mu.
func (p *pendingArrays) size(key string) int {
	if n, ok := p.sizes[key]; ok {
		return min(n, p.limit)
	}
	return p.limit
}

// accepted adjusts the size of the key's arrays after an array of n tasks: twice as many after Slurm accepted as many
// as allowed. refused halves the size. outright: Slurm accepts no array of that size from any caller.
func (p *pendingArrays) accepted(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if most, ok := p.sizes[key]; ok && n >= most {
		if p.sizes[key] = 2 * most; 2*most >= p.limit {
			delete(p.sizes, key)
		}
	}
}

func (p *pendingArrays) refused(key string, n int, outright bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sizes[key] = max(1, n/2)
	if outright {
		p.limit = min(p.limit, max(1, n/2))
	}
}

// joined is the result of adding a run to a pending array.
type joined int

const (
	sentAlone joined = iota
	inArray
	noPlace // too many runs wait already
)

// join adds a run to the pending array of its key, unless the run is to be sent alone; begin is called for a new one.
func (p *pendingArrays) join(key string, m *arrayCandidate, others bool, begin func(*pendingArray)) joined {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.byKey[key]
	switch {
	case p.size(key) < 2, t == nil && !others:
		return sentAlone
	case p.fullLocked(m.v.Run.ExecutedAs):
		return noPlace
	case len(p.in) >= waitingMost:
		return sentAlone
	}
	p.in[m.v.Run.ID] = true
	p.of[m.v.Run.ExecutedAs]++
	if t == nil {
		t = &pendingArray{full: make(chan struct{}, 1)}
		p.byKey[key] = t
		p.wg.Go(func() { begin(t) })
	}
	if t.waiting = append(t.waiting, m); len(t.waiting) >= min(p.cfg.Min, p.size(key)) {
		select {
		case t.full <- struct{}{}:
		default:
		}
	}
	return inArray
}

// open reports whether the key has a pending array.
func (p *pendingArrays) open(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byKey[key] != nil
}

// fullLocked reports whether a further run of the user must wait until others were sent. Under mu.
func (p *pendingArrays) fullLocked(user string) bool {
	if user == "" {
		return len(p.in) >= waitingMost
	}
	return p.of[user] >= waitingOfOne
}

func (p *pendingArrays) full(user string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fullLocked(user)
}

// waiting returns how many runs wait in the pending array.
func (p *pendingArrays) waiting(t *pendingArray) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(t.waiting)
}

// take removes and returns the runs of the next array; none: the pending array is empty.
func (p *pendingArrays) take(key string, t *pendingArray, all bool) []*arrayCandidate {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(t.waiting), max(1, p.size(key)))
	if all {
		n = len(t.waiting)
	}
	list := t.waiting[:n:n]
	t.waiting = t.waiting[n:]
	return list
}

// end removes the key's pending array if no run waits in it.
func (p *pendingArrays) end(key string, t *pendingArray) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if over = len(t.waiting) == 0; over {
		delete(p.byKey, key)
	}
	return over
}

// left records that runs are no longer in a pending array.
func (p *pendingArrays) left(list []*arrayCandidate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range list {
		delete(p.in, m.v.Run.ID)
		if p.of[m.v.Run.ExecutedAs]--; p.of[m.v.Run.ExecutedAs] == 0 {
			delete(p.of, m.v.Run.ExecutedAs)
		}
	}
	p.rest.Broadcast()
}

// pauses is the ratio of Arrays.Linger to the time without a new run after which a pending array is sent.
const pauses = 10

// wait waits until the pending array is to be sent. The error is that of ctx.
func (p *pendingArrays) wait(ctx context.Context, t *pendingArray) error {
	last := time.NewTimer(p.cfg.Linger)
	defer last.Stop()
	again := time.NewTicker(max(time.Millisecond, p.cfg.Linger/pauses))
	defer again.Stop()
	for before := 0; ; {
		select {
		case <-again.C:
			if n := p.waiting(t); n > before {
				before = n
				continue
			}
		case <-t.full:
		case <-last.C:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
}

// equals returns the key of the runs that may share an array with this one: they agree in everything that Slurm gets
// about the job, except its name and its folders. That includes the user that they are executed as, because the array's
// files are its leader's. A second or later attempt is sent alone.
func (e *Engine) equals(v View, job JobSpec) (key string, ok bool) {
	if !e.cfg.Arrays.on() || v.Attempt.N != 1 || len(job.Exclude) > 0 {
		return "", false
	}
	b, err := json.Marshal(struct {
		Share      Share
		ExecutedAs string
		Principal  Principal
		ToolID     string
		Resources  plan.Resources
		Placement  plan.Placement
	}{ShareOf(v.Run), v.Run.ExecutedAs, job.Principal, job.ToolID, job.Spec.Resources, job.Spec.Placement})
	return string(b), err == nil
}

// sendsWait is the reason of a run that waits for the budget of RPCs behind thousands of others.
const sendsWait = "sends_wait"

var sendsWaitDetail = fmt.Sprintf("%d runs of this site are about to be sent; this one is sent after them", waitingMost)

// hasPartners reports whether the run may be sent in an array, and other runs for it are on the way.
func (e *Engine) hasPartners(v View, job JobSpec) bool {
	key, ok := e.equals(v, job)
	return ok && (e.pending.open(key) || e.work.others(ShareOf(v.Run), v.Run.ID))
}

// joinArray lets the run wait for others with its key, and sends them as an array; false: it is sent alone.
func (e *Engine) joinArray(ctx context.Context, m *arrayCandidate) (waits bool, err error) {
	key, ok := e.equals(m.v, m.job)
	if !ok {
		return false, nil
	}
	share := ShareOf(m.v.Run)
	switch e.pending.join(key, m, e.work.others(share, m.v.Run.ID), func(t *pendingArray) { e.sendPending(ctx, key, share, t) }) {
	case inArray:
		return true, nil
	case noPlace:
		m.release()
		e.pressure.delay(m.v.Run.ID, e.cfg.Floor)
		return true, e.deferWithFolder(ctx, m, pause{code: sendsWait, detail: sendsWaitDetail})
	}
	return false, nil
}

// sendPending sends the runs of a pending array, one array after the other, until none is left.
func (e *Engine) sendPending(ctx context.Context, key string, share Share, t *pendingArray) {
	for {
		err := e.pending.wait(ctx, t)
		free := func() {}
		if err == nil {
			free, err = e.sends.enter(ctx, share, key)
		}
		list := e.pending.take(key, t, err != nil)
		var again []View
		if err == nil {
			again = e.sendArray(ctx, key, list, free)
			free()
		}
		for _, m := range list {
			m.release()
		}
		e.pending.left(list)
		for _, v := range again {
			e.work.add(ShareOf(v.Run), v.Run.ID)
		}
		if e.pending.end(key, t) {
			return
		}
	}
}
