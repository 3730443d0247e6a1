package run

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"slurmgate/fault"
)

// watch runs cycles until ctx ends: soon after a send, then further and further apart while nothing changes, between
// the admin's floor and ceiling.
func (e *Engine) watch(ctx context.Context) {
	pause := time.Duration(0)
	for n := 0; ; n++ {
		e.watcher.sleeps(pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-e.watcher.wakeups:
			timer.Stop()
			pause = e.cfg.Floor
			e.watcher.sleeps(pause)
			// One floor after the wake-up: a job needs a moment to appear, and wake-ups come in bursts.
			select {
			case <-time.After(e.cfg.Floor):
			case <-ctx.Done():
				return
			}
		case <-timer.C:
		}
		e.watcher.works()
		e.takeUp(ctx)
		e.forgetEnded(ctx)
		moved, err := e.Cycle(ctx)
		if n == 0 {
			close(e.watcher.first)
		}
		e.measure(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			e.Log.Warn("Slurm could not be queried", "err", err)
			pause = min(e.cfg.Ceiling, max(e.cfg.Floor, 2*pause))
		case moved:
			pause = e.cfg.Floor
		default:
			pause = min(e.cfg.Ceiling, max(e.cfg.Floor, pause+pause/2))
		}
	}
}

// takeUp gives the workers the runs that are due again: deferred sends, interrupted staging and collecting, late
// outputs.
func (e *Engine) takeUp(ctx context.Context) {
	if e.away != nil && e.away() != nil {
		return // all of them wait for the site, see resume
	}
	// Separately: a thousand runs that wait for room do not delay one that is to be collected.
	for _, p := range []Phase{Collecting, Submitting, Staging, OutputsLate, Deferred} {
		if p == Deferred && e.pressure.sitePause() != nil {
			return
		}
		waiting, err := e.Index.Waiting(ctx, e.watcher.offered[p], offeredAtOnce, p)
		if err != nil {
			e.unread(ctx, "cannot read the ledger", "err", err)
			return
		}
		// The next cycle continues after these: a thousand waiting runs do not delay the rest either.
		if e.watcher.offered[p] = ""; len(waiting) == offeredAtOnce {
			e.watcher.offered[p] = waiting[offeredAtOnce-1].RunID
		}
		e.offer(e.pressure.dueOf(waiting))
	}
}

// unread logs that the ledger cannot be read, unless the gateway is stopping.
func (e *Engine) unread(ctx context.Context, msg string, about ...any) {
	if ctx.Err() == nil {
		e.Log.Error(msg, about...)
	}
}

// offer gives runs to the workers, all in one step: a run taken up before the others are known would be sent alone, see
// [Engine.hasPartners].
func (e *Engine) offer(list []Waiter) {
	e.work.addAll(func(yield func(Share, string) bool) {
		for _, w := range list {
			if !yield(w.Share, w.RunID) {
				return
			}
		}
	})
}

// offeredAtOnce is a page of waiting runs. To list 10,000 in each cycle takes 20 ms, a page 1.4 ms, and each run
// offered costs a worker 80 µs of reading before it finds that the run still waits (BenchmarkTuningWaiting,
// BenchmarkTuningReads).
const offeredAtOnce = 1000

// watchedPhases lists the phases in which Slurm may know more about a run than the ledger.
var watchedPhases = []Phase{Unconfirmed, Pending, InJob, Completing}

// Cycle queries Slurm once about everything, moves the runs that changed, and reports whether any did. With nothing to
// watch it queries nothing. A failed query changes nothing: it is not an observation.
func (e *Engine) Cycle(ctx context.Context) (moved bool, err error) {
	any, err := e.Index.Waiting(ctx, "", 1, watchedPhases...)
	if err != nil || len(any) == 0 && !e.watcher.expectsStrays() {
		return false, err
	}
	asked, err := e.Index.Newest(ctx)
	if err != nil {
		return false, err
	}
	rows := e.readWatched(ctx)
	defer rows.end()
	began, sought := e.Now(), e.watcher.takeSought()
	jobs, err := e.Queue.Jobs(ctx, sought)
	e.watcher.note(err)
	if err != nil {
		return false, err
	}
	e.pressure.reached(began)
	c := &cycle{Engine: e, seen: index(jobs), asked: asked, began: began, sought: sought}
	differ, missing, err := c.compare(rows)
	if err != nil {
		return false, err
	}
	if len(missing) == 0 && c.shown > 0 {
		c.recordHarmless(c.seen)
	}
	e.cancels.forgetOld()
	c.observeAll(ctx, differ)
	c.collectEarly(ctx)
	c.recordLate(ctx)
	err = c.settleMissing(ctx, missing)
	e.cancelStrays(ctx, c.seen)
	return c.moved.Load(), err
}

// claimWaits is the reason of a run whose job is gone and whose claim the gateway can neither read nor take.
const claimWaits = "claim_waits"

