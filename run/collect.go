package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
	"slurmgate/visible"
)

// Bounds of what is read from an attempt's control files, in bytes.
const (
	maxControlBytes  = 1 << 20
	maxManifestBytes = 64 << 20  // of 200,000 files with paths of 200 characters
	maxValueBytes    = 16 << 10  // a JSON output up to this size is the value in result_json
	maxValuesBytes   = 256 << 10 // all such values of a run together
	maxAskedBytes    = 1 << 20   // a JSON output up to this size is checked against a pack's conditions
	maxUndeclared    = 20
	maxTailInDetail  = 400
	outputTypeJSON   = "JSON"
	logArtifactLabel = "log"
)

// collectingWaits is the reason of a run whose job has ended and whose files the gateway cannot read or store, and of a
// run that was given up because of that.
const collectingWaits = "collecting_waits"

// collect judges an ended job and registers its outputs. It is repeated until it commits; nothing is registered before
// that. The run's reason names what prevents it; a cancel gives the run up.
func (e *Engine) collect(ctx context.Context, v View) error {
	e.late.begin(v.Run.ID)
	err := e.collectOnce(ctx, v)
	if err == nil || stale(err) || ctx.Err() != nil {
		return err
	}
	switch {
	case v.Run.Reason != collectingWaits:
		e.Log.Warn("a job's files cannot be collected", append(about(v), "err", err)...)
		detail := e.byItself(v, "the job's files cannot be collected", err)
		if userAway(v, fault.CodeOf(err)) {
			detail += "; cancel gives it up"
		}
		return e.note(ctx, v, collectingWaits, detail)
	case v.Run.CancelAt != nil && e.waitedEnough(v):
		return e.finish(ctx, v, verdict{ending: EndedCancelled, reason: collectingWaits,
			detail: "given up: the job's files cannot be collected: " + fault.Prose(err), exit: v.Attempt.ExitCode})
	}
	return err
}

// ofFiles adds a next step to an error about a run's files, if it has none.
func (e *Engine) ofFiles(v View, what string, err error) error {
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Next != "" {
		return err
	}
	return fault.Wrap("", fault.CodeOf(err), what, err).
		WithNext("let " + cmp.Or(v.Run.ExecutedAs, "the gateway's user") + " read and write below " + e.Workspace.RunDir(v.Run.ID) + " again")
}

// byItself returns the detail of a run that waits because of such an error and then continues by itself.
func (e *Engine) byItself(v View, what string, err error) string {
	return fault.Prose(e.ofFiles(v, what, err)) + "; the run then continues by itself"
}

// collectOnce carries out one round of collect.
func (e *Engine) collectOnce(ctx context.Context, v View) error {
	p, err := e.params(ctx, v)
	if err != nil {
		return err
	}
	exit, err := e.readExit(ctx, v)
	if fault.Is(err, fault.NotFound) && e.mayCome(v) {
		return e.note(ctx, v, string(OutputsLate), "the job has ended, but its exit file is not visible yet")
	}
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Validation) {
		return err // the filesystem, not the job
	}
	reason := ""
	if exit == nil {
		// The run's job left no exit file. The claim shows whether that job executed, or another job of its name, or
		// none.
		reason = jobClaimed
		claim, who, err := e.readClaim(ctx, v)
		if who == heldByGateway {
			reason = gatewayClaimed
		}
		if who == notHeld {
			if claim, who, err = e.takeClaim(ctx, v); who == heldByGateway {
				reason = neverClaimed // no job executed, and now none can
			}
		}
		switch {
		case err != nil:
			return err
		case who == folderMissing && v.Run.CancelAt != nil:
			return e.giveUpGone(ctx, v)
		case who == folderMissing:
			return e.blockFolderGone(ctx, v)
		case who == heldByOther:
			return e.blockForeignClaim(ctx, v)
		case who == heldByJob && claim.Holder.Job != v.Submission.JobID:
			_, err := e.adopt(ctx, v, claim)
			return err
		}
	}
	proven, later, err := e.proven(ctx, v, exit)
	switch {
	case err != nil:
		return err
	case later:
		return e.note(ctx, v, string(OutputsLate), manifestLate)
	}
	d := e.judge(ctx, v, v.Attempt.resources(p), exit, reason, proven)
	if d.ending == EndedCancelled && v.Run.CancelAt == nil && (reason == neverClaimed || reason == gatewayClaimed) {
		if d, err = e.cancelledUnstarted(ctx, v); err != nil {
			return err
		}
	}
	if exit != nil {
		v.Attempt.Usage = usage(*exit)
		if v.Attempt.Node == "" && nodeName.MatchString(exit.Node) {
			v.Attempt.Node = exit.Node
		}
	}
	if d.ending == EndedOK {
		if later, err := e.takeOutputs(ctx, v, p, exit.Holder, &d); err != nil || later {
			return err
		}
		if proven && d.ending == EndedOutputs { // the outputs disprove the success, so Slurm's state decides
			d = e.judge(ctx, v, v.Attempt.resources(p), exit, reason, false)
		}
	}
	if err := e.takeLogs(ctx, v, &d); err != nil {
		return err
	}
	if err := e.finish(ctx, v, d); err != nil || !d.lackedRoom() || e.Discard == nil {
		return err
	}
	if err := e.Discard(ctx, v.Run.ID); err != nil { // gc removes it
		e.Log.WarnContext(ctx, "what a run left on a full disk cannot be removed", append(about(v), "err", err)...)
	}
	return nil
}

