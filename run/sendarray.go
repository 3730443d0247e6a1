package run

import (
	"context"
	"slices"

	"slurmgate/fault"
)

// openFolders creates the missing attempts' folders of the runs, and leaves out the runs for which that fails.
func (e *Engine) openFolders(ctx context.Context, list []*arrayCandidate) []*arrayCandidate {
	var all []Opening
	for _, m := range list {
		if m.files != nil {
			all = append(all, Opening{m.v.Run.ID, m.v.Attempt.N, m.v.Submission.Token, m.files})
		}
	}
	if len(all) == 0 {
		return list
	}
	errs := e.Workspace.OpenTogether(ctx, all)
	return slices.DeleteFunc(slices.Clone(list), func(m *arrayCandidate) bool {
		if m.files == nil {
			return false
		}
		var err error
		err, errs = errs[0], errs[1:]
		e.staged(m.v, err)
		if err == nil {
			m.files = nil
			return false
		}
		if err := e.handleStagingError(ctx, m.was, err); err != nil {
			e.unsent(ctx, m, err)
		}
		return true
	})
}

// sendArray sends runs as one array; if only one is left, it is sent alone. One transaction has the intent of all,
// with the task of each; another has the receipt. It returns the runs to send again immediately, because Slurm refused
// the array.
func (e *Engine) sendArray(ctx context.Context, key string, list []*arrayCandidate, free func()) (again []View) {
	if len(list) > 0 { // all of one user
		defer lend(list[0].v, free)()
	}
	list = e.notPaused(ctx, e.openFolders(ctx, list))
	var job JobSpec
	var sent []View
	for len(list) > 1 {
		var err error
		if job, err = e.openArray(ctx, list); err == nil {
			sent, err = e.applyAll(ctx, e.arrayIntent(list, job))
		}
		if err == nil {
			break
		}
		if !stale(err) {
			e.cannotSend(ctx, list, err)
			return nil
		}
		list = e.unchanged(ctx, list)
	}
	if len(list) < 2 {
		for _, m := range list {
			if err := e.sendAlone(ctx, m.v, m.job, m.w, free); err != nil && ctx.Err() == nil && !stale(err) {
				e.cannotSend(ctx, list, err)
			}
		}
		return nil
	}
	res := e.sendOnce(ctx, list[0].v, job, job.Array.K)
	if res.Outcome == SendAccepted {
		free()
	}
	return e.settleArray(ctx, key, list, sent, res)
}

// notPaused leaves out the runs that a pause holds.
func (e *Engine) notPaused(ctx context.Context, list []*arrayCandidate) []*arrayCandidate {
	return slices.DeleteFunc(slices.Clone(list), func(m *arrayCandidate) bool {
		why, held := e.holdSend(m.v.Run.ID, sendTarget{m.job.Spec.Placement, m.v.Run.ExecutedAs})
		if held {
			if err := e.deferRun(ctx, m.v, why, m.w); err != nil {
				e.unsent(ctx, m, err)
			}
		}
		return held
	})
}

// unchanged leaves out the runs that have changed since they were staged: they are taken up again in their new state.
func (e *Engine) unchanged(ctx context.Context, list []*arrayCandidate) []*arrayCandidate {
	return slices.DeleteFunc(list, func(m *arrayCandidate) bool {
		v, err := e.Store.View(ctx, m.v.Run.ID)
		return err != nil || v.Run.Rev != m.v.Run.Rev
	})
}

// cannotSend leaves the runs as they are: they are taken up again.
func (e *Engine) cannotSend(ctx context.Context, list []*arrayCandidate, err error) {
	for _, m := range list {
		e.unsent(ctx, m, err)
	}
}

func (e *Engine) unsent(ctx context.Context, m *arrayCandidate, err error) {
	e.pressure.delay(m.v.Run.ID, e.cfg.Floor)
	if ctx.Err() == nil && !stale(err) {
		e.Log.Warn("a run could not be sent", append(about(m.v), "phase", m.v.Run.Phase, "err", err)...)
	}
}

// openArray puts the script of the runs' array into the folder of the first of them.
func (e *Engine) openArray(ctx context.Context, list []*arrayCandidate) (job JobSpec, err error) {
	leader := list[0]
	a := &Array{Name: newArrayName(), K: leader.v.Sends + 1}
	for _, m := range list {
		a.Tasks = append(a.Tasks, Task{JobName: m.v.Submission.JobName, AttemptDir: m.job.AttemptDir(), ScriptSHA: m.v.Submission.ScriptSHA})
	}
	job = leader.job
	job.Array = a
	script, err := e.Renderer.RenderArray(job)
	if err != nil {
		return job, err
	}
	v := leader.v
	return job, e.Workspace.OpenAttempt(ctx, v.Run.ID, v.Attempt.N, v.Submission.Token, ControlFile{ArrayFile(a.K), script})
}