func (e *Engine) logError(ctx context.Context, v View, err error) {
	switch code := fault.CodeOf(err); {
	case code != "filesystem" && code != "workspace_foreign_entry" && code != "disk_full" && !userAway(v, code):
	case v.Run.Reason == claimWaits:
		return // already reported
	default:
		detail := e.byItself(v, "the claim cannot be read", err)
		if v.Run.ExecutedAs != "" {
			detail += ", or an operator ends it with declare-absent once Slurm shows no job of it; cancel needs the claim too"
		}
		if e.note(ctx, v, claimWaits, detail) == nil {
			return
		}
	}
	if err != nil && !stale(err) {
		e.Log.Warn("a run could not be moved on", append(about(v), "phase", v.Run.Phase, "err", err)...)
	}
}

// updatesPerWrite is how many runs' updates share a transaction at most: a submit meanwhile waits for it.
const updatesPerWrite = 256

// observeAll applies what Slurm shows of the jobs of runs, many in one transaction: after an array was sent, a thousand
// runs have updates.
func (c *cycle) observeAll(ctx context.Context, ids []string) {
	var theirs gather
	for chunk := range slices.Chunk(ids, updatesPerWrite) {
		var mu sync.Mutex
		var writes []Write
		c.eachOwn(ctx, chunk, func(v View) (bool, error) {
			w, moved, err := c.transition(ctx, v, c.jobsOf(v))
			if w != nil {
				mu.Lock()
				defer mu.Unlock()
				writes = append(writes, *w)
			}
			return moved, err
		}, theirs.add)
		var views []View
		if len(writes) > 1 {
			var err error
			if views, err = c.applyAll(ctx, slices.Clone(writes)); err != nil { // one of the runs was changed meanwhile
				views = nil
			}
		}
		parallel(len(writes), func(i int) {
			var v View
			var err error
			if views != nil {
				v = views[i]
			} else {
				v, err = c.apply(ctx, writes[i])
			}
			if err == nil {
				c.moved.Store(true)
				err = c.observed(ctx, v)
			}
			c.logError(ctx, *writes[i].From, err)
		})
	}
	c.eachOfUsers(ctx, theirs.list, func(v View) (bool, error) { return c.observe(ctx, v, c.jobsOf(v)) })
}

// jobsOf returns the jobs of a run that the answer shows.
func (c *cycle) jobsOf(v View) []Job { return c.seen.jobsOf(v, c.userOf(v.Run.ExecutedAs)) }

// observe applies what Slurm shows of one run's jobs.
func (c *cycle) observe(ctx context.Context, v View, found []Job) (moved bool, err error) {
	w, moved, err := c.transition(ctx, v, found)
	if w == nil {
		return moved, err
	}
	if v, err = c.apply(ctx, *w); err != nil {
		return false, err
	}
	return true, c.observed(ctx, v)
}

