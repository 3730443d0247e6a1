package run

import (
	"context"
	"fmt"
	"time"
)

// Policy may limit how many runs of a toolpack are in flight (concurrency.per_tool): sent to Slurm, or started on the gateway's own host,
// and not known to have ended. A run that would be one too many is deferred and sent when another one ends. The numbers are in memory: the
// ledger has one engine, which counts at start and then with each write. Tools without a limit are not counted.

// ConcurrencyLimit is the reason of a run that waits because as many runs of its tool as policy allows are in flight.
const ConcurrencyLimit = "concurrency_limit"

// inFlight are the phases of runs that may be executing, or be about to. A run that needs an operator counts: its job may still run.
var inFlight = []Phase{Submitting, Unconfirmed, Pending, InJob, Completing, NeedsOperator}

func (p Phase) inFlight() bool {
	for _, f := range inFlight {
		if p == f {
			return true
		}
	}
	return false
}

// toolRuns counts the runs of one limited tool. Under Engine.mu.
type toolRuns struct {
	most    int
	flying  int
	runs    map[string]*flight   // those in flight, and those being written
	waiting map[string]time.Time // runs that wait for a place, and when they were created
}

// flight is what is known of a run at its newest revision.
type flight struct {
	rev    int64
	flying bool
	writes int // under way: only when none is can the entry be forgotten
}

func newToolRuns(limits map[string]int) map[string]*toolRuns {
	tools := map[string]*toolRuns{}
	for name, most := range limits {
		tools[name] = &toolRuns{most: most, runs: map[string]*flight{}, waiting: map[string]time.Time{}}
	}
	return tools
}

// limited returns the count of the run's tool, nil if policy does not limit it. A plan submitted as it is belongs to no tool.
func (e *Engine) limited(r Run) *toolRuns {
	if len(e.limits) == 0 || r.PackHash == "" {
		return nil
	}
	return e.limits[r.ToolName]
}

// countFlights counts what an earlier gateway left in flight.
func (e *Engine) countFlights(ctx context.Context) error {
	for name, t := range e.limits {
		ids, err := e.Index.OfTool(ctx, name, inFlight...)
		if err != nil {
			return err
		}
		e.mu.Lock()
		for _, id := range ids {
			t.set(t.entry(id), true)
		}
		e.mu.Unlock()
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
func (e *Engine) reserve(r Run) (release func(), why pause, ok bool) {
	t := e.limited(r)
	if t == nil {
		return func() {}, pause{}, true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := t.runs[r.ID]; t.flying >= t.most && (f == nil || !f.flying) {
		t.waiting[r.ID] = r.CreatedAt
		e.notBefore[r.ID] = e.Now().Add(max(e.cfg.Ceiling, e.cfg.Floor)) // the watcher offers it then, whatever happens
		return nil, pause{code: ConcurrencyLimit, detail: fmt.Sprintf("policy allows %d runs of %s at a time (concurrency.per_tool.%s), and "+
			"%d are submitted or running; this run is submitted when one of them ends",
			t.most, r.ToolID, r.ToolName, t.flying)}, false
	}
	f := t.entry(r.ID)
	f.rev = max(f.rev, r.Rev)
	t.set(f, true)
	delete(t.waiting, r.ID)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if f.rev == r.Rev { // nothing was written
			t.set(f, false)
			t.forget(r.ID)
			e.offerPlaces(t)
		}
	}, pause{}, true
}

// writing notes that a write of a limited tool's run begins; the returned function notes its result. Writes of one run may be noted in
// another order than they were made: the newest revision counts.
func (e *Engine) writing(r Run) (wrote func(View, error)) {
	t := e.limited(r)
	if t == nil {
		return func(View, error) {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f := t.entry(r.ID)
	f.writes++
	return func(v View, err error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		f.writes--
		if err == nil && v.Run.Rev > f.rev {
			f.rev = v.Run.Rev
			t.set(f, v.Run.Phase.inFlight())
			if v.Run.Phase != Staging && v.Run.Phase != Deferred {
				delete(t.waiting, r.ID)
			}
			e.offerPlaces(t)
		}
		t.forget(r.ID)
	}
}

// offerPlaces gives the workers the runs that have waited longest, one for each free place. Under e.mu.
func (e *Engine) offerPlaces(t *toolRuns) {
	for free := t.most - t.flying; free > 0 && len(t.waiting) > 0; free-- {
		first := ""
		for id, at := range t.waiting {
			if first == "" || at.Before(t.waiting[first]) || at.Equal(t.waiting[first]) && id < first {
				first = id
			}
		}
		delete(t.waiting, first)
		delete(e.notBefore, first)
		e.work.add(first)
	}
}

// unlimited is the staging time of a run without a pack: longer than anything takes.
const unlimited = 10 * 365 * 24 * time.Hour

// stagingTime is how long staging the run's attempt may take, by the pack it was planned with. A pack that cannot be read does not keep
// the run from being staged: what depends on the pack is its end.
func (e *Engine) stagingTime(ctx context.Context, v View) time.Duration {
	if v.Run.PackHash == "" {
		return unlimited
	}
	c, err := e.Contracts.Contract(ctx, v.Run.PackHash)
	if err != nil || c.Timeout() <= 0 {
		return unlimited
	}
	return min(c.Timeout(), unlimited)
}
