package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

const maxTailBytes = 256 << 10

// If it is missing, the error names the latest attempt; so the schema does not require it.
const afterSchema = `{"type":"integer","minimum":1,"maximum":1000000,"description":"required: the number of the attempt that the new one follows"}`

// RunArgs are the arguments of operations on one run.
type RunArgs struct {
	RunID       string `json:"run_id"`
	WaitSeconds int    `json:"wait_seconds,omitzero"`
	After       int    `json:"after_attempt,omitzero"`
	Reason      string `json:"reason,omitzero"`
	Stream      string `json:"stream,omitzero"`
	TailLines   int    `json:"tail_lines,omitzero"`

	Resources plan.MoreResources `json:"resources,omitzero"`
}

func (a RunArgs) wait() time.Duration { return time.Duration(a.WaitSeconds) * time.Second }

// AdoptArgs are the arguments of slurm.job.adopt.
type AdoptArgs struct {
	RunID string `json:"run_id"`
	JobID string `json:"job_id"`
}

// lifecycle are the operations on one run.
func (g *Gateway) lifecycle() []Operation {
	runID, reason, wait := prop("run_id", runIDSchema), prop("reason", reasonSchema), prop("wait_seconds", waitSchema)
	return []Operation{{
		ID: "slurm.submit", Title: "Submit a plan", Verb: "submit",
		Description: "Submits a complete plan (SlurmJobSpec v1) as one Slurm job. Submitting the same plan again returns the same run and " +
			"creates no second job.",
		Effect: gate.Execute, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Input: object("job_spec", prop("project_id", projectSchema), prop("job_spec", `{"type":"object"}`)), Does: does(g.submit),
		DryRun: does(g.rehearseSubmit), Covers: g.coversSubmit, Names: g.namesInPlan,
	}, {
		ID: "slurm.job.get", Title: "Show a run", Verb: "get",
		Description: "Returns the state of a run. \"Not ready\" is a normal answer: call again after poll_after_seconds, or set wait_seconds.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Input: object("run_id", runID, wait), Does: ofRun(g, does(g.getRun)),
	}, {
		ID: "slurm.job.collect", Title: "Collect a run", Verb: "collect",
		Description: "Returns whether a run is finished and its artifacts by role. The gateway collects the outputs itself when the job " +
			"ends; this call changes nothing.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Input: object("run_id", runID, wait), Does: ofRun(g, does(g.collectRun)),
	}, {
		ID: "slurm.job.recollect", Title: "Collect late outputs again", Verb: "recollect",
		Description: "Collects the outputs of a run that is blocked as outputs_late again, now. The gateway does this itself when the " +
			"manifest appears. A run in any other phase is left unchanged.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Input: object("run_id", runID, reason), Does: ofRun(g, look(g, g.recollect)), DryRun: does(g.rehearseVerb),
	}, {
		ID: "slurm.job.cancel", Title: "Cancel a run", Verb: "cancel",
		Description: "Cancels a run. If the job has not started this takes effect immediately; otherwise the run is \"cancelling\" until " +
			"Slurm has stopped the job. A finished run is left unchanged.",
		Effect: gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Input: object("run_id", runID, reason), Does: ofRun(g, look(g, g.cancel)), DryRun: does(g.rehearseVerb),
	}, {
		ID: "slurm.job.retry", Title: "Retry a run", Verb: "retry",
		Description: "Opens a new attempt of a run that failed or was cancelled; nothing else repeats a tool's own failure. after_attempt is " +
			"the attempt it follows, as slurm.job.get gives it (attempt): the same call again finds the attempt opened and does nothing.",
		Effect: gate.Execute, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Engine, Faces: everywhere,
		Input: object("run_id", runID, prop("after_attempt", afterSchema), reason, prop("resources", string(moreSchema(
			"what the new attempt gets instead of what the one before had, if that was too little: at least the plan's, within policy and "+
				"partition. The run's id and command line stay the same. If absent, memory or time grow by the tool's own factor, where it has one",
			false)))), Does: ofRun(g, does(g.retryRun)),
		DryRun: does(g.rehearseRetry), Covers: g.coversRetry,
	}, {
		ID: "slurm.job.absent", Title: "Declare a job absent", Verb: "declare-absent",
		Description: "Ends the attempt of a run whose job cannot be found: from then on no job of this attempt can execute.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapOperate, Needs: Engine, Faces: everywhere,
		Input: object("run_id", runID, reason), Does: ofRun(g, look(g, g.declareAbsent)), DryRun: does(g.rehearseVerb),
	}, {
		ID: "slurm.job.adopt", Title: "Adopt a job", Verb: "adopt",
		Description: "Assigns a Slurm job with the run's job name to a run in doubt.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapOperate, Needs: Engine, Faces: everywhere,
		Input: object("run_id job_id", runID, prop("job_id", `{"type":"string","pattern":"^[0-9]{1,10}$"}`)), Does: ofRun(g, look(g, g.adopt)),
	}, {
		ID: "slurm.job.logs", Title: "Read a run's log", Verb: "logs",
		Description: "Returns the end of a run's log, standard output or standard error.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Engine, Faces: everywhere,
		Work: gate.Preview, Limit: g.previewTime(),
		Input: object("run_id", runID, prop("stream", `{"enum":["stdout","stderr","log"]}`),
			prop("tail_lines", `{"type":"integer","minimum":1,"maximum":5000}`)),
		Does: ofRun(g, does(g.logs)),
	}}
}

