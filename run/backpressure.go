package run

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Codes of a send that was not started, or never reached slurmctld. The next answer to a query of the queue ends its
// pause.
const (
	Unreachable  = "slurm_unreachable"
	WrongCluster = "wrong_cluster" // Slurm's commands talk to another cluster than the site file's
)

// backPressure records which runs must wait, and until when (rule 5). What keeps Slurm from accepting one run also
// applies to others: all of the site, or those of the same account, QOS or partition. They are not sent while the pause
// lasts, because each failing sbatch would cost the site RPCs, and, where the queue is full, two minutes of a send
// slot. All of it is in memory: a new gateway finds out with its first send. The result of a send as a user concerns
// only that user, who could forge it: it neither begins nor ends a pause of others.
//
// A run that a pause holds is due no later than the pause ends; a run without an entry in notBefore is due.
type backPressure struct {
	now            func() time.Time
	log            *slog.Logger
	first, longest time.Duration // of a wait
	resumed        func()        // called, under mu, when a pause ends early: runs that it held are due

	mu        sync.Mutex
	notBefore map[string]time.Time     // by run: when it is due
	waits     map[string]time.Duration // by run that waits for a reason that concerns it alone: the current back-off
	pauses    map[string]*pause        // of sends, by what they concern
	drain     *Drain                   // nil: the site is not drained
	drained   *pause                   // the pause of all sends, while the site is drained
}

func newBackPressure(cfg Config, now func() time.Time, log *slog.Logger, resumed func()) *backPressure {
	return &backPressure{now: now, log: log, first: cfg.DeferBackoff, longest: max(cfg.Ceiling, cfg.DeferBackoff), resumed: resumed,
		notBefore: map[string]time.Time{}, waits: map[string]time.Duration{}, pauses: map[string]*pause{}}
}

// pause is a time without sends of one kind.
type pause struct {
	since, until time.Time
	wait         time.Duration // its length, doubled each time it is repeated
	code, detail string        // from the result of the send that began it
	held         []string      // runs that wait for its end
}

// outage reports whether the pause began because the site could not be reached, not because Slurm accepts no jobs for
// now.
func (p *pause) outage() bool {
	return p.code == Unreachable || p.code == WrongCluster || unreached(p.code)
}

func (p *pause) fault() error {
	return fault.New(fault.Transport, p.code, "no jobs are submitted until "+p.until.UTC().Format(time.RFC3339)+": "+p.detail).
		WithNext("new runs are accepted and wait; check Slurm").WithSteps(fault.Do("doctor"))
}

// ofOneUser is the prefix of the keys of pauses that hold one user's runs.
const ofOneUser = "user "

var allScopes = []Scope{ScopeSite, ScopePartition, ScopeAccount, ScopeQOS}

// sendTarget holds what decides which pauses hold a send: its placement, and the user that it is executed as, empty for
// the gateway's own.
type sendTarget struct {
	plan.Placement
	user string
}

// pauseKey returns the key of the pause that would hold the send in the scope.
func pauseKey(s Scope, at sendTarget) string {
	if at.user != "" {
		return ofOneUser + at.user + ": " + pauseKey(s, sendTarget{Placement: at.Placement})
	}
	switch s {
	case ScopePartition:
		return "partition " + at.Partition
	case ScopeAccount:
		return "account " + at.Account
	case ScopeQOS:
		if at.QOS != nil {
			return "account " + at.Account + " qos " + *at.QOS
		}
		return "account " + at.Account + " default qos"
	}
	return "site"
}

// refused delays a run whose send was deferred or not run, and all others to which the reason applies.
func (b *backPressure) refused(id string, at sendTarget, res SendResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if res.Scope == ScopeRun {
		b.waits[id] = b.longer(b.waits[id])
		b.notBefore[id] = b.now().Add(b.waits[id])
		return
	}
	key := pauseKey(res.Scope, at)
	p := b.pauses[key]
	if p == nil {
		p = &pause{}
		b.pauses[key] = p
	}
	// The results of sends that were in flight when the pause began change nothing.
	if now := b.now(); !now.Before(p.until) {
		p.wait = b.longer(p.wait)
		if code := cmp.Or(res.Code, "sbatch_not_started"); p.code != code {
			p.since, p.code = now, code
		}
		p.until, p.detail, p.held = now.Add(p.wait), res.Text, nil
		b.log.Warn("sends are paused", "what", key, "for", p.wait, "reason", p.code)
	}
	b.hold(p, id)
}

// longer returns the back-off that follows one of d.
func (b *backPressure) longer(d time.Duration) time.Duration {
	return min(max(b.first, 2*d), b.longest)
}

