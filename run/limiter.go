package run

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Reasons of a run that waits because its toolpack, its project or its caller has as many runs in flight as allowed.
const (
	ConcurrencyLimit = "concurrency_limit"
	ProjectLimit     = "project_limit"
	CallerLimit      = "caller_limit"
)

// inFlight lists the phases of runs that may be executing, or be about to. A run that needs an operator counts: its job
// may still run.
var inFlight = []Phase{Submitting, Unconfirmed, Pending, InJob, Completing, NeedsOperator}

func (p Phase) inFlight() bool { return slices.Contains(inFlight, p) }

// limiter bounds the runs in flight: by what policy allows a toolpack (concurrency.per_tool) and the site file a
// project and a caller (runs_in_flight). In flight is what was sent to Slurm, or started on the gateway's own host, and
// is not known to have ended. A run beyond the bound waits for its turn and is sent when another one ends. The counters
// are in memory, because counting in the ledger costs each send 2.6 ms at 10,000 runs (BenchmarkTuningReads): the
// gateway counts at start and then with each write. Runs without a limit are not counted.
type limiter struct {
	cfg      Config
	again    time.Duration // longest time until a waiting run is offered again
	pressure *backPressure
	offer    func(s Share, runID string) // gives a run to the workers
	*inFlightRuns
}

// inFlightRuns holds the runs with a limit. The engines of several sites share it.
//
// flying is how many runs of a bound are in flight by their newest known revision, or have a place reserved. It never
// exceeds the bound, except by what was in flight at the start. A freed place is reserved immediately for the run whose
// turn it is.
type inFlightRuns struct {
	mu      sync.Mutex
	flying  map[bound]int
	runs    map[string]*flight // those in flight, and those being written or offered
	waiting []*queueOfTool     // the one that was served longest ago first
	sites   map[string]*limiter
}

// bound is what has a limit: a tool, a project or a caller.
type bound struct{ reason, name string }

// queueOfTool holds the waiting runs of a tool with its own limit; those of all other tools are under the empty name.
// So a full tool delays no other, and a pick need not search its runs for those of others.
type queueOfTool struct {
	tool string
	*turns[string]
}

// flight is the state of a run at its newest known revision.
type flight struct {
	bounds  []bound
	rev     int64
	flying  bool
	offered bool // a place is reserved, which its worker has not taken yet
	writes  int  // in flight; the entry may be forgotten only at 0
}

func newLimiter(cfg Config, pressure *backPressure, offer func(Share, string)) *limiter {
	return &limiter{cfg: cfg, again: max(cfg.Ceiling, cfg.Floor), pressure: pressure, offer: offer,
		inFlightRuns: &inFlightRuns{flying: map[bound]int{}, runs: map[string]*flight{}, sites: map[string]*limiter{}}}
}

// most returns how many runs of the bound may be in flight; 0: any number.
func (l *limiter) most(b bound) int {
	switch {
	case b.reason == ConcurrencyLimit:
		return l.cfg.InFlight[b.name]
	case b.reason == ProjectLimit && l.cfg.ProjectInFlight != nil:
		return l.cfg.ProjectInFlight(b.name)
	case b.reason == CallerLimit && l.cfg.CallerInFlight != nil:
		return l.cfg.CallerInFlight(b.name)
	}
	return 0
}

func (l *limiter) full(b bound) bool { return l.flying[b] >= l.most(b) }

// boundsOf returns the bounds of a run that have a limit. A plan submitted as it is belongs to no tool.
func (l *limiter) boundsOf(tool string, s Share) []bound {
	all := []bound{{ConcurrencyLimit, tool}, {ProjectLimit, s.Project}, {CallerLimit, s.Caller}}
	return slices.DeleteFunc(all, func(b bound) bool { return b.name == "" || l.most(b) == 0 })
}

func toolOf(r Run) string {
	if r.PackHash == "" {
		return ""
	}
	return r.ToolName
}

// count adds the runs that an earlier gateway left in flight.
func (l *limiter) count(ctx context.Context, ledger Index) error {
	if len(l.cfg.InFlight) == 0 && l.cfg.ProjectInFlight == nil && l.cfg.CallerInFlight == nil {
		return nil
	}
	var list []Flying
	if err := ledger.InPhases(ctx, func(f Flying) { list = append(list, f) }, inFlight...); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range list {
		if bounds := l.boundsOf(f.Tool, f.Share); len(bounds) > 0 {
			l.set(l.entry(f.RunID, bounds), true)
		}
	}
	return nil
}

func (l *limiter) entry(id string, bounds []bound) *flight {
	if l.runs[id] == nil {
		l.runs[id] = &flight{bounds: bounds}
	}
	return l.runs[id]
}

func (l *limiter) set(f *flight, flying bool) {
	if f.flying != flying {
		for _, b := range f.bounds {
			if l.flying[b] += map[bool]int{true: 1, false: -1}[flying]; l.flying[b] == 0 {
				delete(l.flying, b)
			}
		}
	}
	f.flying = flying
}

