package run

import (
	"cmp"
	"context"

	"slurmgate/fault"
)

// stagingWaits is the reason of a run whose files cannot be put in place now.
const stagingWaits = "staging_waits"

// unstaged has the reasons to stage a deferred run's files again: they could not be used. Nothing was accepted, so
// there is no job that uses them.
var unstaged = map[string]bool{"control_unwritable": true, "SCRIPT_UNREADABLE": true, stagingWaits: true, "user_refused": true,
	"login_refused": true, "signer_away": true}

// resend sends a deferred run that is due.
func (e *Engine) resend(ctx context.Context, v View) error {
	p, err := e.params(ctx, v)
	if err != nil {
		return err
	}
	if err := e.allowed(v, p); err != nil {
		return e.endUnsent(ctx, v, verdict{ending: EndedStaging, reason: fault.CodeOf(err), detail: fault.Prose(err)})
	}
	if unstaged[v.Run.Reason] {
		return e.stageAndSend(ctx, v, p)
	}
	return e.send(ctx, &arrayCandidate{v: v, job: e.job(v, p)})
}

// send sends a run, alone or in an array. It is the critical section of this program: the intent is durable before
// sbatch starts, the receipt after it has ended, and the resolver settles what happens in between.
func (e *Engine) send(ctx context.Context, m *arrayCandidate) error {
	at := sendTarget{m.job.Spec.Placement, m.v.Run.ExecutedAs}
	if why, held := e.holdSend(m.v.Run.ID, at); held {
		return e.deferWithFolder(ctx, m, why)
	}
	release, why, ok := e.limits.reserve(m.v.Run)
	if !ok {
		return e.deferWithFolder(ctx, m, why)
	}
	m.release = release
	if waits, err := e.joinArray(ctx, m); waits {
		return err
	}
	defer release()
	if err := e.open(ctx, m); err != nil { // the runs it could be sent with have left meanwhile
		return e.handleStagingError(ctx, m.was, err)
	}
	free, err := e.sends.enter(ctx, ShareOf(m.v.Run), m.v.Run.ID)
	if err != nil {
		return err
	}
	defer free()
	if why, held := e.holdSend(m.v.Run.ID, at); held { // a pause that began while it waited for its slot
		return e.deferRun(ctx, m.v, why, m.w)
	}
	return e.sendAlone(ctx, m.v, m.job, m.w, free)
}

// deferWithFolder does what deferRun does for a run whose folder may not exist yet: the folder is created, and the run is sent
// from it later.
func (e *Engine) deferWithFolder(ctx context.Context, m *arrayCandidate, why pause) error {
	if err := e.open(ctx, m); err != nil {
		return e.handleStagingError(ctx, m.was, err)
	}
	return e.deferRun(ctx, m.v, why, m.w)
}

// sendAlone sends one run as a single job; free releases its place in the line.
func (e *Engine) sendAlone(ctx context.Context, v View, job JobSpec, w Write, free func()) error {
	v.Attempt.Limit = e.cfg.sentLimit(job)
	w.Attempts = []Attempt{v.Attempt}
	v, err := e.recordIntent(ctx, v, w)
	if err != nil {
		return err
	}
	k := v.Sends
	stop := lend(v, free)
	res := e.sendOnce(ctx, v, job, k)
	stop()
	if res.Outcome == SendAccepted {
		free() // the next sbatch does not wait for this receipt's commit; a refusal may delay the next one
		if key, ok := e.equals(v, job); ok {
			e.pending.accepted(key, 1)
		}
	}
	return e.settleSend(ctx, v, job, k, res)
}

// recordIntent makes the next send of the attempt durable. Only after it may sbatch start.
func (e *Engine) recordIntent(ctx context.Context, v View, w Write) (View, error) {
	k, from := v.Sends+1, v
	v.Run.enter(Submitting, "", "")
	if v.Submission.Array != "" { // Slurm refused its array
		v.Submission.Array, v.Attempt.ArrayTask = "", nil
		w.Attempts = []Attempt{v.Attempt}
	}
	w.Run, w.Submission, w.From = v.Run, &v.Submission, &from
	w.Send = &Send{Token: v.Submission.Token, K: k, StartedAt: e.Now()}
	w.Event = Event{Type: "run.intent", Data: map[string]any{"attempt": v.Attempt.N, "job_name": v.Submission.JobName,
		"script_sha256": v.Submission.ScriptSHA, "send": k}}
	return e.apply(ctx, w)
}

