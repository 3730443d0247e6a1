package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
)

// watch runs cycles until ctx ends: soon after something was sent, then further and further apart while
// nothing changes, between the admin's floor and ceiling.
func (e *Engine) watch(ctx context.Context) {
	pause := time.Duration(0)
	for n := 0; ; n++ {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-e.wake:
			timer.Stop()
			pause = e.cfg.Floor
			// One floor after the poke: a job needs a moment to show, and pokes come in bursts.
			select {
			case <-time.After(e.cfg.Floor):
			case <-ctx.Done():
				return
			}
		case <-timer.C:
		}
		e.takeUp(ctx)
		moved, err := e.Cycle(ctx)
		if n == 0 {
			close(e.first)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			e.Log.Warn("Slurm could not be asked", "err", err)
			pause = min(e.cfg.Ceiling, max(e.cfg.Floor, 2*pause))
		case moved:
			pause = e.cfg.Floor
		default:
			pause = min(e.cfg.Ceiling, max(e.cfg.Floor, pause+pause/2))
		}
	}
}

// takeUp gives the workers what waits for time: deferred sends, staging and collecting that could not go on.
func (e *Engine) takeUp(ctx context.Context) {
	open, err := e.Index.Active(ctx, 1000, Staging, Submitting, Deferred, Collecting)
	if err != nil {
		e.Log.Error("cannot read the ledger", "err", err)
		return
	}
	for _, v := range open {
		if e.due(v.Run.ID) {
			e.work.add(v.Run.ID)
		}
	}
}

// Cycle asks Slurm once about everything and moves what changed. It tells whether anything did. With
// nothing to ask about it asks nothing. A failed query changes nothing: it is not an observation.
func (e *Engine) Cycle(ctx context.Context) (moved bool, err error) {
	open, err := e.Index.Active(ctx, 0, Unconfirmed, Pending, InJob, Completing)
	if err != nil || len(open) == 0 {
		return false, err
	}
	jobs, err := e.Observer.Queue(ctx)
	e.mu.Lock()
	if e.cycleErr = err; err == nil {
		e.cycleAt = e.Now()
	}
	e.mu.Unlock()
	if err != nil {
		return false, err
	}
	byName := index(jobs)
	var missing []View
	for _, v := range open {
		found := byName[v.Submission.JobName]
		if len(found) == 0 {
			missing = append(missing, v)
			continue
		}
		ok, err := e.observe(ctx, v, found)
		moved = moved || ok
		e.complain(v, err)
	}
	ok, err := e.missing(ctx, missing)
	e.cancelStrays(ctx, jobs, open)
	return moved || ok, err
}

func index(jobs []Job) map[string][]Job {
	m := make(map[string][]Job, len(jobs))
	for _, j := range jobs {
		m[j.Name] = append(m[j.Name], j)
	}
	return m
}

func (e *Engine) complain(v View, err error) {
	if err != nil && !stale(err) {
		e.Log.Warn("a run could not be moved on", "run_id", v.Run.ID, "phase", v.Run.Phase, "err", err)
	}
}

// observe applies what Slurm said about a run's jobs. The name has matched; with the id known, cluster and
// id must match too, so that a job id used again is never taken for ours.
func (e *Engine) observe(ctx context.Context, v View, found []Job) (moved bool, err error) {
	j, ok := pick(v, found)
	if !ok {
		return e.several(ctx, v, found)
	}
	if v.Run.CancelAt != nil && j.Class != ClassEnded && j.Class != ClassCompleting {
		if err := e.Observer.Cancel(ctx, j.ID, j.Name); err != nil {
			e.Log.Warn("scancel failed; it will be tried again", "run_id", v.Run.ID, "err", err)
		}
	}
	now := e.Now()
	phase := v.Run.Phase
	switch j.Class {
	case ClassPending:
		phase = Pending
	case ClassRunning:
		phase = InJob
	case ClassCompleting:
		phase = Completing
	case ClassEnded:
		phase = Collecting
	case ClassUnknown:
		if phase == Unconfirmed {
			phase = Pending // it exists: that much is certain
		}
	}
	a, s := v.Attempt, v.Submission
	same := phase == v.Run.Phase && a.SlurmState == j.State && a.SlurmWhy == j.Why && a.MissedAt == nil && s.JobID == j.ID
	if same {
		return false, nil
	}
	adopted := s.JobID == ""
	s.JobID, s.Cluster, s.SubmittedAt, s.SLUID = j.ID, orElse(j.Cluster, s.Cluster), firstTime(s.SubmittedAt, j.Submitted), orElse(s.SLUID, j.SLUID)
	a.SlurmState, a.SlurmWhy, a.Node, a.ObservedAt, a.MissedAt = j.State, j.Why, orElse(j.Node, a.Node), &now, nil
	a.StartedAt, a.EndedAt = firstTime(a.StartedAt, j.Started), firstTime(a.EndedAt, j.Ended)
	if j.Class != ClassEnded {
		a.EndedAt = nil // squeue shows the expected end of a running job
	}
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail = StateOf(phase), phase, "", ""
	if phase == Pending && j.Why != "" && j.Why != "None" {
		v.Run.Reason, v.Run.Detail = "waiting_in_slurm", j.Why
	}
	if j.Class == ClassUnknown {
		v.Run.Reason, v.Run.Detail = "unknown_slurm_state", j.State
	}
	_, err = e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Submission: &s,
		Event: Event{Type: "run." + string(phase), Data: map[string]any{"job_id": j.ID, "slurm_state": j.State, "why": j.Why, "node": j.Node, "adopted": adopted}}})
	if err == nil && phase == Collecting {
		e.work.add(v.Run.ID)
	}
	return err == nil, err
}

