package gate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
)

// Limits bound what callers do at the same time. 0 is no bound.
type Limits struct {
	Calls          int // calls carried out, of all callers
	CallsPerCaller int // calls carried out, of one caller
	WaitsPerCaller int // calls of one caller that wait, for a run or for another call with the same idempotency key

	Previews, PreviewsPerCaller int // of these calls, those of tools whose work is [Preview]
	Hashes, HashesPerCaller     int // and those whose work is [Hash]

	Records Allowance // of each caller

	Memory int64 // bytes that calls hold by the size of what they are given, see [Hold]; one caller's at most half of them

	Services int // calls of service workers, of all callers, which are not among Calls; 0: as many as Calls
}

// Work is a kind of costly work that calls of several tools do and share a limit for.
type Work string

// The kinds of such work, on untrusted bytes.
const (
	Preview Work = "preview" // reads a part of a file and shows it
	Hash    Work = "hash"    // reads all of a file

	// Service waits for a service worker. Its calls have slots of their own, so that they never take one of a call that submits a job.
	Service Work = "service"
)

const (
	limiterWait   = 5 * time.Second // in the queue; then the call is refused
	retakeWait    = 5 * time.Second // in the queue after a wait; then the call answers without a slot
	maxCallsQueue = 1024            // calls of one caller in the queue
	retryIn       = 2               // seconds
	minShared     = 4               // of so many slots one caller gets at most three quarters
	costly        = 20 * time.Millisecond
	restFactor    = 9           // after costly work a caller's slot rests so many times as long as the work took,
	longestRest   = limiterWait // at most so long
	codeManyCalls = "too_many_calls"
)

// limiter bounds concurrent calls (AX-08): of a tool, of a caller, and in total. A call that waits for something else
// releases its slots meanwhile.
type limiter struct {
	all      *Turns
	services *Turns              // in place of all, for tools whose work is [Service]
	service  map[string]bool     // by tool id
	tool     map[string][]*Turns // by tool id: its own limit, where policy has one, that of its work
	waits    *Counter
}

func newLimiter(together int, limits Limits, r *Registry, p Policy) *limiter {
	n := together
	if n == 0 || limits.Calls > 0 && limits.Calls < n {
		n = limits.Calls
	}
	services := n
	if limits.Services > 0 {
		services = limits.Services
	}
	out := &limiter{all: NewTurns(n, limits.CallsPerCaller), services: NewTurns(services, limits.CallsPerCaller), service: map[string]bool{},
		tool: map[string][]*Turns{}, waits: NewCounter(limits.WaitsPerCaller)}
	work := map[Work]*Turns{Preview: NewTurns(limits.Previews, limits.PreviewsPerCaller), Hash: NewTurns(limits.Hashes,
		limits.HashesPerCaller)}
	for _, t := range r.List() {
		if p != nil && p.Rules(t.Name()).Together > 0 {
			out.tool[t.ID] = append(out.tool[t.ID], NewTurns(p.Rules(t.Name()).Together, 0))
		}
		out.service[t.ID] = t.Work == Service
		if w := work[t.Work]; w != nil {
			w.rests = true
			out.tool[t.ID] = append(out.tool[t.ID], w)
		}
	}
	return out
}

// slot is what a call holds while it is carried out.
type slot struct {
	limiter *limiter
	caller  string
	since   time.Time // it has them
	taken   []*Turns
	among   []*Turns // where it takes one
}

// take waits for a slot; the caller releases it. The tool's own slot comes first, so that calls waiting for one tool take no slot from the
// others.
//
// A call with a body takes only its tool's slot: its client may send as slowly as it likes. The face bounds how many of these a caller has.
func (l *limiter) take(ctx context.Context, who Caller, toolID string) (*slot, error) {
	s := &slot{limiter: l, caller: who.Key(), among: slices.Clip(l.tool[toolID])}
	switch {
	case l.service[toolID]:
		s.among = append(s.among, l.services)
	case who.Body == nil:
		s.among = append(s.among, l.all)
	}
	return s, s.take(ctx, limiterWait)
}

func (s *slot) take(ctx context.Context, patience time.Duration) error {
	for _, t := range s.among {
		if err := t.Take(ctx, s.caller, patience); err != nil {
			s.release()
			return err
		}
		s.taken = append(s.taken, t)
	}
	s.since = time.Now()
	return nil
}

func (s *slot) release() {
	for _, t := range s.taken {
		if took := time.Since(s.since); t.rests && !s.since.IsZero() && took > costly {
			t.rest(s.caller, min(restFactor*took, longestRest))
		} else {
			t.Release(s.caller)
		}
	}
	s.taken = s.taken[:0]
}

// wait releases the slot until resume is called. ok is false if the caller has too many waiting calls.
func (s *slot) wait(ctx context.Context) (resume func(), ok bool) {
	if !s.limiter.waits.Add(s.caller) {
		return nil, false
	}
	s.release()
	return func() {
		s.limiter.waits.Remove(s.caller)
		_ = s.take(ctx, retakeWait) // what is known is an answer, and the wait was not in vain
	}, true
}