// forget drops the entry of a run that is neither in flight nor being written.
func (l *limiter) forget(id string) {
	if f := l.runs[id]; f != nil && !f.flying && f.writes == 0 {
		delete(l.runs, id)
	}
}

// reserve takes a place for a run that is about to be sent; release frees it unless the run is in flight by then.
// Without a free place the run waits, and why names the limit.
func (l *limiter) reserve(r Run) (release func(), why pause, ok bool) {
	bounds := l.boundsOf(toolOf(r), ShareOf(r))
	if len(bounds) == 0 {
		return func() {}, pause{}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.runs[r.ID]; f == nil || !f.flying {
		if i := slices.IndexFunc(bounds, l.full); i >= 0 {
			l.queue(toolOf(r)).add(ShareOf(r), r.ID)
			l.sites[r.ID] = l
			l.pressure.delay(r.ID, l.again)
			return nil, pause{code: bounds[i].reason, detail: l.limitText(r, bounds[i])}, false
		}
	}
	f := l.entry(r.ID, bounds)
	f.rev, f.offered = max(f.rev, r.Rev), false
	l.set(f, true)
	l.waitsNoMore(r.ID)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if f.rev == r.Rev { // nothing was written
			l.set(f, false)
			l.forget(r.ID)
			l.offerPlaces()
		}
	}, pause{}, true
}

func (l *limiter) limitText(r Run, b bound) string {
	const then = "this run is submitted when one of them ends"
	switch most, now := l.most(b), l.flying[b]; b.reason {
	case ConcurrencyLimit:
		return fmt.Sprintf("policy allows %d runs of %s at a time (concurrency.per_tool.%s), and %d are submitted or running; %s", most, r.ToolID,
			b.name, now, then)
	case ProjectLimit:
		return fmt.Sprintf("the project has %d runs in flight (limit %d, runs_in_flight of the project in the site file); %s", now, most, then)
	default:
		return fmt.Sprintf("the caller has %d runs in flight (limit %d, runs_in_flight of the caller in the site file); %s", now, most, then)
	}
}

// queue returns the queue for runs of a tool.
func (l *limiter) queue(tool string) *queueOfTool {
	if l.cfg.InFlight[tool] == 0 {
		tool = ""
	}
	for _, q := range l.waiting {
		if q.tool == tool {
			return q
		}
	}
	q := &queueOfTool{tool, newTurns[string](l.cfg.weight)}
	l.waiting = append(l.waiting, q)
	return q
}

// waitsNoMore removes a run from its queue.
func (l *limiter) waitsNoMore(runID string) {
	for _, q := range l.waiting {
		q.remove(runID)
	}
	delete(l.sites, runID)
}

// writing records that a write of a run begins; the returned function records its result. Results may arrive in another
// order than the writes were made: the newest revision counts.
func (l *limiter) writing(r Run) (wrote func(View, error)) {
	bounds := l.boundsOf(toolOf(r), ShareOf(r))
	if len(bounds) == 0 {
		return func(View, error) {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.entry(r.ID, bounds)
	f.writes++
	return func(v View, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.writes--
		if err == nil && v.Run.Rev > f.rev {
			f.rev = v.Run.Rev
			toBeSent := v.Run.Phase == Staging || v.Run.Phase == Deferred
			if !toBeSent {
				l.waitsNoMore(r.ID)
			}
			if !toBeSent || !f.offered {
				f.offered = false
				l.set(f, v.Run.Phase.inFlight())
			}
			l.offerPlaces()
		}
		l.forget(r.ID)
	}
}

// unclaimed frees the place that was reserved for a run whose worker did not take it.
func (l *limiter) unclaimed(runID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.runs[runID]; f != nil && f.offered {
		f.offered = false
		l.set(f, false)
		l.forget(runID)
		l.offerPlaces()
	}
}

// offerPlaces reserves each free place for the run whose turn it is, and gives that run to the workers. Under mu.
func (l *limiter) offerPlaces() {
	for i := 0; i < len(l.waiting); {
		q := l.waiting[i]
		if q.len() == 0 || q.tool != "" && l.full(bound{ConcurrencyLimit, q.tool}) {
			i++
			continue
		}
		s, id, ok := q.next(func(s Share) bool { return !slices.ContainsFunc(l.boundsOf("", s), l.full) }, nil)
		if !ok {
			i++
			continue
		}
		f := l.entry(id, l.boundsOf(q.tool, s))
		f.offered = true
		l.set(f, true)
		site := l.sites[id]
		delete(l.sites, id)
		site.pressure.makeDue(id)
		site.offer(s, id)
		l.waiting = append(slices.Delete(l.waiting, i, i+1), q) // the next pick tries the other queues first
		i = 0
	}
}
