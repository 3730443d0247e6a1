package app

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

const maxTailBytes = 256 << 10

// MinFromByte is the least from_byte of slurm.job.logs: minus the most bytes from the end of a stream that one answer
// may have.
const MinFromByte = -maxTailBytes

// RunArgs are the arguments of operations on one run.
type RunArgs struct {
	RunID string `json:"run_id" arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
}

// RunWaitArgs are the arguments of slurm.job.get and slurm.job.collect.
type RunWaitArgs struct {
	RunArgs
	WaitSeconds int `json:"wait_seconds,omitzero" min:"0" max:"30" about:"seconds to wait for the run to finish" name:"wait" help:"Wait up to this many seconds for the run to finish (0 to 30)." placeholder:"SECONDS"`
}

func (a RunWaitArgs) wait() time.Duration { return time.Duration(a.WaitSeconds) * time.Second }

// RunReasonArgs are the arguments of slurm.job.recollect and slurm.job.absent.
type RunReasonArgs struct {
	RunArgs
	Reason string `json:"reason,omitzero" max:"512" help:"Reason; recorded with the run." placeholder:"TEXT"`
}

// CancelArgs are the arguments of slurm.job.cancel.
type CancelArgs struct {
	RunReasonArgs
	Whose
}

// RetryArgs are the arguments of slurm.job.retry.
type RetryArgs struct {
	RunReasonArgs
	// If it is missing, the error names the latest attempt; so the schema does not require it.
	After     int                `json:"after_attempt,omitzero" min:"1" max:"1000000" about:"required: the number of the attempt that the new one follows"`
	Resources plan.MoreResources `json:"resources,omitzero" kind:"retry_resources"`
}

func retryOf(runID string, after int, why string) RetryArgs {
	return RetryArgs{RunReasonArgs: RunReasonArgs{RunArgs{runID}, why}, After: after}
}

// LogsArgs are the arguments of slurm.job.logs.
type LogsArgs struct {
	RunArgs
	Stream    string `json:"stream,omitzero" enum:"stdout,stderr,log" about:"log when absent"`
	TailLines int    `json:"tail_lines,omitzero" min:"1" max:"5000"`
	FromByte  *int64 `json:"from_byte,omitzero" min:"-262144" about:"next_byte of an earlier answer: only what came since; a negative one counts from the end"`
}

// AdoptArgs are the arguments of slurm.job.adopt.
type AdoptArgs struct {
	RunArgs
	JobID string `json:"job_id" pattern:"^[0-9]{1,10}$" arg:"" name:"job" help:"Slurm job id; the job must have the run's job name."`
}

// lifecycle returns the operations on one run.
func (g *Gateway) lifecycle() []Operation {
	return []Operation{{
		ID: "slurm.submit", Title: "Submit a plan", Verb: "submit",
		Description: "Submits a complete plan (SlurmJobSpec v1) as one Slurm job. Submitting the same plan again returns the same run and " +
			"creates no second job.",
		Chat:   gate.Chat{Has: true, Correct: "Correct the plan and call slurm_submit again.", Handles: gate.NoHandles}, // it has checksums
		Effect: gate.Execute, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Acts:   ActsAsCaller,
		Does:   does(g.submit),
		DryRun: does(g.rehearseSubmit), Covers: g.coversSubmit, Names: g.namesInPlan,
	}, {
		ID: "slurm.job.get", Title: "Show a run", Verb: "get",
		Description: "Returns the state of a run. \"Not ready\" is a normal answer: call again after poll_after_seconds, or set wait_seconds.",
		Chat:        gate.Chat{Has: true},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Does: ofRun(g, withProvenance(g, g.getRun)),
	}, {
		ID: "slurm.job.collect", Title: "Collect a run", Verb: "collect",
		Description: "Returns whether a run is finished and its artifacts by role. The gateway collects the outputs itself when the job " +
			"ends; this call changes nothing.",
		Chat:   gate.Chat{Has: true, First: true},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Does: ofRun(g, withProvenance(g, g.collectRun)),
	}, {
		ID: "slurm.job.recollect", Title: "Collect late outputs again", Verb: "recollect",
		Description: "Collects the outputs of a run that is blocked as outputs_late again, now. The gateway does this itself when the " +
			"manifest appears. A run in any other phase is left unchanged.",
		Chat:   gate.Chat{Has: true},
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Acts: ActsOnOwnRun,
		Does: ofRun(g, withProvenance(g, g.recollect)), DryRun: does(g.rehearseVerb),
	}, {
		ID: "slurm.job.cancel", Title: "Cancel a run", Verb: "cancel",
		Description: "Cancels a run that you asked for; it continues for others who did. If the job has not started it ends at once; otherwise " +
			"it is \"cancelling\" until Slurm has stopped the job.",
		Chat: gate.Chat{Has: true, First: true, Seldom: []string{"for_all", "for_principal"}}, Destructive: true,
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Acts:   ActsForAskers,
		Does:   ofRun(g, withProvenance(g, g.cancel)),
		DryRun: does(g.rehearseCancel),
	}, {
		ID: "slurm.job.retry", Title: "Retry a run", Verb: "retry",
		Description: "Opens a new attempt of a run that failed or was cancelled. after_attempt is the attempt it follows, as slurm.job.get " +
			"gives it (attempt): the same call again finds the attempt opened and does nothing.",
		Chat:   gate.Chat{Has: true, First: true, Seldom: []string{"reason"}},
		Effect: gate.Execute, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Acts:   ActsForAskers,
		Does:   ofRun(g, does(g.retryRun)),
		DryRun: does(g.rehearseRetry), Starts: g.startsRetry, Covers: g.coversRetry, Shows: shows(g.addRetry),
	}, {
		ID: "slurm.job.absent", Title: "Declare a job absent", Verb: "declare-absent",
		Description: "Ends the attempt of a run whose job cannot be found: from then on no job of this attempt can execute.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapOperate, Needs: Engine, Faces: everywhere,
		Acts: ActsOnAnyRun,
		Does: ofRun(g, withProvenance(g, g.declareAbsent)), DryRun: does(g.rehearseVerb),
	}, {
		ID: "slurm.job.adopt", Title: "Adopt a job", Verb: "adopt",
		Description: "Assigns a Slurm job with the run's job name to a run in doubt.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapOperate, Needs: Engine, Faces: everywhere,
		Acts: ActsOnAnyRun,
		Does: ofRun(g, withProvenance(g, g.adopt)),
	}, {
		ID: "slurm.job.logs", Title: "Read a run's log", Verb: "logs",
		Description: "Returns the end of a run's log, standard output or standard error.",
		Chat:        gate.Chat{Has: true, First: true, Bound: "tail_lines", Most: 60, Seldom: []string{"from_byte"}},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Acts: ActsOnOwnLiveRun,
		Work: gate.Preview, Limit: g.previewTime(),
		Does: ofRun(g, withProvenance(g, g.logs)),
	}}
}

func (g *Gateway) getRun(ctx context.Context, c gate.Call, a RunWaitArgs) (run.GetAnswer, error) {
	r, err := g.Sites.Get(ctx, a.RunID, a.wait())
	g.nameBusiest(r.Waits)
	r.Reason, r.Alias = g.hide(c, r.Reason), aliasOf(ctx, a.RunID, r.TargetRunID)
	return r, err
}

func (g *Gateway) collectRun(ctx context.Context, c gate.Call, a RunWaitArgs) (run.CollectAnswer, error) {
	r, err := g.Sites.Collect(ctx, a.RunID, a.wait())
	if err != nil {
		return r, err
	}
	r.Reason, r.Alias = g.hide(c, r.Reason), aliasOf(ctx, a.RunID, r.TargetRunID)
	names, err := g.Ledger.OutputNames(ctx, r.TargetRunID, askerOf(c))
	for role, name := range names {
		if _, there := r.ArtifactsByRole[role]; !there {
			continue
		}
		if r.DownloadNames == nil {
			r.DownloadNames = map[string]string{}
		}
		r.DownloadNames[role] = name
	}
	return r, err
}

// CancelAnswer is the answer of slurm.job.cancel.
type CancelAnswer struct {
	CallRunID
	run.CancelAnswer
	ToolID      string   `json:"tool_id"`
	Waiters     int64    `json:"waiters,omitempty"`      // runs that wait for outputs of this one; absent: none
	WaitingRuns []string `json:"waiting_runs,omitempty"` // some of these runs
}

// RecollectAnswer is the answer of slurm.job.recollect.
type RecollectAnswer struct {
	CallRunID
	run.RecollectAnswer
}

// StateAnswer is the answer of slurm.job.adopt and slurm.job.absent.
type StateAnswer struct {
	CallRunID
	run.GetState
}

func (g *Gateway) recollect(ctx context.Context, _ gate.Call, a RunReasonArgs) (out RecollectAnswer, err error) {
	out.RecollectAnswer, err = g.Sites.Recollect(ctx, a.RunID, a.Reason)
	return out, err
}

func (g *Gateway) cancel(ctx context.Context, c gate.Call, a CancelArgs) (out CancelAnswer, err error) {
	v, err := g.Ledger.View(ctx, a.RunID)
	if err != nil {
		return out, err
	}
	a.RunID = v.Run.ID
	by, err := g.cancels(ctx, c, a.RunID, v.Run.ToolID, v.Run.ProjectID, a.Whose)
	if err != nil {
		return out, err
	}
	on, err := g.waitersOf(ctx, a.RunID)
	if err != nil {
		return out, err
	}
	out.ToolID = v.Run.ToolID
	out.CancelAnswer, err = g.Sites.Cancel(ctx, a.RunID, a.Reason, by)
	if fault.CodeOf(err) == run.Started { // others may have asked for the run that started
		return g.cancel(ctx, c, a)
	}
	g.loop.wakeUp() // the call of a waiting run may be made for another caller now
	if err == nil && out.State != run.Succeeded && !out.Withdrawn {
		on.addTo(&out)
	}
	return out, err
}

// rehearseCancel describes a run, its tool and what a cancel would do.
func (g *Gateway) rehearseCancel(ctx context.Context, c gate.Call, a CancelArgs) (p CancelPreview, err error) {
	v, err := g.Ledger.View(ctx, a.RunID)
	if err != nil {
		return p, err
	}
	by, err := g.cancels(ctx, c, a.RunID, v.Run.ToolID, v.Run.ProjectID, a.Whose)
	if err != nil {
		return p, err
	}
	return g.previewCancel(ctx, run.Outline(v), v.Run.ToolID, by)
}

func (g *Gateway) declareAbsent(ctx context.Context, _ gate.Call, a RunReasonArgs) (out StateAnswer, err error) {
	out.GetState, err = g.Sites.DeclareAbsent(ctx, a.RunID, a.Reason)
	return out, err
}

func (g *Gateway) adopt(ctx context.Context, _ gate.Call, a AdoptArgs) (out StateAnswer, err error) {
	out.GetState, err = g.Sites.Adopt(ctx, a.RunID, a.JobID)
	return out, err
}

// hide returns what a run waits for, or how it ended, without the gateway's folders if the caller is a chat.
func (g *Gateway) hide(c gate.Call, reason *string) *string {
	if reason == nil {
		return nil
	}
	s := g.Gate.Registry().Hide(c.Caller.Transport, *reason)
	return &s
}

func (g *Gateway) retryRun(ctx context.Context, c gate.Call, a RetryArgs) (_ run.SubmitAnswer, err error) {
	if a.RunID, err = g.Ledger.RunOf(ctx, a.RunID); err != nil {
		return run.SubmitAnswer{}, err
	}
	if err := g.mayRetry(ctx, c, a.RunID); err != nil {
		return run.SubmitAnswer{}, err
	}
	project, err := g.Ledger.Owner(ctx, a.RunID)
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	own, by, err := g.retries(ctx, c, a.RunID, project)
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	caller, err := json.Marshal(g.batchCallerOf(ctx, c))
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	order := run.RetryOrder{After: a.After, Why: a.Reason, More: a.Resources, Row: rowFor(ctx), Asking: own, By: by, Caller: caller,
		Allow: func(r run.Run, next plan.Resources) error {
			if err := c.MayStart(r.ToolName); err != nil || c.Covered == nil || reflect.DeepEqual(c.Covered.Resources, &next) {
				return err
			}
			return fault.New(fault.Policy, "approval_void", fmt.Sprintf("attempt %d would have other resources than those that were approved",
				a.After+1)).WithNext("repeat the call, which requests another approval")
		}}
	r, err := g.Sites.Retry(ctx, a.RunID, order)
	if fault.CodeOf(err) == run.Started { // others may have asked for the run that started
		return g.retryRun(ctx, c, a)
	}
	g.loop.wakeUp() // it may wait for its inputs
	r.Reason = g.hide(c, r.Reason)
	return r, err
}

// rehearseVerb returns the current state of the run that a verb would change.
func (g *Gateway) rehearseVerb(ctx context.Context, _ gate.Call, a RunReasonArgs) (run.GetState, error) {
	v, err := g.startedRun(ctx, a.RunID)
	return run.Outline(v), err
}

// RetryPreview describes what a retry would do.
type RetryPreview struct {
	run.GetState      // the run as it is
	*NextAttempt      // nil: none would be opened
	WaitsAgain   bool `json:"waits_again,omitempty"` // it would wait for its inputs again
}

// NextAttempt is the attempt that a retry would open.
type NextAttempt struct {
	Next      int            `json:"next_attempt"`
	Resources plan.Resources `json:"resources"`
	Raised    string         `json:"raised"` // the resources that exceed those of the previous attempt; empty: none
}

// rehearseRetry returns the properties of the attempt that a retry would open.
func (g *Gateway) rehearseRetry(ctx context.Context, c gate.Call, a RetryArgs) (out RetryPreview, err error) {
	v, err := g.Ledger.View(ctx, a.RunID)
	out.GetState = run.Outline(v)
	if err != nil || v.Run.State != run.Failed && v.Run.State != run.Cancelled {
		return out, err // no attempt would be opened
	}
	if err := g.mayRetry(ctx, c, a.RunID); err != nil {
		return out, err
	}
	if v.Waiting != nil {
		out.WaitsAgain = true
		return out, v.Waiting.Broken()
	}
	canonical, err := g.Ledger.Params(ctx, v.Run.ParamsHash)
	if err != nil {
		return out, err
	}
	p, err := plan.DecodeParams(canonical)
	if err != nil {
		return out, err
	}
	next := NextAttempt{Next: v.Run.AttemptN + 1}
	if next.Resources, err = g.Sites.NextResources(ctx, a.RunID, a.Resources); err != nil {
		return out, err
	}
	had := p.Spec.Resources
	if v.Attempt.Resources != nil {
		had = *v.Attempt.Resources
	}
	next.Raised = next.Resources.Raised(had)
	out.NextAttempt = &next
	return out, nil
}

func (g *Gateway) logs(ctx context.Context, c gate.Call, a LogsArgs) (run.LogsAnswer, error) {
	if a.Stream == "" {
		a.Stream = "log"
	}
	if a.TailLines == 0 && a.FromByte == nil {
		a.TailLines = 200
	}
	part := run.LogPart{Limit: maxTailBytes, From: a.FromByte}
	answer, err := g.Sites.Logs(ctx, a.RunID, a.Stream, part)
	if err != nil {
		return answer, err
	}
	if a.TailLines > 0 {
		last := lastLines(answer.Text, a.TailLines)
		answer.Text, answer.Truncated = last, answer.Truncated || len(last) < len(answer.Text)
	}
	answer.Text = g.Gate.Registry().Hide(c.Caller.Transport, answer.Text)
	return answer, nil
}

// lastLines returns at most the last n lines of a text.
func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if last := len(lines) - 1; last >= 0 && lines[last] == "" {
		lines = lines[:last]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}
