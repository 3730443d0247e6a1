package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// prepare takes a run from staging through the intent and one send. After a crash before the intent everything
// is repeated from the start; every step gives the same bytes. canonical are the run's params if the caller has them.
func (e *Engine) prepare(ctx context.Context, v View, canonical []byte) (again bool, err error) {
	if v.Run.CancelAt != nil {
		return false, e.finish(ctx, v, verdict{ending: EndedCancelled, detail: "cancelled before anything was submitted"})
	}
	if !e.pressure.due(v.Run.ID) {
		return false, nil
	}
	var p plan.Params
	if canonical != nil {
		p, err = plan.DecodeParams(canonical)
		p = placed(p, v.Attempt)
	} else {
		p, err = e.params(ctx, v)
	}
	if err != nil {
		return false, err
	}
	return e.stageAndSend(ctx, v, p)
}

func (e *Engine) stageAndSend(ctx context.Context, v View, p plan.Params) (again bool, err error) {
	most := e.stagingTime(ctx, v)
	within, stop := context.WithTimeout(ctx, most)
	defer stop()
	began := e.Now()
	job, script, err := e.stage(within, v, p)
	e.disk.staged(err)
	switch {
	case within.Err() != nil && ctx.Err() == nil && (err == nil || errors.Is(err, context.DeadlineExceeded)):
		return false, e.finish(ctx, v, verdict{ending: EndedTimeLimit,
			detail: fmt.Sprintf("staging took %s; the toolpack's timeoutMs allows %s. Nothing was submitted. Raise timeoutMs, or retry the run "+
				"when the filesystem is faster",
				e.Now().Sub(began).Round(time.Millisecond), most)})
	case err == nil:
	case fault.CodeOf(err) == string(AheadOfLedger):
		return false, e.block(ctx, v, AheadOfLedger,
			fmt.Sprintf("attempt %d in the workspace is unknown to this ledger: an older ledger was restored, or another gateway worked here; "+
				"restore the newer ledger or cancel the run", v.Attempt.N))
	case fault.KindOf(err).Retryable(), ctx.Err() != nil:
		return false, e.note(ctx, v, "staging_waits", fault.Prose(err))
	default:
		return false, e.finish(ctx, v, verdict{ending: EndedStaging, reason: fault.CodeOf(err), detail: fault.Prose(err)})
	}
	v, kept, err := e.keepScript(v, script)
	if err != nil {
		return false, err
	}
	return e.send(ctx, v, job, kept)
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

// stage puts image, inputs, attempt folder and script in place.
func (e *Engine) stage(ctx context.Context, v View, p plan.Params) (job JobSpec, script []byte, err error) {
	if err := e.allowed(v, p); err != nil {
		return job, nil, err
	}
	image, err := e.Images.Verify(ctx, p.Spec.ImageDigest())
	if err != nil {
		return job, nil, err
	}
	if err := e.Workspace.StageInputs(ctx, v.Run.ID, p.Spec.IO.Inputs, e.Objects.Reader); err != nil {
		return job, nil, err
	}
	if err := e.verifyInputs(ctx, v, p); err != nil {
		return job, nil, err
	}
	job = e.fullJob(v, p, image)
	script, pinned, err := e.Renderer.Render(job)
	if err != nil {
		return job, nil, err
	}
	return job, script, e.Workspace.OpenAttempt(ctx, v.Run.ID, v.Attempt.N, v.Submission.Token, ControlFile{PinnedFile, pinned},
		ControlFile{ScriptFile, script})
}

func (e *Engine) fullJob(v View, p plan.Params, image string) JobSpec {
	job := e.job(v, p)
	job.ImagePath, job.MaxOutputBytes = image, e.outputLimit(p)
	job.ExecArgs = e.Images.ExecArgs(p.Spec, p.Tool.Asked(), image, job.RunDir, job.AttemptDir())
	return job
}

// kept is what is stored with the transition that follows staging.
type kept struct {
	payloads  []Payload
	artifacts []Artifact
}

// keepScript makes the script an artifact: an admin reads exactly what was sent. Its bytes go into the ledger, with the
// intent.
func (e *Engine) keepScript(v View, script []byte) (View, kept, error) {
	digest := sha256.Sum256(script)
	sum := hex.EncodeToString(digest[:])
	a, err := e.artifact(v, sum, int64(len(script)), "TEXT", "slurm_script")
	v.Run.ScriptArtifactID, v.Submission.ScriptSHA = a.ID, sum
	return v, kept{[]Payload{{sum, script}}, []Artifact{a}}, err
}

func (e *Engine) artifact(v View, sum string, size int64, typ, label string) (Artifact, error) {
	id, err := plan.ArtifactID(v.Run.ProjectID, sum, typ, label)
	return Artifact{ID: id, ProjectID: v.Run.ProjectID, SHA256: sum, Type: typ, Label: label, SizeBytes: size, Source: v.Run.ID}, err
}

// unstaged are the reasons to stage a deferred run's files again: they could not be used. Nothing was accepted, so there is no job
// that uses them.
var unstaged = map[string]bool{"control_unwritable": true, "SCRIPT_UNREADABLE": true, "staging_waits": true}

// resend sends a deferred run when its time has come.
func (e *Engine) resend(ctx context.Context, v View) (again bool, err error) {
	if v.Run.CancelAt != nil {
		return false, e.finish(ctx, v, verdict{ending: EndedCancelled, detail: "cancelled while it waited for Slurm; no job was accepted"})
	}
	if !e.pressure.due(v.Run.ID) {
		return false, nil
	}
	p, err := e.params(ctx, v)
	if err != nil {
		return false, err
	}
	if err := e.allowed(v, p); err != nil {
		return false, e.finish(ctx, v, verdict{ending: EndedStaging, reason: fault.CodeOf(err), detail: fault.Prose(err)})
	}
	if unstaged[v.Run.Reason] {
		return e.stageAndSend(ctx, v, p)
	}
	return e.send(ctx, v, e.job(v, p), kept{})
}

// send is the window that this program exists for: the intent is durable before sbatch starts, the receipt
// after it has ended, and the resolver settles what lies between.
func (e *Engine) send(ctx context.Context, v View, job JobSpec, kept kept) (again bool, err error) {
	if why, ok := e.pressure.holdIfPaused(v.Run.ID, job.Spec.Placement); ok {
		return false, e.putOff(ctx, v, why, kept)
	}
	release, why, ok := e.limits.reserve(v.Run)
	if !ok {
		return false, e.putOff(ctx, v, why, kept)
	}
	defer release()
	free := sync.OnceFunc(func() { <-e.sends })
	select {
	case e.sends <- struct{}{}:
		defer free()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if why, ok := e.pressure.holdIfPaused(v.Run.ID, job.Spec.Placement); ok { // since it started to wait for its slot
		return false, e.putOff(ctx, v, why, kept)
	}
	k := v.Sends + 1
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail = Queued, Submitting, "", ""
	v, err = e.apply(ctx, Write{Run: v.Run, Submission: &v.Submission, Payloads: kept.payloads, Artifacts: kept.artifacts,
		Send: &Send{Token: v.Submission.Token, K: k, StartedAt: e.Now()}, From: &v,
		Event: Event{Type: "run.intent", Data: map[string]any{"attempt": v.Attempt.N, "job_name": v.Submission.JobName,
			"script_sha256": v.Submission.ScriptSHA, "send": k}}})
	if err != nil {
		return false, err
	}
	res := e.Submitter.Send(ctx, job, k)
	if res.Outcome == SendAccepted {
		free() // the next sbatch does not wait for this receipt's commit; a refusal may delay the next one
	}
	return false, e.settleSend(ctx, v, job, k, res)
}

// recoverSend settles a send whose gateway died.
func (e *Engine) recoverSend(ctx context.Context, v View) (again bool, err error) {
	p, err := e.params(ctx, v)
	if err != nil {
		return false, err
	}
	job := e.job(v, p)
	res, held := e.Submitter.Receipt(ctx, job, v.Sends)
	if held {
		e.pressure.delay(v.Run.ID, e.cfg.Floor)
		return false, nil
	}
	return false, e.settleSend(ctx, v, job, v.Sends, res)
}

// settleSend records what a send proved, even if the caller is gone: the receipt is
// the one thing that must not wait. A cancel requested meanwhile is no reason to lose it either.
func (e *Engine) settleSend(ctx context.Context, v View, job JobSpec, k int, res SendResult) error {
	ctx = context.WithoutCancel(ctx)
	for {
		err := e.settleOnce(ctx, v, job, k, res)
		if !stale(err) {
			return err
		}
		was := v.Run.Phase
		if v, err = e.Store.View(ctx, v.Run.ID); err != nil || v.Run.Phase != was || v.Sends != k {
			return err
		}
	}
}

func (e *Engine) settleOnce(ctx context.Context, v View, job JobSpec, k int, res SendResult) error {
	now := e.Now()
	send := &Send{Token: v.Submission.Token, K: k, StartedAt: now, EndedAt: &now, Outcome: res.Outcome, ExitCode: res.ExitCode, Text: res.Text}
	w := Write{Run: v.Run, Send: send, From: &v}
	switch res.Outcome {
	case SendAccepted:
		v.Submission.JobID, v.Submission.Cluster = res.JobID, res.Cluster
		w.Submission = &v.Submission
		w.Run.Phase, w.Run.Reason, w.Run.Detail = Pending, "", ""
		w.Event = Event{Type: "run.receipt", Data: map[string]any{"job_id": res.JobID, "cluster": res.Cluster, "send": k}}
		e.forget(v.Run.ID)
		e.pressure.accepted(job.Spec.Placement)
	case SendRejected:
		return e.finish(ctx, v, verdict{ending: EndedRejected, reason: "rejected", detail: fmt.Sprintf("Slurm refused the job (%s): %s",
			res.Code, res.Text), send: send})
	case SendDeferred, SendNotRun:
		e.pressure.refused(v.Run.ID, job.Spec.Placement, res)
		if v.Run.CancelAt != nil {
			return e.finish(ctx, v, verdict{ending: EndedCancelled, detail: "cancelled while it waited for Slurm; no job was accepted", send: send})
		}
		w.Run.Phase, w.Run.Reason, w.Run.Detail = Deferred, orElse(res.Code, "sbatch_not_started"), res.Text
		w.Event = Event{Type: "run.deferred", Data: map[string]any{"code": res.Code, "send": k, "text": res.Text}}
	default:
		w.Run.Phase, w.Run.Reason, w.Run.Detail = Unconfirmed, orElse(res.Code, "no_receipt"),
			orElse(res.Text, "sbatch left no receipt; Slurm will be queried for the job name")
		w.Event = Event{Type: "run.unconfirmed", Data: map[string]any{"send": k, "text": res.Text}}
	}
	sayCancelling(&w.Run, v.Submission.JobID)
	settled, err := e.apply(ctx, w)
	e.watcher.poke()
	if err == nil && settled.Run.CancelAt != nil {
		return e.carryOutCancel(ctx, settled) // requested while sbatch ran
	}
	return err
}

// temporary matches the name of a temporary file or folder, which differs at each try.
var temporary = regexp.MustCompile(`[a-z2-7]{26}`)

func unnamed(detail string) string { return temporary.ReplaceAllLiteralString(detail, "…") }

// note records what a run waits for, once per reason.
func (e *Engine) note(ctx context.Context, v View, why, detail string) error {
	e.pressure.delay(v.Run.ID, e.cfg.Floor)
	if v.Run.Reason == why && unnamed(v.Run.Detail) == unnamed(detail) || ctx.Err() != nil {
		return nil
	}
	v.Run.Reason, v.Run.Detail = why, detail
	_, err := e.apply(ctx, Write{Run: v.Run, Event: Event{Type: "run.waits", Data: map[string]any{"reason": why, "detail": detail}}})
	return err
}

// block stops a run until a verb resolves it.
func (e *Engine) block(ctx context.Context, v View, phase Phase, detail string) error {
	v.Run.State, v.Run.Phase, v.Run.Reason, v.Run.Detail = Blocked, phase, string(phase), detail
	_, err := e.apply(ctx, Write{Run: v.Run, Event: Event{Type: "run.blocked", Data: map[string]any{"phase": phase, "detail": detail}}})
	return err
}

func stale(err error) bool { return fault.CodeOf(err) == "stale_run" }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