// recoverSend settles a send whose gateway died.
func (e *Engine) recoverSend(ctx context.Context, v View) error {
	p, err := e.params(ctx, v)
	if err != nil {
		return err
	}
	job := e.job(v, p)
	res, held := e.receipt(ctx, v, job)
	if held && e.Now().Sub(v.Run.UpdatedAt) < hungAfter {
		e.pressure.delay(v.Run.ID, e.cfg.Floor)
		return nil
	}
	if held {
		res.Text = heldDetail(res)
	}
	return e.settleSend(ctx, v, job, v.Sends, res)
}

// settleSend records what a send proved, even if the caller is gone: the receipt must not wait. Nor may it get lost
// when a cancel is requested meanwhile.
func (e *Engine) settleSend(ctx context.Context, v View, job JobSpec, k int, res SendResult) error {
	ctx = context.WithoutCancel(ctx)
	for {
		err := e.recordOutcome(ctx, v, job, k, res)
		if !stale(err) {
			return err
		}
		was := v.Run.Phase
		if v, err = e.Store.View(ctx, v.Run.ID); err != nil || v.Run.Phase != was || v.Sends != k {
			return err
		}
	}
}

// recordOutcome records the receipt, or what came instead of it: a rejection ends the attempt, back-pressure defers it,
// doubt is left to the resolver.
func (e *Engine) recordOutcome(ctx context.Context, v View, job JobSpec, k int, res SendResult) error {
	switch res.Outcome {
	case SendAccepted:
		e.forget(v.Run.ID)
		e.pressure.accepted(sendTarget{job.Spec.Placement, v.Run.ExecutedAs})
	case SendRejected:
		d := refusal(v.Attempt, res)
		d.send = e.ended(v, k, res)
		return e.finish(ctx, v, d)
	case SendDeferred, SendNotRun:
		e.pressure.refused(v.Run.ID, sendTarget{job.Spec.Placement, v.Run.ExecutedAs}, res)
	}
	settled, err := e.apply(ctx, e.outcome(&v, k, res))
	e.watcher.wake()
	if err == nil && settled.Run.CancelAt != nil {
		return e.carryOutCancel(ctx, settled) // requested while sbatch ran
	}
	return err
}

func (e *Engine) ended(v View, k int, res SendResult) *Send {
	now := e.Now()
	return &Send{Token: v.Submission.Token, K: k, StartedAt: now, EndedAt: &now, Outcome: res.Outcome, ExitCode: res.ExitCode, Text: res.Text}
}

// outcome returns the transition after a send that was not a rejection.
func (e *Engine) outcome(from *View, k int, res SendResult) Write {
	v := *from
	w := Write{Run: v.Run, Send: e.ended(v, k, res), From: from}
	switch res.Outcome {
	case SendAccepted:
		v.Submission.JobID, v.Submission.Cluster = res.JobID, res.Cluster
		w.Submission = &v.Submission
		w.Run.enter(Pending, "", "")
		w.Event = Event{Type: "run.receipt", Data: map[string]any{"job_id": res.JobID, "cluster": res.Cluster, "send": k}}
	case SendDeferred, SendNotRun:
		w.Run.enter(Deferred, cmp.Or(res.Code, "sbatch_not_started"), res.Text)
		w.Event = Event{Type: "run.deferred", Data: map[string]any{"code": res.Code, "send": k, "text": res.Text}}
	default:
		w.Run.enter(Unconfirmed, cmp.Or(res.Code, "no_receipt"),
			cmp.Or(res.Text, "sbatch left no receipt; Slurm will be queried for the job name"))
		w.Event = Event{Type: "run.unconfirmed", Data: map[string]any{"send": k, "text": res.Text}}
	}
	setCancelling(&w.Run, v.Submission.JobID)
	return w
}
