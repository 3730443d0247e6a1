package run

import (
	"context"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Back-pressure (rule 5). What keeps Slurm from accepting one run now also applies to others: all of the site, or those of the same
// account, QOS or partition. They are not sent while the pause lasts, because each failing sbatch would cost the site RPCs, and two minutes
// of a send slot where the queue is full. Pauses are in memory: a new gateway finds out with its first send.

// Unreachable is the code of a send that never reached slurmctld; the next answer of the queue ends its pause.
const Unreachable = "slurm_unreachable"

// pause is a time without sends of one kind.
type pause struct {
	until        time.Time
	wait         time.Duration // its length, doubled each time it is repeated
	code, detail string        // the reason of the send that began it
	held         []string      // runs that wait for its end
}

// pauseKey names what a send to the place is part of, in the scope.
func pauseKey(s Scope, at plan.Placement) string {
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

// hold delays a run whose send was deferred or not run, and all others to which the reason applies.
func (e *Engine) hold(id string, at plan.Placement, res SendResult) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if res.Scope == ScopeRun {
		e.waits[id] = e.longer(e.waits[id])
		e.notBefore[id] = e.Now().Add(e.waits[id])
		return
	}
	key := pauseKey(res.Scope, at)
	p := e.pauses[key]
	if p == nil {
		p = &pause{}
		e.pauses[key] = p
	}
	// Sends that were in flight when the pause began say nothing new.
	if now := e.Now(); !now.Before(p.until) {
		p.wait = e.longer(p.wait)
		p.until, p.code, p.detail, p.held = now.Add(p.wait), orElse(res.Code, "sbatch_not_started"), res.Text, nil
		e.Log.Warn("sends are paused", "what", key, "for", p.wait, "reason", p.code)
	}
	e.keepBack(p, id)
}

// longer is the next wait after one of d: doubled, between the first and the ceiling.
func (e *Engine) longer(d time.Duration) time.Duration {
	return min(max(e.cfg.DeferBackoff, 2*d), max(e.cfg.Ceiling, e.cfg.DeferBackoff))
}

// keepBack makes the run wait for the end of the pause. Under e.mu.
func (e *Engine) keepBack(p *pause, id string) {
	p.held = append(p.held, id)
	e.notBefore[id] = p.until
}

// paused reports whether sends to the place are paused, and if so makes the run wait until they are not.
func (e *Engine) paused(id string, at plan.Placement) (pause, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range []Scope{ScopeSite, ScopePartition, ScopeAccount, ScopeQOS} {
		if p := e.pauses[pauseKey(s, at)]; p != nil && e.Now().Before(p.until) {
			e.keepBack(p, id)
			return *p, true
		}
	}
	return pause{}, false
}

// resume ends all pauses that an accepted send to the place disproves.
func (e *Engine) resume(at plan.Placement) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range []Scope{ScopeSite, ScopePartition, ScopeAccount, ScopeQOS} {
		e.end(pauseKey(s, at))
	}
}

// reached ends the pause of a site that could not be reached: its queue answers.
func (e *Engine) reached() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pauses[pauseKey(ScopeSite, plan.Placement{})]; p != nil && p.code == Unreachable {
		e.end(pauseKey(ScopeSite, plan.Placement{}))
	}
}

// end ends a pause; the runs that waited for it are due. Under e.mu.
func (e *Engine) end(key string) {
	p := e.pauses[key]
	if p == nil {
		return
	}
	delete(e.pauses, key)
	for _, id := range p.held {
		delete(e.notBefore, id)
	}
	if len(p.held) > 0 {
		e.poke()
	}
}

// siteWaits reports whether nothing at all may be sent now.
func (e *Engine) siteWaits() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.pauses[pauseKey(ScopeSite, plan.Placement{})]
	return p != nil && e.Now().Before(p.until)
}

// Ready returns why new runs wait although they are accepted: a Transport fault with the code of the reason, nil while nothing is known to
// delay them. The information comes from the last query and the last sends; nothing is queried.
func (e *Engine) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.pauses[pauseKey(ScopeSite, plan.Placement{})]; p != nil && e.Now().Before(p.until) {
		return fault.New(fault.Transport, "run.Ready", p.code, "no jobs are submitted until "+p.until.UTC().Format(time.RFC3339)+": "+p.detail).
			WithNext("new runs are accepted and wait; check Slurm").WithSteps(fault.Do("doctor"))
	}
	if e.cycleErr != nil {
		return fault.Wrap(fault.Transport, "run.Ready", Unreachable, "Slurm could not be queried", e.cycleErr).
			WithNext("the gateway retries; check Slurm").WithSteps(fault.Do("doctor"))
	}
	if e.diskErr != nil && e.Now().Sub(e.diskAt) < 2*e.cfg.Ceiling { // a run that waits for it is tried again sooner
		return fault.Wrap(fault.Transport, "run.Ready", fault.CodeOf(e.diskErr), "the last new run could not be staged", e.diskErr)
	}
	return nil
}

// staged records the result of the last staging for [Engine.Ready]: a filesystem that is unavailable or full delays every run.
func (e *Engine) staged(err error) {
	code := fault.CodeOf(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil:
		e.diskErr = nil
	case code == "runs_dir_unavailable" || code == "disk_full":
		e.diskErr, e.diskAt = err, e.Now()
	}
}

// putOff makes a run wait that was not sent because of a pause. Its staged files remain; no send was begun.
func (e *Engine) putOff(ctx context.Context, v View, why pause, kept kept) error {
	if v.Run.Phase == Deferred && v.Run.Reason == why.code {
		return nil
	}
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail = Queued, Deferred, why.code, why.detail
	_, err := e.apply(ctx, Write{Run: v.Run, Submission: &v.Submission, Payloads: kept.payloads, Artifacts: kept.artifacts,
		Event: Event{Type: "run.deferred", Data: map[string]any{"code": why.code, "send": v.Sends, "text": why.detail, "sent": false}}})
	return err
}

// retryLater puts a run back after the watcher's floor.
func (e *Engine) retryLater(id string) { e.holdBack(id, e.cfg.Floor) }

// holdBack delays a run for a time.
func (e *Engine) holdBack(id string, d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notBefore[id] = e.Now().Add(d)
}

// forgetDelay removes the run's delay: it has moved on.
func (e *Engine) forgetDelay(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.waits, id)
	delete(e.notBefore, id)
	delete(e.lateSince, id)
}

// hurry makes a run due immediately.
func (e *Engine) hurry(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.notBefore, id)
}

// due reports whether nothing delays the run any more.
func (e *Engine) due(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.notBefore[id]
	if !ok || e.Now().Before(at) {
		return !ok
	}
	delete(e.notBefore, id)
	return true
}