// arrayIntent returns the transition before the runs are sent: it records task and attempt of each.
func (e *Engine) arrayIntent(list []*arrayCandidate, job JobSpec) []Write {
	writes := make([]Write, 0, len(list))
	for i, m := range list {
		v, w := m.v, m.w
		k := v.Sends + 1
		v.Run.enter(Submitting, "", "")
		v.Submission.Array, v.Attempt.ArrayTask = job.Array.Name, new(i)
		v.Attempt.Limit = e.cfg.sentLimit(job)
		w.Run, w.Submission, w.Attempts, w.From = v.Run, &v.Submission, []Attempt{v.Attempt}, &m.v
		w.Send = &Send{Token: v.Submission.Token, K: k, StartedAt: e.Now()}
		w.Event = Event{Type: "run.intent", Data: map[string]any{"attempt": v.Attempt.N, "job_name": v.Submission.JobName,
			"script_sha256": v.Submission.ScriptSHA, "send": k, "array": job.Array.Name, "task": i}}
		if i == 0 {
			w.Array = &ArrayRow{Name: job.Array.Name, RunID: v.Run.ID, N: v.Attempt.N, Token: v.Submission.Token, K: k, Size: len(list)}
		}
		writes = append(writes, w)
	}
	return writes
}

// settleArray records what the send of an array proved, in one transaction; if one of the runs was changed
// meanwhile, in one for each run.
func (e *Engine) settleArray(ctx context.Context, key string, list []*arrayCandidate, sent []View, res SendResult) (again []View) {
	ctx = context.WithoutCancel(ctx)
	refused := res.Outcome == SendRejected || res.Outcome == SendDeferred
	at := sendTarget{list[0].job.Spec.Placement, list[0].v.Run.ExecutedAs}
	switch {
	case refused:
		e.pending.refused(key, len(list), res.Code == invalidArray)
	case res.Outcome == SendAccepted:
		e.pending.accepted(key, len(list))
		e.pressure.accepted(at)
	}
	writes := make([]Write, 0, len(list))
	for i, v := range sent {
		if res.Outcome == SendNotRun {
			e.pressure.refused(v.Run.ID, at, res)
		}
		writes = append(writes, e.outcome(&sent[i], v.Sends, res.ofTask(i)))
	}
	settled, err := e.applyAll(ctx, writes)
	defer e.watcher.wake()
	for i, v := range sent {
		if err != nil { // one of them was changed meanwhile, by a cancel
			if err := e.settleSend(ctx, v, list[i].job, v.Sends, res.ofTask(i)); err != nil {
				e.unsent(ctx, list[i], err)
			}
		} else if v = settled[i]; v.Run.CancelAt != nil {
			if err := e.carryOutCancel(ctx, v); err != nil {
				e.unsent(ctx, list[i], err)
			}
		}
		if res.Outcome == SendAccepted {
			e.forget(v.Run.ID)
		}
		if refused {
			e.pressure.makeDue(v.Run.ID)
			again = append(again, v)
		}
	}
	return again
}

// invalidArray is Slurm's error code for an array with more tasks than it accepts (MaxArraySize).
const invalidArray = "ESLURM_INVALID_ARRAY"

// applyAll does what apply does for several runs, in one transaction.
func (e *Engine) applyAll(ctx context.Context, list []Write) ([]View, error) {
	wrote := make([]func(View, error), len(list))
	for i := range list {
		list[i] = e.clean(list[i])
		wrote[i] = e.limits.writing(list[i].Run)
	}
	views, err := e.Store.ApplyAll(ctx, list)
	if err != nil {
		views = make([]View, len(list))
	}
	for i, v := range views {
		if wrote[i](v, err); err == nil {
			e.waiters.announce(v)
			e.logChange(list[i].Event.Type, v, list[i].Run.UpdatedAt)
		}
	}
	return views, err
}

// receipt returns what the newest send of a run's attempt left, alone or in an array.
func (e *Engine) receipt(ctx context.Context, v View, job JobSpec) (res SendResult, held bool) {
	if v.Submission.Array == "" || v.Attempt.ArrayTask == nil {
		if res, held = e.Submitter.Receipt(ctx, job, v.Sends); held {
			e.hung.saw(v.Run.ExecutedAs, job, v.Sends, e.Now(), res.Text)
		}
		return res, held
	}
	row, err := e.tasks.row(ctx, v.Submission.Array)
	if err != nil || row == nil {
		return SendResult{Outcome: SendDoubt, Code: fault.CodeOf(err), Text: "the ledger cannot say what the run was sent with"}, true
	}
	if res = row.accepted(); res.Outcome == "" {
		job.RunID, job.N, job.Token, job.JobName = row.RunID, row.N, row.Token, JobName(row.RunID, row.N, row.Token)
		job.RunDir, job.Array = e.Workspace.RunDir(row.RunID), &Array{Name: row.Name, K: row.K}
		if res, held = e.Submitter.Receipt(ctx, job, row.K); held {
			e.hung.saw(v.Run.ExecutedAs, job, row.K, e.Now(), res.Text)
		} else {
			row.left(res)
		}
	}
	return res.ofTask(*v.Attempt.ArrayTask), held
}