// Wait releases the call's slot while its handler waits; resume takes it again. ok is false if the caller has as many
// waiting calls as the limits allow. Outside of a call it does nothing.
func Wait(ctx context.Context) (resume func(), ok bool) {
	t, _ := ctx.Value(provenanceKey{}).(*trail)
	if t == nil || t.slot == nil {
		return func() {}, true
	}
	return t.slot.wait(ctx)
}

// Enter waits for a slot for work of a caller that is no call: a list of tools. The caller calls leave.
func (g *Gate) Enter(ctx context.Context, who Caller) (leave func(), err error) {
	s, err := g.limiter.take(ctx, who, "")
	return s.release, err
}

// Turns hands out slots. Callers that queue get them in turn, so that a thousand calls of one delay another's first call by one.
type Turns struct {
	n     int  // slots
	share int  // of one caller, at most
	rests bool // what takes them keeps a processor busy

	mu      sync.Mutex
	used    int
	callers map[string]*queue
	order   []*queue // those with calls that wait; the next turn is the first's
}

// queue is one caller's calls.
type queue struct {
	used  int
	calls []chan struct{} // closed when a slot is the call's
}

// NewTurns makes n slots, of which one caller gets at most share; 0 is no bound.
func NewTurns(n, share int) *Turns {
	t := &Turns{n: n, share: share, callers: map[string]*queue{}}
	if n == 0 {
		t.n = math.MaxInt
	} else if n >= minShared && (share == 0 || share > n-n/4) {
		t.share = n - n/4
	}
	if t.share == 0 {
		t.share = t.n
	}
	return t
}

// Take waits for a slot, for no longer than patience; then it is a Transport fault with code too_many_calls.
func (t *Turns) Take(ctx context.Context, caller string, patience time.Duration) error {
	t.mu.Lock()
	q := t.callers[caller]
	if q == nil {
		q = &queue{}
		t.callers[caller] = q
	}
	if t.used < t.n && q.used < t.share {
		t.used++
		q.used++
		t.mu.Unlock()
		return nil
	}
	if len(q.calls) >= maxCallsQueue {
		t.mu.Unlock()
		return t.refusal("and too many are queued")
	}
	mine := make(chan struct{})
	if q.calls = append(q.calls, mine); len(q.calls) == 1 {
		t.order = append(t.order, q)
	}
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = t.refusal("and none ended within " + patience.String())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(q.calls, mine)
	if at < 0 { // granted in the meantime
		return nil
	}
	if q.calls = slices.Delete(q.calls, at, at+1); len(q.calls) == 0 {
		t.order = slices.DeleteFunc(t.order, func(o *queue) bool { return o == q })
		t.forget(caller, q)
	}
	return err
}

func (t *Turns) refusal(why string) error {
	return fault.New(fault.Transport, codeManyCalls,
		fmt.Sprintf("all %d concurrent calls that you may have are in use, %s", min(t.n, t.share), why)).
		WithNext("call again in a few seconds").WithRetry(retryIn)
}

// Release returns the caller's slot.
func (t *Turns) Release(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used--
	t.rested(caller)
}

// rest returns the slot to others at once, and to the caller after a while: a caller of costly work without end uses
// a part of a processor, not all of it.
func (t *Turns) rest(caller string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used--
	t.grant()
	time.AfterFunc(d, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.rested(caller)
	})
}

// rested lets the caller have another slot; mu is held.
func (t *Turns) rested(caller string) {
	q := t.callers[caller]
	q.used--
	t.grant()
	t.forget(caller, q)
}

// grant passes free slots to the callers whose turn it is.
func (t *Turns) grant() {
	for t.used < t.n {
		at := slices.IndexFunc(t.order, func(q *queue) bool { return q.used < t.share })
		if at < 0 {
			return
		}
		q := t.order[at]
		close(q.calls[0])
		q.calls = q.calls[1:]
		q.used++
		t.used++
		if t.order = slices.Delete(t.order, at, at+1); len(q.calls) > 0 {
			t.order = append(t.order, q)
		}
	}
}

func (t *Turns) forget(caller string, q *queue) {
	if q.used == 0 && len(q.calls) == 0 {
		delete(t.callers, caller)
	}
}

// Counter counts for each caller, up to a number. The zero Counter has no bound.
type Counter struct {
	most int
	mu   sync.Mutex
	now  map[string]int
}

// NewCounter makes a counter up to most for each caller; 0 is no bound.
func NewCounter(most int) *Counter { return &Counter{most: most} }

// Add counts one more; false if the caller has as many as it may.
func (c *Counter) Add(caller string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most > 0 && c.now[caller] >= c.most {
		return false
	}
	if c.now == nil {
		c.now = map[string]int{}
	}
	c.now[caller]++
	return true
}

// Remove takes back one Add.
func (c *Counter) Remove(caller string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now[caller]--; c.now[caller] == 0 {
		delete(c.now, caller)
	}
}
