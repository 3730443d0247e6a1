package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// stageAndSend takes a run from staging through the intent and one send. After a crash before the intent everything is
// repeated from the start; every step gives the same bytes.
func (e *Engine) stageAndSend(ctx context.Context, v View, p plan.Params) error {
	if job := e.job(v, p); e.pending.full(v.Run.ExecutedAs) && e.hasPartners(v, job) {
		return e.note(ctx, v, sendsWait, sendsWaitDetail)
	}
	most := e.stagingTime(ctx, v)
	within, stop := context.WithTimeout(ctx, most)
	defer stop()
	began := e.Now()
	job, files, err := e.stage(within, v, p)
	m := &arrayCandidate{v: v, was: v, job: job, files: files}
	if err == nil && !e.hasPartners(v, job) { // otherwise its folder is created with those of the other runs
		err = e.open(within, m)
	}
	e.staged(v, err)
	switch {
	case within.Err() != nil && ctx.Err() == nil && (err == nil || errors.Is(err, context.DeadlineExceeded)):
		return e.endUnsent(ctx, v, verdict{ending: EndedTimeLimit,
			detail: fmt.Sprintf("staging took %s; the toolpack's timeoutMs allows %s. Nothing was submitted. Raise timeoutMs, or retry the run "+
				"when the filesystem is faster", e.Now().Sub(began).Round(time.Millisecond), most)})
	case err != nil:
		return e.handleStagingError(ctx, v, err)
	}
	// The script becomes an artifact, so that an admin reads exactly what was sent. Its bytes go into the ledger with
	// the intent.
	script := files[len(files)-1].Data
	digest := sha256.Sum256(script)
	sum := hex.EncodeToString(digest[:])
	a, err := e.artifact(v, sum, int64(len(script)), "TEXT", "slurm_script")
	if err != nil {
		return err
	}
	m.v.Run.ScriptArtifactID, m.v.Submission.ScriptSHA = a.ID, sum
	m.w = Write{Payloads: []Payload{{sum, script}}, Artifacts: []Artifact{a}}
	if m.v.Attempt.Inputs = gotten(job.Placed); m.v.Attempt.Inputs != nil {
		m.w.Attempts = []Attempt{m.v.Attempt}
	}
	return e.send(ctx, m)
}

// staged records the result of a staging. A result as a user concerns that user's runs only, so it is not recorded.
func (e *Engine) staged(v View, err error) {
	if v.Run.ExecutedAs == "" {
		e.disk.staged(err)
	}
}

// handleStagingError handles a run whose files could not be put in place.
func (e *Engine) handleStagingError(ctx context.Context, v View, err error) error {
	switch {
	case fault.CodeOf(err) == string(AheadOfLedger):
		if whole, err := e.takeOver(ctx, v); whole || err != nil {
			return err
		}
		return e.block(ctx, v, AheadOfLedger,
			fmt.Sprintf("attempt %d in the workspace is unknown to this ledger: an older ledger was restored, or another gateway worked here; "+
				"restore the newer ledger or cancel the run", v.Attempt.N))
	case fault.KindOf(err).Retryable() || ctx.Err() != nil || userAway(v, fault.CodeOf(err)):
		why := stagingWaits
		switch code := fault.CodeOf(err); {
		case unreached(code):
			why = SiteAway
		case userAway(v, code): // the claim of an attempt that an older ledger sent cannot be taken either, so a refusal ends no run
			why = code
		}
		return e.note(ctx, v, why, fault.Prose(err))
	}
	return e.endUnsent(ctx, v, verdict{ending: EndedStaging, reason: fault.CodeOf(err), detail: fault.Prose(err)})
}

// unlimited is the staging time of a run without a pack: longer than any staging.
const unlimited = 10 * 365 * 24 * time.Hour

// stagingTime returns how long staging the run's attempt may take, by the pack it was planned with. An unreadable pack
// does not prevent the staging; whatever needs the pack comes at the run's end.
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

// stage puts image and inputs in place, and returns the control files of the attempt's folder; the last one is the
// script.
func (e *Engine) stage(ctx context.Context, v View, p plan.Params) (job JobSpec, files []ControlFile, err error) {
	if err := e.allowed(v, p); err != nil {
		return job, nil, err
	}
	image, err := e.verifyProgram(ctx, p.Spec)
	if err != nil {
		return job, nil, err
	}
	inputs, err := e.placed(ctx, v.Run, p.Spec.IO.Inputs)
	if err != nil {
		return job, nil, err
	}
	open := e.opener(inputs)
	if err := e.stageInputs(ctx, v, staged(inputs), open); err != nil {
		return job, nil, err
	}
	if err := e.verifyInputs(ctx, v, p, open); err != nil {
		return job, nil, err
	}
	job = e.fullJob(v, p, inputs, image)
	script, pinned, err := e.Renderer.Render(job)
	return job, append(e.programFiles(p.Spec), ControlFile{PinnedFile, pinned}, ControlFile{ScriptFile, script}), err
}

// open creates the attempt's folder, unless it exists already.
func (e *Engine) open(ctx context.Context, m *arrayCandidate) error {
	if m.files == nil {
		return nil
	}
	err := e.Workspace.OpenAttempt(ctx, m.v.Run.ID, m.v.Attempt.N, m.v.Submission.Token, m.files...)
	if err == nil {
		m.files = nil
	}
	return err
}

// stageInputs puts the inputs in place, and counts their bytes on the way.
func (e *Engine) stageInputs(ctx context.Context, v View, inputs []plan.Input, open Opener) error {
	total := int64(0)
	for _, in := range inputs {
		if e.Watch == nil || len(inputs) > mostSized {
			total = 0
			break
		}
		r, size, err := open(ctx, in.ChecksumSHA256)
		if err != nil {
			break // StageInputs returns the error
		}
		total += size
		r.Close()
	}
	watched, end := e.moves.begin(ctx, e.Watch, v.Run.ID, "staging", total, e.Now())
	defer end()
	return e.Workspace.StageInputs(watched, v.Run.ID, inputs, open)
}

func (e *Engine) fullJob(v View, p plan.Params, inputs []Placed, image string) JobSpec {
	job := e.job(v, p)
	job.MaxOutputBytes, job.Placed = e.outputLimit(p), inputs
	e.start(&job, p, inputs, image)
	return job
}

func (e *Engine) artifact(v View, sum string, size int64, typ, label string) (Artifact, error) {
	id, err := plan.ArtifactID(v.Run.ProjectID, sum, typ, label)
	return Artifact{ID: id, ProjectID: v.Run.ProjectID, SHA256: sum, Type: typ, Label: label, SizeBytes: size, Source: v.Run.ID}, err
}