func (g *Gateway) getRun(ctx context.Context, c gate.Call, a RunArgs) (run.GetAnswer, error) {
	r, err := g.Sites.Get(ctx, a.RunID, a.wait(), g.identify(c, nil))
	g.nameBusiest(r.Waits)
	r.Reason = g.hide(c, r.Reason)
	return r, err
}

func (g *Gateway) collectRun(ctx context.Context, c gate.Call, a RunArgs) (run.CollectAnswer, error) {
	r, err := g.Sites.Collect(ctx, a.RunID, a.wait(), g.identify(c, nil))
	if err != nil {
		return r, err
	}
	names, err := g.Ledger.OutputNames(ctx, a.RunID, askerOf(c))
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
	Waiters     int64    `json:"waiters,omitempty"`      // runs that wait for outputs of this one; absent: none
	WaitingRuns []string `json:"waiting_runs,omitempty"` // some of them
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

func (g *Gateway) recollect(ctx context.Context, _ gate.Call, a RunArgs) (out RecollectAnswer, at any, err error) {
	if at, err = g.atNewest(ctx, a.RunID, a.Reason); err == nil {
		out.RecollectAnswer, err = g.Sites.Recollect(ctx, a.RunID, a.Reason)
	}
	return out, at, err
}

func (g *Gateway) cancel(ctx context.Context, _ gate.Call, a RunArgs) (out CancelAnswer, at any, err error) {
	if at, err = g.atNewest(ctx, a.RunID, a.Reason); err != nil {
		return out, at, err
	}
	on, err := g.waitersOf(ctx, a.RunID)
	if err != nil {
		return out, at, err
	}
	if out.CancelAnswer, err = g.Sites.Cancel(ctx, a.RunID, a.Reason); err == nil && out.State != run.Succeeded {
		on.tell(&out)
	}
	return out, at, err
}

func (g *Gateway) declareAbsent(ctx context.Context, _ gate.Call, a RunArgs) (out StateAnswer, at any, err error) {
	if at, err = g.atNewest(ctx, a.RunID, a.Reason); err == nil {
		out.GetState, err = g.Sites.DeclareAbsent(ctx, a.RunID, a.Reason)
	}
	return out, at, err
}

func (g *Gateway) adopt(ctx context.Context, _ gate.Call, a AdoptArgs) (out StateAnswer, at any, err error) {
	if at, err = g.atNewest(ctx, a.RunID, a.JobID); err == nil {
		out.GetState, err = g.Sites.Adopt(ctx, a.RunID, a.JobID)
	}
	return out, at, err
}

// SubmitArgs are the arguments of slurm.submit.
type SubmitArgs struct {
	ProjectID string          `json:"project_id,omitzero"`
	JobSpec   json.RawMessage `json:"job_spec"`
}

// planOrder accepts a plan unchanged but for the names of references: strictly decoded, allowed by policy, with known inputs.
func (g *Gateway) planOrder(ctx context.Context, c gate.Call, a SubmitArgs) (order run.Order, first before, err error) {
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return order, first, err
	}
	named := g.resolver(ctx, project, c.Names)
	first.references = named.artifacts
	if a.JobSpec, err = named.plan(a.JobSpec); err != nil {
		return order, first, err
	}
	spec, err := plan.DecodeSpec(a.JobSpec, plan.Rules{Types: g.Domain.Types(), Image: g.Domain.Lock().CheckName,
		Pulled: g.Domain.Lock().Pulled})
	if err != nil {
		return order, first, err
	}
	sites, why, err := g.candidates(plan.Params{Spec: spec}.Site())
	if err != nil {
		return order, first, err
	}
	if err := g.Policy.AllowPlan(spec, true, g.Domain.Lock().NameOf(spec.Execution.Container.Image)); err != nil {
		return order, first, err
	}
	if err := g.checkInputs(ctx, c, project, spec, first); err != nil {
		return order, first, err
	}
	user, err := g.executedAs(ctx, c, sites)
	if err != nil {
		return order, first, err
	}
	options := optionsOn(ctx, sites, func(ctx context.Context, s *site.Site) (*plan.Placement, error) {
		if err := g.runsAs(ctx, c, s, user); err != nil {
			return nil, err
		}
		ch, err := g.chargeOf(ctx, c, s, project, user)
		if err == nil {
			err = ch.allows(spec.Placement)
		}
		return nil, err
	})
	order, err = g.aim(run.Order{ToolID: "slurm.submit", ToolName: "slurm_submit", ToolVersion: BuiltinVersion,
		ContractVersion: builtinContract,
		Params:          plan.Params{ProjectID: project, Script: g.Script, Spec: spec, ExecutedAs: user},
		PolicyHash:      g.Policy.Hash, Policy: g.Policy.Snapshot, Actor: c.Request.Actor.Kind, Principal: askerOf(c)}, why, options)
	return order, first, err
}

