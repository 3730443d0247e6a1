package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
)

// missing deals with runs that a full answer of squeue does not show. First witness: the exit file. Second:
// accounting, asked once for all. Without either: the resolver, or rule 8.
func (e *Engine) missing(ctx context.Context, gone []View) (moved bool, err error) {
	var rest []View
	stopped := map[string]bool{} // has an exit file, but only Slurm knows why the program was stopped
	since := e.Now()
	for _, v := range gone {
		if v.Run.Phase != Unconfirmed {
			if x, err := e.readExit(ctx, v); err == nil && x.stopped() {
				stopped[v.Run.ID] = true
			} else if err == nil {
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
		case stopped[v.Run.ID]:
			ok, err = e.witnessed(ctx, v, "exit_file")
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
	case !won && claim.Token != v.Submission.Token:
		return true, e.foreignClaim(ctx, v)
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

// cancelStrays cancels pending jobs of attempts that have ended. They would end by themselves without the
// claim; cancelling keeps the queue clean. Jobs this ledger never sent are left alone: another gateway of the
// same user may have a run of the same id.
func (e *Engine) cancelStrays(ctx context.Context, jobs []Job, open []View) {
	live := make(map[string]bool, len(open))
	for _, v := range open {
		live[v.Submission.JobName] = true
	}
	for _, j := range jobs {
		if j.Class != ClassPending || live[j.Name] || !strings.HasPrefix(j.Name, "sg-") {
			continue
		}
		if ended, err := e.Index.Ended(ctx, j.Name); err != nil || !ended {
			continue
		}
		e.Log.Info("cancelling a late job of an ended attempt", "job_name", j.Name, "job_id", j.ID)
		if err := e.Observer.Cancel(ctx, j.ID, j.Name); err != nil {
			e.Log.Warn("scancel failed", "job_id", j.ID, "err", err)
		}
	}
}
