package run

import (
	"cmp"
	"context"
	"fmt"

	"slurmgate/plan"
)

// verdict holds how an attempt ended and what it produced.
type verdict struct {
	ending    Ending
	reason    string // defaults to the ending
	detail    string
	exit      *int
	send      *Send // closed in the same transaction
	artifacts []Artifact
	outputs   []Link
	output    map[string]outputDoc
	logID     string
	warnings  []string
	refused   int  // how often a success was refused
	disowned  bool // a line that the program printed reports its failure: no output counts as complete
}

// finish ends the current attempt. After an infrastructure ending it opens another attempt as long as policy allows
// one; every other ending ends the run. Either is one transaction.
func (e *Engine) finish(ctx context.Context, v View, d verdict) error {
	d.detail, d.warnings = e.cfg.Secrets.Redact(d.detail), cleanAll(e.cfg.Secrets, d.warnings)
	now := e.Now()
	reason := cmp.Or(d.reason, string(d.ending))
	old := v.Attempt
	old.Ending, old.EndedAt, old.ExitCode = d.ending, cmp.Or(old.EndedAt, &now), d.exit
	if d.ending.Infrastructure() && v.Run.CancelAt == nil && v.Attempt.N < e.cfg.Attempts && !(e.cfg.OneNode && d.ending.NodeFault()) {
		return e.newAttempt(ctx, v, old, d, reason)
	}
	r := v.Run
	r.State, r.Phase, r.Reason, r.Detail = stateAfter(d.ending, r.CancelAt != nil), Done, reason, d.detail
	r.FinishedAt, r.ExitCode, r.LogArtifactID = &now, d.exit, cmp.Or(d.logID, r.LogArtifactID)
	r.Warnings = append(r.Warnings[:len(r.Warnings):len(r.Warnings)], d.warnings...)
	done := View{Run: r, Attempt: old, Submission: v.Submission}
	result, err := plan.Marshal(resultJSON{SubmitAnswer: e.submitAnswer(done, false, nil), ExitCode: d.exit, Output: d.output,
		FinishedAt: now.UTC()})
	if err != nil {
		return err
	}
	r.ResultJSON = result
	_, err = e.apply(ctx, Write{Run: r, Attempts: []Attempt{old}, Submission: &v.Submission, Send: d.send, Artifacts: d.artifacts,
		Outputs: d.outputs, From: &v,
		Event: Event{Type: "run." + string(r.State), Data: map[string]any{"attempt": old.N, "ending": d.ending, "reason": reason,
			"detail": d.detail, "exit_code": d.exit, "slurm_state": old.SlurmState, "job_id": v.Submission.JobID, "outputs": d.outputs}}})
	if err == nil {
		e.forget(r.ID)
		e.expectStrays(v, d.ending)
	}
	return err
}

// newAttempt ends one attempt and opens the next: an explicit decision, recorded as such.
func (e *Engine) newAttempt(ctx context.Context, v View, old Attempt, d verdict, reason string) error {
	asked, err := e.storedParams(ctx, v)
	if err != nil {
		return err
	}
	detail := fmt.Sprintf("attempt %d ended as %s; policy allows %d attempts", old.N, reason, e.cfg.Attempts)
	if d.ending.NodeFault() {
		detail = fmt.Sprintf("attempt %d ended as %s on node %s; policy allows %d attempts", old.N, reason, cmp.Or(old.Node, "unknown"),
			e.cfg.Attempts)
	}
	err = e.openAttempt(ctx, v, "new_attempt", detail, e.nextPlacement(v, asked), v.Attempt.Resources, Write{Attempts: []Attempt{old},
		Send:      d.send,
		Artifacts: d.artifacts, Event: Event{Type: "run.new_attempt", Data: map[string]any{"after": d.ending, "detail": d.detail,
			"outputs": d.outputs}}})
	if err == nil {
		e.expectStrays(v, d.ending)
	}
	return err
}

// openAttempt completes w to the transition that opens the next attempt of a run. v.Attempt is the one before, unless w
// has it.
func (e *Engine) openAttempt(ctx context.Context, v View, reason, detail string, at *plan.Placement, res *plan.Resources, w Write) error {
	r, n := v.Run, v.Run.AttemptN+1
	sub := newSubmission(r.ID, n, e.Now())
	avoid := avoidAfter(append(w.Attempts, v.Attempt)[0], e.Now())
	r.enter(Staging, reason, detail)
	r.AttemptN, r.FinishedAt, r.ExitCode = n, nil, nil
	data := withResources(withPlacement(w.Event.Data.(map[string]any), at), res)
	data["attempt"] = n
	if len(avoid) > 0 {
		data["avoids"] = avoid
	}
	w.Run, w.Submission = r, &sub
	w.Attempts = append(w.Attempts, Attempt{RunID: r.ID, N: n, Token: sub.Token, CreatedAt: e.Now(), Placement: at, Resources: res,
		Avoid: avoid})
	_, err := e.apply(ctx, w)
	if err == nil {
		e.forget(r.ID)
		e.work.add(ShareOf(r), r.ID)
	}
	return err
}

func stateAfter(ending Ending, cancelAsked bool) State {
	switch {
	case ending == EndedOK:
		return Succeeded
	case ending == EndedCancelled, cancelAsked && ending.Infrastructure():
		return Cancelled
	}
	return Failed
}