func (g *Gateway) submit(ctx context.Context, c gate.Call, a SubmitArgs) (run.SubmitAnswer, error) {
	order, first, err := g.planOrder(ctx, c, a)
	if err == nil {
		err = g.keep(ctx, c, "slurm.submit", order.Params.ProjectID, first)
	}
	if err != nil {
		return run.SubmitAnswer{}, err
	}
	r, err := g.Sites.Submit(ctx, order)
	return g.submitted(ctx, c, r, err)
}

// hide returns what a run waits for, or how it ended, without the gateway's folders where the caller is a chat.
func (g *Gateway) hide(c gate.Call, reason *string) *string {
	if reason == nil {
		return nil
	}
	s := g.Gate.Registry().Hide(c.Caller.Transport, *reason)
	return &s
}

func (g *Gateway) retryRun(ctx context.Context, c gate.Call, a RunArgs) (run.SubmitAnswer, error) {
	if err := g.mayRetry(ctx, c, a.RunID); err != nil {
		return run.SubmitAnswer{}, err
	}
	r, err := g.Sites.Retry(ctx, a.RunID, a.After, a.Reason, a.Resources)
	if err == nil {
		g.askedAgain(ctx, c, a.RunID)
	}
	r.Reason = g.hide(c, r.Reason)
	return r, err
}

func (g *Gateway) rehearseSubmit(ctx context.Context, c gate.Call, a SubmitArgs) (run.Preview, error) {
	order, _, err := g.planOrder(ctx, c, a)
	if err != nil {
		return run.Preview{}, err
	}
	return g.Sites.Preview(ctx, order)
}

// rehearseVerb returns the current state of the run that a verb would change.
func (g *Gateway) rehearseVerb(ctx context.Context, _ gate.Call, a RunArgs) (any, error) {
	v, err := g.Ledger.View(ctx, a.RunID)
	return run.Outline(v), err
}