// transition returns the write of what Slurm shows of a run's jobs; nil: there is nothing to write, or it is done. The name,
// or the working folder, and the user have matched; if the id is known, cluster and id must match too, so that a reused
// job id is never mistaken for this gateway's.
func (c *cycle) transition(ctx context.Context, v View, found []Job) (w *Write, moved bool, err error) {
	j, ok := pick(v, found)
	if !ok {
		moved, err = c.chooseAmong(ctx, v, found)
		return nil, moved, err
	}
	if v.Run.CancelAt != nil && j.Class != ClassEnded && j.Class != ClassCompleting {
		c.cancels.cancel(v.Run, jobAsShown(v, j))
	}
	if hinted(v) {
		v = withJob(v, j.ID) // what the receipt says of another job does not apply to this one
	}
	if over, err := c.startedBefore(ctx, v, j); err != nil {
		return nil, false, err
	} else if over {
		c.cancels.cancel(v.Run, jobAsShown(v, j))
		j.State, j.Class, j.Why = requeued, ClassEnded, requeuedDetail(j)
	}
	now := c.Now()
	phase := phaseAfter(v.Run.Phase, j.Class)
	a, s := v.Attempt, v.Submission
	renamed := shownAs(s, j) != ""
	limitErr := c.leaveLimit(ctx, v, j)
	if limitErr != nil {
		j.Limit = a.Limit // writing it is tried again
	}
	same := phase == v.Run.Phase && j.isAt(a.Partition, a.Account, a.Limit) &&
		a.SlurmState == j.State && a.SlurmWhy == j.Why && a.MissedAt == nil && s.JobID == j.ID &&
		(v.Run.CancelAt != nil || renamed == (v.Run.Reason == JobRenamed))
	if same && phase == Pending && v.Run.CancelAt != nil { // the claim could not be taken when the cancel was requested
		return nil, true, c.carryOutCancel(ctx, v)
	}
	if same {
		return nil, false, limitErr
	}
	adopted, from := s.JobID == "" || hinted(v), v
	s.JobID, s.Cluster, s.SubmittedAt, s.SLUID = j.ID, cmp.Or(j.Cluster, s.Cluster), cmp.Or(s.SubmittedAt, j.Submitted),
		cmp.Or(s.SLUID, j.SLUID)
	a.SlurmState, a.SlurmWhy, a.Node, a.ObservedAt, a.MissedAt = j.State, j.Why, cmp.Or(j.Node, a.Node), &now, nil
	a.Partition, a.Account, a.Limit = cmp.Or(j.Partition, a.Partition), cmp.Or(j.Account, a.Account), cmp.Or(j.Limit, a.Limit)
	a.StartedAt, a.EndedAt = cmp.Or(a.StartedAt, j.Started), cmp.Or(a.EndedAt, j.Ended)
	if j.Class != ClassEnded {
		a.EndedAt = nil // squeue shows the expected end of a running job
	} else if j.ExitCode != nil {
		a.SlurmExit = fmt.Sprintf("%d:%d", *j.ExitCode, j.Signal)
	}
	v.Run.enter(phase, "", "")
	switch {
	case j.Class == ClassUnknown:
		v.Run.Reason, v.Run.Detail = "unknown_slurm_state", j.State
	case renamed && phase != Collecting:
		v.Run.Reason, v.Run.Detail = JobRenamed, renamedDetail(v, j)
	case phase == Pending && j.Why != "" && j.Why != "None":
		v.Run.Reason, v.Run.Detail = pendingReason(j.Why)
	case phase == InJob && (j.State == "SUSPENDED" || j.State == "STOPPED"):
		v.Run.Reason, v.Run.Detail = Suspended, "Slurm has suspended the job; the time until it resumes does not count against its limits"
	}
	setCancelling(&v.Run, j.ID)
	return &Write{Run: v.Run, Attempts: []Attempt{a}, Submission: &s, From: &from,
		Event: Event{Type: "run." + string(phase), Data: map[string]any{"job_id": j.ID, "slurm_state": j.State, "why": j.Why, "node": j.Node,
			"adopted": adopted}}}, false, nil
}

// Suspended is the reason of a run whose job Slurm has stopped for now.
const Suspended = "suspended"

// observed continues with a run whose update was written.
func (c *cycle) observed(ctx context.Context, v View) error {
	switch {
	case v.Run.Phase == Collecting:
		c.work.add(ShareOf(v.Run), v.Run.ID)
	case v.Run.Phase == Pending && v.Run.CancelAt != nil:
		return c.carryOutCancel(ctx, v)
	}
	return nil
}

// phases has the phase of a run by the class of its job's state.
var phases = map[Class]Phase{ClassPending: Pending, ClassRunning: InJob, ClassCompleting: Completing, ClassEnded: Collecting}

// phaseAfter returns the phase of a run whose job is seen in a state of that class. A job in an unknown state certainly
// exists.
func phaseAfter(now Phase, seen Class) Phase {
	if seen == ClassUnknown && now == Unconfirmed {
		return Pending
	}
	return cmp.Or(phases[seen], now)
}

// hinted reports whether the run's job id is known only from the user's side: Slurm has not shown that job with name
// and user yet. A user can forge receipts and claims, so until then the id proves nothing.
func hinted(v View) bool {
	return v.Run.ExecutedAs != "" && v.Submission.JobID != "" && v.Submission.SubmittedAt == nil
}

// pick returns the one job that is the run's.
func pick(v View, found []Job) (Job, bool) {
	var ours []Job
	for _, j := range found {
		if v.Submission.JobID == "" || hinted(v) || j.ID == v.Submission.JobID && (v.Submission.Cluster == "" || j.Cluster == "" ||
			j.Cluster == v.Submission.Cluster) {
			ours = append(ours, j)
		}
	}
	if len(ours) == 0 {
		return Job{}, false
	}
	// Several records of one job, as accounting has of one that was requeued: the newest counts.
	last := ours[0]
	for _, j := range ours[1:] {
		if j.ID != last.ID || j.Cluster != last.Cluster {
			return Job{}, false
		}
		if newer(j, last) {
			last = j
		}
	}
	return last, true
}

// newer reports whether a record of a job is newer than an earlier one in Slurm's list. A start that was given up
// (REQUEUED) has its own record, which looks like a waiting job; the next start was submitted later.
func newer(j, than Job) bool {
	if before(j.Submitted, than.Submitted) || before(than.Submitted, j.Submitted) {
		return before(than.Submitted, j.Submitted)
	}
	return j.Class != ClassEnded || than.Class == ClassEnded
}

// before reports whether a is known to be earlier than b.
func before(a, b *time.Time) bool { return a != nil && b != nil && a.Before(*b) }

// Watched returns when Slurm last answered completely, and why it does not answer now (nil if it does).
func (e *Engine) Watched() (at time.Time, err error) { return e.watcher.answered() }