// hold makes the run wait for the end of the pause. Under mu.
func (b *backPressure) hold(p *pause, id string) {
	p.held = append(p.held, id)
	b.notBefore[id] = p.until
}

// holdIfPaused makes the run wait for the end of the pause that holds such sends, if there is one.
func (b *backPressure) holdIfPaused(id string, at sendTarget) (why pause, held bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained != nil {
		b.hold(b.drained, id)
		return *b.drained, true
	}
	for _, s := range allScopes {
		for _, of := range []sendTarget{{Placement: at.Placement}, at} {
			if p := b.current(s, of); p != nil {
				b.hold(p, id)
				return *p, true
			}
		}
	}
	return pause{}, false
}

// current returns the pause that lasts now, or nil. Under mu.
func (b *backPressure) current(s Scope, at sendTarget) *pause {
	if p := b.pauses[pauseKey(s, at)]; p != nil && b.now().Before(p.until) {
		return p
	}
	return nil
}

// sitePause returns the pause of all sends, or nil.
func (b *backPressure) sitePause() *pause {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drained != nil {
		c := *b.drained
		return &c
	}
	if p := b.current(ScopeSite, sendTarget{}); p != nil {
		c := *p
		return &c
	}
	return nil
}

// sendPause returns the pause of all sends that a result from Slurm began, even while the site is drained; nil
// without one.
func (b *backPressure) sendPause() *pause {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.current(ScopeSite, sendTarget{}); p != nil {
		c := *p
		return &c
	}
	return nil
}

// list returns the pauses that last now, that of all sends first, without those of one user.
func (b *backPressure) list() []SitePause {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []SitePause{}
	for what, p := range b.pauses {
		if b.now().Before(p.until) && !strings.HasPrefix(what, ofOneUser) {
			list = append(list, SitePause{What: what, Until: p.until.UTC(), Code: p.code, Detail: plan.OrNil(p.detail)})
		}
	}
	all := pauseKey(ScopeSite, sendTarget{})
	slices.SortFunc(list, func(a, b SitePause) int {
		switch {
		case a.What == all:
			return -1
		case b.What == all:
			return 1
		}
		return cmp.Compare(a.What, b.What)
	})
	return list
}

// accepted ends all pauses that an accepted send disproves. A send as a user ends only that user's pauses.
func (b *backPressure) accepted(at sendTarget) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range allScopes {
		b.end(pauseKey(s, at))
	}
}

// reached ends the pause of an unreachable site that began before asked: a query sent at that time has been answered.
func (b *backPressure) reached(asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	site := pauseKey(ScopeSite, sendTarget{})
	if p := b.pauses[site]; p != nil && p.outage() && p.since.Before(asked) {
		b.end(site)
	}
}

// end ends a pause and makes the runs that waited for it due. Under mu.
func (b *backPressure) end(key string) {
	p := b.pauses[key]
	if p == nil {
		return
	}
	delete(b.pauses, key)
	for _, id := range p.held {
		delete(b.notBefore, id)
	}
	if len(p.held) > 0 {
		b.resumed()
	}
}

// delay makes a run wait for d.
func (b *backPressure) delay(id string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notBefore[id] = b.now().Add(d)
}

// makeDue makes a run due.
func (b *backPressure) makeDue(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.notBefore, id)
}

// forget drops the delays of a run that has left its phase.
func (b *backPressure) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waits, id)
	delete(b.notBefore, id)
}

// due reports whether nothing delays the run.
func (b *backPressure) due(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.now().Before(b.notBefore[id])
}

// dueOf keeps the runs that nothing delays. All are judged at one time, so that runs held by one pause become due
// together.
func (b *backPressure) dueOf(list []Waiter) []Waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	return slices.DeleteFunc(list, func(w Waiter) bool { return now.Before(b.notBefore[w.RunID]) })
}

// deferRun defers a run that was not sent because of a pause. Its staged files remain; no send was begun.
func (e *Engine) deferRun(ctx context.Context, v View, why pause, w Write) error {
	if v.Run.Phase == Deferred && v.Run.Reason == why.code {
		return nil
	}
	v.Run.enter(Deferred, why.code, why.detail)
	w.Run, w.Submission = v.Run, &v.Submission
	w.Event = Event{Type: "run.deferred", Data: map[string]any{"code": why.code, "send": v.Sends, "text": why.detail, "sent": false}}
	_, err := e.apply(ctx, w)
	return err
}

// forget drops all delays of a run that has left its phase.
func (e *Engine) forget(id string) {
	e.pressure.forget(id)
	e.late.forget(id)
}
