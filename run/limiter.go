package run

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ConcurrencyLimit is the reason of a run that waits because as many runs of its tool as policy allows are in flight.
const ConcurrencyLimit = "concurrency_limit"

// inFlight are the phases of runs that may be executing, or be about to. A run that needs an operator counts: its job may still run.
var inFlight = []Phase{Submitting, Unconfirmed, Pending, InJob, Completing, NeedsOperator}

func (p Phase) inFlight() bool { return slices.Contains(inFlight, p) }

// limiter holds the runs of each toolpack in flight to what policy allows (concurrency.per_tool). In flight is what was sent to Slurm, or
// started on the gateway's own host, and is not known to have ended. A run that would be one too many waits and is sent when another one
// ends. The numbers are in memory, because to count in the ledger costs each send 2.6 ms at 10,000 runs (BenchmarkTuningReads): the
// gateway counts at start and then with each write. Tools without a limit are not counted.
//
// flying is the number of runs whose newest known revision is in flight, or for which a place is reserved; it never exceeds most but for
// what was in flight at the start.
type limiter struct {
	again    time.Duration // after which a waiting run is offered, whatever happens
	pressure *backPressure
	offer    func(runID string) // gives a run to the workers
	*inFlightRuns
}

// inFlightRuns are the runs of the limited tools. The engines of several sites share them.
type inFlightRuns struct {
	mu    sync.Mutex
	tools map[string]*toolRuns // by tool name; the map itself never changes
}

func newLimiter(cfg Config, pressure *backPressure, offer func(string)) *limiter {
	l := &limiter{again: max(cfg.Ceiling, cfg.Floor), pressure: pressure, offer: offer,
		inFlightRuns: &inFlightRuns{tools: map[string]*toolRuns{}}}
	for name, most := range cfg.InFlight {
		l.tools[name] = &toolRuns{most: most, runs: map[string]*flight{}, waiting: map[string]waiting{}}
	}
	return l
}

// toolRuns are the runs of one limited tool. Under inFlightRuns.mu.
type toolRuns struct {
	most    int
	flying  int
	runs    map[string]*flight // those in flight, and those being written
	waiting map[string]waiting // runs that wait for a place
}

// waiting is a run that waits for a place.
type waiting struct {
	since time.Time // it was created
	of    *limiter  // of its site
}

// flight is what is known of a run at its newest revision.
type flight struct {
	rev    int64
	flying bool
	writes int // under way: only when none is can the entry be forgotten
}

// of returns the runs of the run's tool, nil if policy does not limit it. A plan submitted as it is belongs to no tool.
func (l *limiter) of(r Run) *toolRuns {
	if r.PackHash == "" {
		return nil
	}
	return l.tools[r.ToolName]
}

// count adds what an earlier gateway left in flight.
func (l *limiter) count(ctx context.Context, ledger Index) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, t := range l.tools {
		ids, err := ledger.OfTool(ctx, name, inFlight...)
		if err != nil {
			return err
		}
		for _, id := range ids {
			t.set(t.entry(id), true)
		}
	}
	return nil
}

func (t *toolRuns) entry(id string) *flight {
	if t.runs[id] == nil {
		t.runs[id] = &flight{}
	}
	return t.runs[id]
}

func (t *toolRuns) set(f *flight, flying bool) {
	if f.flying != flying {
		t.flying += map[bool]int{true: 1, false: -1}[flying]
	}
	f.flying = flying
}

// forget drops the entry of a run that is neither in flight nor being written.
func (t *toolRuns) forget(id string) {
	if f := t.runs[id]; f != nil && !f.flying && f.writes == 0 {
		delete(t.runs, id)
	}
}

// reserve takes a place for a run that is about to be sent; release gives it back unless the run is in flight by then. Without a place the
// run waits, and why says for what.
func (l *limiter) reserve(r Run) (release func(), why pause, ok bool) {
	t := l.of(r)
	if t == nil {
		return func() {}, pause{}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := t.runs[r.ID]; t.flying >= t.most && (f == nil || !f.flying) {
		t.waiting[r.ID] = waiting{r.CreatedAt, l}
		l.pressure.delay(r.ID, l.again)
		return nil, pause{code: ConcurrencyLimit, detail: fmt.Sprintf("policy allows %d runs of %s at a time (concurrency.per_tool.%s), and "+
			"%d are submitted or running; this run is submitted when one of them ends", t.most, r.ToolID, r.ToolName, t.flying)}, false
	}
	f := t.entry(r.ID)
	f.rev = max(f.rev, r.Rev)
	t.set(f, true)
	delete(t.waiting, r.ID)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if f.rev == r.Rev { // nothing was written
			t.set(f, false)
			t.forget(r.ID)
			l.offerPlaces(t)
		}
	}, pause{}, true
}

// writing notes that a write of a run begins; the returned function notes its result. Writes of one run may be noted in another order than
// they were made: the newest revision counts.
func (l *limiter) writing(r Run) (wrote func(View, error)) {
	t := l.of(r)
	if t == nil {
		return func(View, error) {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := t.entry(r.ID)
	f.writes++
	return func(v View, err error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.writes--
		if err == nil && v.Run.Rev > f.rev {
			f.rev = v.Run.Rev
			t.set(f, v.Run.Phase.inFlight())
			if v.Run.Phase != Staging && v.Run.Phase != Deferred {
				delete(t.waiting, r.ID)
			}
			l.offerPlaces(t)
		}
		t.forget(r.ID)
	}
}

// offerPlaces gives the workers the runs that have waited longest, one for each free place. Under mu.
func (l *limiter) offerPlaces(t *toolRuns) {
	for free := t.most - t.flying; free > 0 && len(t.waiting) > 0; free-- {
		first := ""
		for id, w := range t.waiting {
			if than := t.waiting[first].since; first == "" || w.since.Before(than) || w.since.Equal(than) && id < first {
				first = id
			}
		}
		site := t.waiting[first].of
		delete(t.waiting, first)
		site.pressure.hurry(first)
		site.offer(first)
	}
}