// lackedRoom reports whether the attempt failed because a disk was full: by the job script's reason, or by the end of
// the program's output.
func (d *verdict) lackedRoom() bool {
	return d.ending == EndedRunsDirFull || d.ending == EndedToolFailed &&
		(strings.Contains(d.detail, "o space left on device") || strings.Contains(d.detail, "uota exceeded"))
}

// readControl reads a whole control file of the current attempt. NotFound if absent.
func (e *Engine) readControl(ctx context.Context, v View, name string) ([]byte, error) {
	return ReadControl(ctx, e.Workspace, v.Run.ID, v.Attempt.N, name, maxControlBytes, false)
}

// readExit reads the exit file, if the job's own execution wrote it. NotFound if absent.
func (e *Engine) readExit(ctx context.Context, v View) (*Exit, error) {
	data, err := e.readControl(ctx, v, ExitFile)
	if err != nil {
		return nil, err
	}
	x, err := ParseExit(data)
	if err != nil {
		return nil, err
	}
	if v.Submission.JobID != "" && x.Holder.Job != v.Submission.JobID {
		return nil, fault.New(fault.Validation, "exit_of_another_job",
			fmt.Sprintf("the exit file belongs to job %s, not to job %s", x.Holder.Job, v.Submission.JobID))
	}
	return &x, nil
}

// mayCome reports whether a missing exit file may only be late: for a limited time after the job's end, and only if
// Slurm's state alone does not determine the ending.
func (e *Engine) mayCome(v View) bool {
	if scriptExits[v.Attempt.SlurmExit] != "" {
		return false // the script's status means that it wrote none
	}
	ending, _ := endingOf(jobClaimed, v.Attempt.SlurmState, false)
	return ending == EndedLost && !e.waitedEnough(v)
}

// outputsMayCome reports the same of a manifest, or the bytes of outputs, for a job that may have succeeded.
func (e *Engine) outputsMayCome(v View) bool {
	return e.mayCome(v) || outranked(v.Attempt) && !e.waitedEnough(v)
}

// waitedEnough reports whether the gateway has waited for the run's files as long as the site allows.
func (e *Engine) waitedEnough(v View) bool { return e.late.waited(v.Run.ID) >= e.cfg.LateOutputs }

func usage(x Exit) json.RawMessage {
	doc := map[string]any{"elapsed_seconds": x.Elapsed, "user_seconds": x.User, "system_seconds": x.Sys, "max_rss_kib": nil, "node": x.Node}
	if x.MaxRSS > 0 {
		doc["max_rss_kib"] = x.MaxRSS
	}
	b, err := plan.Marshal(doc)
	if err != nil {
		return nil
	}
	return b
}

// tail returns the end of what the program printed: on standard error, or else on standard output unless that is a
// declared output, or else of what the script printed. It is bounded, on one line and printable.
func (e *Engine) tail(ctx context.Context, v View) string {
	for _, name := range []string{StderrFile, StdoutFile, JobLogFile} {
		b, err := ReadControl(ctx, e.Workspace, v.Run.ID, v.Attempt.N, name, maxTailInDetail+margin, true)
		if s := strings.TrimSpace(string(b)); err == nil && s != "" {
			at, mark := visible.Tail(s, maxTailInDetail), ""
			if at > 0 {
				mark = visible.Mark
			}
			q := strconv.QuoteToGraphic(strings.ToValidUTF8(e.cfg.Secrets.Tail(s, len(s)-at), "?"))
			return mark + strings.ReplaceAll(q[1:len(q)-1], `\n`, " / ")
		}
	}
	return "it printed nothing"
}