// RetryPreview is what a retry would do.
type RetryPreview struct {
	run.GetState                // the run as it is
	NextAttempt  int            `json:"next_attempt"`
	Resources    plan.Resources `json:"resources"` // that the new attempt would have
	Raised       string         `json:"raised"`    // which of them are more than those of the attempt before; empty: none
}

// rehearseRetry returns what the attempt that a retry opens would have.
func (g *Gateway) rehearseRetry(ctx context.Context, c gate.Call, a RunArgs) (any, error) {
	v, err := g.Ledger.View(ctx, a.RunID)
	if err != nil || v.Run.State != run.Failed && v.Run.State != run.Cancelled {
		return run.Outline(v), err // nothing would be opened
	}
	if err := g.mayRetry(ctx, c, a.RunID); err != nil {
		return nil, err
	}
	canonical, err := g.Ledger.Params(ctx, v.Run.ParamsHash)
	if err != nil {
		return nil, err
	}
	p, err := plan.DecodeParams(canonical)
	if err != nil {
		return nil, err
	}
	out := RetryPreview{GetState: run.Outline(v), NextAttempt: v.Run.AttemptN + 1}
	if out.Resources, err = g.Sites.NextResources(ctx, a.RunID, a.Resources); err != nil {
		return nil, err
	}
	had := p.Spec.Resources
	if v.Attempt.Resources != nil {
		had = *v.Attempt.Resources
	}
	out.Raised = out.Resources.Raised(had)
	return out, nil
}

// checkInputs checks a plan's inputs against the ledger: each is an artifact of the project, with the checksum that the plan pins.
func (g *Gateway) checkInputs(ctx context.Context, c gate.Call, project string, spec plan.Spec, first before) error {
	var problems []fault.Problem
	for i, in := range spec.IO.Inputs {
		a, named := first.references[in.ArtifactID]
		var err error
		if !named {
			a, err = g.artifactOf(ctx, c, project, in.ArtifactID)
		}
		field := fmt.Sprintf("io.inputs[%d].", i)
		switch {
		case fault.Is(err, fault.NotFound):
			problems = append(problems, fault.Problem{Code: "PLAN-ARTIFACT-UNKNOWN", Field: field + "artifact_id",
				Rule: "an artifact of the run's project", Msg: "there is no " + in.ArtifactID, Next: []fault.Step{fault.Do("artifact.import")}})
		case err != nil:
			return err
		case a.SHA256 != in.ChecksumSHA256:
			problems = append(problems, fault.Problem{Code: "PLAN-CHECKSUM", Field: field + "checksum_sha256", Rule: "the artifact's own checksum",
				Msg: "the artifact has " + a.SHA256})
		case in.Directory != (a.Type == plan.Directory):
			problems = append(problems, fault.Problem{Code: "PLAN-DIRECTORY", Field: field + "directory",
				Rule: "true for an artifact of type " + plan.Directory + ", absent for any other", Msg: in.ArtifactID + " has the type " + a.Type})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fault.Invalid("the plan's inputs do not match the ledger", problems...)
}

// artifactOf reads an artifact as seen from a project: artifacts of other projects do not exist.
func (g *Gateway) artifactOf(ctx context.Context, c gate.Call, project, id string) (run.Artifact, error) {
	a, err := g.artifactFor(ctx, c, id)
	if err == nil && a.ProjectID != project {
		return run.Artifact{}, fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+id+" in this project")
	}
	return a, err
}

func (g *Gateway) logs(ctx context.Context, c gate.Call, a RunArgs) (run.LogsAnswer, error) {
	if a.Stream == "" {
		a.Stream = "log"
	}
	if a.TailLines == 0 {
		a.TailLines = 200
	}
	answer, err := g.Sites.Logs(ctx, a.RunID, a.Stream, maxTailBytes, g.identify(c, map[string]any{"tail_lines": a.TailLines}))
	if err != nil {
		return answer, err
	}
	lines := strings.SplitAfter(answer.Text, "\n")
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	answer.Text = g.Gate.Registry().Hide(c.Caller.Transport, strings.Join(lines[max(0, len(lines)-a.TailLines):], ""))
	return answer, nil
}