// pick finds the one job that is the run's.
func pick(v View, found []Job) (Job, bool) {
	var ours []Job
	for _, j := range found {
		if v.Submission.JobID == "" || j.ID == v.Submission.JobID && (v.Submission.Cluster == "" || j.Cluster == "" || j.Cluster == v.Submission.Cluster) {
			ours = append(ours, j)
		}
	}
	if len(ours) == 1 {
		return ours[0], true
	}
	return Job{}, false
}

// missing deals with runs that a full answer of squeue does not show. First witness: the exit file. Second:
// accounting, asked once for all. Without either: the resolver, or rule 8.
func (e *Engine) missing(ctx context.Context, gone []View) (moved bool, err error) {
	var rest []View
	since := e.Now()
	for _, v := range gone {
		if v.Run.Phase != Unconfirmed {
			if _, err := e.readExit(ctx, v); err == nil {
				ok, err := e.witnessed(ctx, v, "exit_file")
				moved = moved || ok
				e.complain(v, err)
				continue
			}
		}
		rest = append(rest, v)
		if v.Submission.CreatedAt.Before(since) {
			since = v.Submission.CreatedAt
		}
	}
	if len(rest) == 0 {
		return moved, nil
	}
	accounted, accErr := e.Observer.Accounting(ctx, since.Add(-time.Hour))
	none := fault.Is(accErr, fault.NotFound) // no accounting here: the exit file and the claim have to do
	if accErr != nil && !none {
		return moved, accErr
	}
	byName := index(accounted)
	for _, v := range rest {
		var ok bool
		var err error
		found := byName[v.Submission.JobName]
		switch j, one := pick(v, found); {
		case one && j.Class == ClassEnded:
			ok, err = e.observe(ctx, v, found)
		case v.Run.Phase == Unconfirmed && len(found) > 0:
			ok, err = e.observe(ctx, v, found)
		case v.Run.Phase == Unconfirmed:
			ok, err = e.resolve(ctx, v)
		default:
			// Accounting may be stale and still say RUNNING; it does not contradict an absence from the controller for ever.
			ok, err = e.missed(ctx, v)
		}
		moved = moved || ok
		e.complain(v, err)
	}
	return moved, nil
}

// witnessed moves a run whose exit file speaks to collection, with Slurm's own state left unknown.
func (e *Engine) witnessed(ctx context.Context, v View, by string) (bool, error) {
	a := v.Attempt
	a.SlurmState, a.MissedAt = "", nil
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail = Running, Collecting, "", ""
	_, err := e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Event: Event{Type: "run.collecting", Data: map[string]any{"witness": by}}})
	if err == nil {
		e.work.add(v.Run.ID)
	}
	return err == nil, err
}

// missed is rule 8: LOST needs two full queries without the job, far enough apart, and no exit file.
func (e *Engine) missed(ctx context.Context, v View) (bool, error) {
	now := e.Now()
	if v.Attempt.MissedAt == nil {
		a := v.Attempt
		a.MissedAt = &now
		_, err := e.apply(ctx, Write{Run: v.Run, Attempts: []Attempt{a}, Event: Event{Type: "run.missed", Data: map[string]any{"job_id": v.Submission.JobID}}})
		return false, err
	}
	if now.Sub(*v.Attempt.MissedAt) < e.cfg.AbsenceGap {
		return false, nil
	}
	// Nobody executed it, or somebody did: the claim tells.
	claim, won, err := e.takeClaim(ctx, v)
	switch {
	case err != nil:
		return false, err
	case won:
		return true, e.finish(ctx, v, verdict{ending: EndedAbsent, detail: fmt.Sprintf("Slurm no longer knows job %s and it never started; it cannot start any more", v.Submission.JobID)})
	}
	d := verdict{ending: EndedLost, detail: fmt.Sprintf("job %s started on node %s; Slurm no longer knows it and it left no exit file", claim.Holder.Job, claim.Node)}
	p, err := e.params(ctx, v)
	if err != nil {
		return false, err
	}
	if err := e.takeLogs(ctx, v, p, &d); err != nil {
		return false, err
	}
	return true, e.finish(ctx, v, d)
}

// cancelStrays cancels jobs of ours that may no longer execute: of an attempt that has ended. They would end by themselves
// without the claim; cancelling keeps the queue clean. Jobs of runs this ledger does not know are left alone.
func (e *Engine) cancelStrays(ctx context.Context, jobs []Job, open []View) {
	live := make(map[string]bool, len(open))
	for _, v := range open {
		live[v.Submission.JobName] = true
	}
	for _, j := range jobs {
		if live[j.Name] || j.Class != ClassPending {
			continue
		}
		parts := strings.Split(j.Name, "-")
		if len(parts) != 4 {
			continue
		}
		v, err := e.Store.View(ctx, parts[1])
		if err != nil || v.Submission.JobName == j.Name && !v.Run.State.Terminal() {
			continue
		}
		e.Log.Info("cancelling a late job of an ended attempt", "run_id", v.Run.ID, "job_id", j.ID)
		if err := e.Observer.Cancel(ctx, j.ID, j.Name); err != nil {
			e.Log.Warn("scancel failed", "job_id", j.ID, "err", err)
		}
	}
}

// Watched says when Slurm last answered in full, and why it does not answer now (nil when it does).
func (e *Engine) Watched() (at time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cycleAt, e.cycleErr
}

func firstTime(a, b *time.Time) *time.Time {
	if a != nil {
		return a
	}
	return b
}
