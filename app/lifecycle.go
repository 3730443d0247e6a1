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
)

const (
	BuiltinVersion  = "1.0.0"
	builtinContract = "v1"
	submitToolID    = "slurm.submit"
	recollectToolID = "slurm.job.recollect"
	maxWaitSeconds  = 30
	maxTailBytes    = 256 << 10
)

const (
	runIDSchema = `{"type":"string","pattern":"^run_[0-9A-HJKMNP-TV-Z]{26}$","description":"a run id, run_…"}`
	waitSchema  = `{"type":"integer","minimum":0,"maximum":30,"description":"seconds to wait for the run to finish"}`
	// Left out, the error tells the latest attempt; so the schema does not require it.
	afterSchema   = `{"type":"integer","minimum":1,"maximum":1000000,"description":"required: the number of the attempt that failed or was cancelled; the new attempt follows it"}`
	projectSchema = `{"type":"string","minLength":1,"maxLength":128,"description":"project id (proj_…) or name; the site's default project when absent"}`
)

// object writes a strict object schema.
func object(required string, properties ...string) json.RawMessage {
	req := "[]"
	if required != "" {
		req = `["` + strings.ReplaceAll(required, " ", `","`) + `"]`
	}
	return json.RawMessage(`{"type":"object","additionalProperties":false,"required":` + req + `,"properties":{` + strings.Join(properties,
		",") + `}}`)
}

func prop(name, schema string) string { return `"` + name + `":` + schema }

// builtin fills what all gateway operations have in common.
func builtin(id, title, description string, effect gate.SideEffect, input json.RawMessage, h gate.Handler) gate.Tool {
	return gate.Tool{ID: id, Version: BuiltinVersion, ContractVersion: builtinContract, Title: title, Description: description,
		SideEffect:  effect,
		Idempotency: gate.Idempotent, Determinism: gate.BestEffort, Availability: gate.OfflineOK, Capabilities: needs(id, effect),
		Bindings: []gate.Transport{gate.Local, gate.MCP, gate.Other}, Input: input, Handle: h}
}

// handler decodes a call's arguments, which satisfy the tool's schema, into A.
func handler[A any](f func(ctx context.Context, c gate.Call, a A) (any, error)) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		var a A
		if err := c.Into(&a); err != nil {
			return nil, err
		}
		return f(ctx, c, a)
	}
}

type RunArgs struct {
	RunID       string `json:"run_id"`
	WaitSeconds int    `json:"wait_seconds,omitzero"`
	After       int    `json:"after_attempt,omitzero"`
	Reason      string `json:"reason,omitzero"`
	Stream      string `json:"stream,omitzero"`
	TailLines   int    `json:"tail_lines,omitzero"`
}

type AdoptArgs struct {
	RunID string `json:"run_id"`
	JobID string `json:"job_id"`
}

func (g *Gateway) lifecycleTools() []gate.Tool {
	return []gate.Tool{
		builtin(submitToolID, "Submit a plan", "Submits a complete plan (SlurmJobSpec v1) as one Slurm job. Submitting the same plan again "+
			"returns the same run and creates no second job.", gate.Execute,
			object("job_spec", prop("project_id", projectSchema), prop("job_spec", `{"type":"object"}`)), handler(g.submit)),
		builtin("slurm.job.get", "Show a run", "Returns the state of a run. \"Not ready\" is a normal answer: call again after "+
			"poll_after_seconds, or set wait_seconds.", gate.Read,
			object("run_id", prop("run_id", runIDSchema), prop("wait_seconds", waitSchema)), handler(func(ctx context.Context, c gate.Call,
				a RunArgs) (any, error) {
				r, err := g.Engine.Get(ctx, a.RunID, time.Duration(a.WaitSeconds)*time.Second, g.identify("slurm.job.get", nil))
				r.Reason = g.told(c, r.Reason)
				return r, err
			})),
		builtin("slurm.job.collect", "Collect a run", "Returns whether a run is finished and its artifacts by role. The gateway collects the "+
			"outputs itself when the job ends; this call changes nothing.", gate.Read,
			object("run_id", prop("run_id", runIDSchema), prop("wait_seconds", waitSchema)), handler(func(ctx context.Context, c gate.Call,
				a RunArgs) (any, error) {
				return g.Engine.Collect(ctx, a.RunID, time.Duration(a.WaitSeconds)*time.Second, g.identify("slurm.job.collect", nil))
			})),
		builtin(recollectToolID, "Collect late outputs again", "Collects the outputs of a run that is blocked as outputs_late again, now. "+
			"The gateway does this itself when the manifest appears. A run in any other phase is left unchanged.", gate.Write,
			object("run_id", prop("run_id", runIDSchema), prop("reason", `{"type":"string","maxLength":512}`)),
			handler(func(ctx context.Context, c gate.Call, a RunArgs) (any, error) {
				prov, err := g.asked(ctx, recollectToolID, a)
				if err != nil {
					return nil, err
				}
				r, err := g.Engine.Recollect(ctx, a.RunID, a.Reason)
				return RecollectAnswer{prov, r}, err
			})),
		builtin("slurm.job.cancel", "Cancel a run", "Cancels a run. If the job has not started this takes effect immediately; otherwise the "+
			"run is \"cancelling\" until Slurm has stopped the job. A finished run is left unchanged.", gate.Write,
			object("run_id", prop("run_id", runIDSchema), prop("reason", `{"type":"string","maxLength":512}`)),
			handler(func(ctx context.Context, c gate.Call, a RunArgs) (any, error) {
				prov, err := g.asked(ctx, "slurm.job.cancel", a)
				if err != nil {
					return nil, err
				}
				r, err := g.Engine.Cancel(ctx, a.RunID, a.Reason)
				return CancelAnswer{prov, r}, err
			})),
		builtin("slurm.job.retry", "Retry a run", "Open a new attempt of a run that failed or was cancelled; nothing else repeats a tool's "+
			"own failure. after_attempt is the attempt it follows, "+
			"as slurm.job.get gives it (attempt): the same call again finds the attempt opened and does nothing.", gate.Execute,
			object("run_id", prop("run_id", runIDSchema), prop("after_attempt", afterSchema), prop("reason", `{"type":"string","maxLength":512}`)),
			handler(g.retryRun)),
		builtin("slurm.job.absent", "Declare a job absent", "Settle a run whose job cannot be found: from now on no job of this attempt can "+
			"execute.", gate.Write,
			object("run_id", prop("run_id", runIDSchema), prop("reason", `{"type":"string","maxLength":512}`)),
			handler(func(ctx context.Context, c gate.Call, a RunArgs) (any, error) {
				prov, err := g.asked(ctx, "slurm.job.absent", a)
				if err != nil {
					return nil, err
				}
				r, err := g.Engine.DeclareAbsent(ctx, a.RunID, a.Reason)
				return StateAnswer{prov, r}, err
			})),
		builtin("slurm.job.adopt", "Adopt a job", "Assigns a Slurm job with the run's job name to a run in doubt.", gate.Write,
			object("run_id job_id", prop("run_id", runIDSchema), prop("job_id", `{"type":"string","pattern":"^[0-9]{1,10}$"}`)),
			handler(func(ctx context.Context, c gate.Call, a AdoptArgs) (any, error) {
				prov, err := g.asked(ctx, "slurm.job.adopt", RunArgs{RunID: a.RunID, Reason: a.JobID})
				if err != nil {
					return nil, err
				}
				r, err := g.Engine.Adopt(ctx, a.RunID, a.JobID)
				return StateAnswer{prov, r}, err
			})),
		builtin("slurm.job.logs", "Read a run's log", "Returns the end of a run's log, standard output or standard error.", gate.Read,
			object("run_id", prop("run_id", runIDSchema), prop("stream", `{"enum":["stdout","stderr","log"]}`),
				prop("tail_lines", `{"type":"integer","minimum":1,"maximum":5000}`)), handler(g.logs)),
	}
}

type SubmitArgs struct {
	ProjectID string          `json:"project_id,omitzero"`
	JobSpec   json.RawMessage `json:"job_spec"`
}

// planOrder accepts a plan unchanged: strictly decoded, allowed by policy, with known inputs.
func (g *Gateway) planOrder(ctx context.Context, c gate.Call, a SubmitArgs) (run.Order, error) {
	spec, err := plan.DecodeSpec(a.JobSpec, plan.Rules{Types: g.Domain.Types(), Image: g.Domain.Lock().CheckName})
	if err != nil {
		return run.Order{}, err
	}
	if err := g.Policy.AllowPlan(spec, true, g.Domain.Lock().NameOf(spec.Execution.Container.Image)); err != nil {
		return run.Order{}, err
	}
	project, err := g.projectOf(c, a.ProjectID)
	if err != nil {
		return run.Order{}, err
	}
	if err := charged(c, project, spec.Placement); err != nil {
		return run.Order{}, err
	}
	if err := g.checkInputs(ctx, c, project, spec); err != nil {
		return run.Order{}, err
	}
	return run.Order{ToolID: submitToolID, ToolName: "slurm_submit", ToolVersion: BuiltinVersion, ContractVersion: builtinContract,
		Params: plan.Params{ProjectID: project, Script: g.Script, Spec: spec}, PolicyHash: g.Policy.Hash, Policy: g.Policy.Snapshot,
		Actor: c.Request.Actor.Kind}, nil
}

func (g *Gateway) submit(ctx context.Context, c gate.Call, a SubmitArgs) (any, error) {
	order, err := g.planOrder(ctx, c, a)
	if err != nil {
		return nil, err
	}
	r, err := g.Engine.Submit(ctx, order)
	r.Reason = g.told(c, r.Reason)
	return r, err
}

// told returns what a run waits for, or how it ended, without the gateway's folders where the caller is a chat.
func (g *Gateway) told(c gate.Call, reason *string) *string {
	if reason == nil {
		return nil
	}
	s := g.Gate.Registry().Hide(c.Caller.Transport, *reason)
	return &s
}

func (g *Gateway) retryRun(ctx context.Context, c gate.Call, a RunArgs) (any, error) {
	r, err := g.Engine.Retry(ctx, a.RunID, a.After, a.Reason)
	r.Reason = g.told(c, r.Reason)
	return r, err
}

func (g *Gateway) rehearseSubmit(ctx context.Context, c gate.Call, a SubmitArgs) (any, error) {
	order, err := g.planOrder(ctx, c, a)
	if err != nil {
		return nil, err
	}
	return g.Engine.Preview(ctx, order)
}

// rehearseVerb returns the current state of the run that a verb would change.
func (g *Gateway) rehearseVerb(ctx context.Context, _ gate.Call, a RunArgs) (any, error) {
	v, err := g.Ledger.View(ctx, a.RunID)
	return run.Outline(v), err
}

// checkInputs checks a plan's inputs against the ledger: each is an artifact of the project, with the checksum that the plan pins.
func (g *Gateway) checkInputs(ctx context.Context, c gate.Call, project string, spec plan.Spec) error {
	var problems []fault.Problem
	for i, in := range spec.IO.Inputs {
		a, err := g.artifactOf(ctx, c, project, in.ArtifactID)
		field := fmt.Sprintf("io.inputs[%d].", i)
		switch {
		case fault.Is(err, fault.NotFound):
			problems = append(problems, fault.Problem{Code: "PLAN-ARTIFACT-UNKNOWN", Field: field + "artifact_id",
				Rule: "an artifact of the run's project", Msg: "there is no " + in.ArtifactID,
				Next: []fault.Step{fault.Do("artifact.import")}})
		case err != nil:
			return err
		case a.SHA256 != in.ChecksumSHA256:
			problems = append(problems, fault.Problem{Code: "PLAN-CHECKSUM", Field: field + "checksum_sha256", Rule: "the artifact's own checksum",
				Msg: "the artifact has " + a.SHA256})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fault.Invalid("submit", "the plan's inputs do not match the ledger", problems...)
}

// artifactOf reads an artifact as seen from a project: artifacts of other projects do not exist.
func (g *Gateway) artifactOf(ctx context.Context, c gate.Call, project, id string) (run.Artifact, error) {
	a, err := g.artifactFor(ctx, c, id)
	if err == nil && a.ProjectID != project {
		return run.Artifact{}, fault.New(fault.NotFound, "artifactOf", "artifact_not_found", "there is no artifact "+id+" in this project")
	}
	return a, err
}

func (g *Gateway) logs(ctx context.Context, c gate.Call, a RunArgs) (any, error) {
	if a.Stream == "" {
		a.Stream = "log"
	}
	if a.TailLines == 0 {
		a.TailLines = 200
	}
	answer, err := g.Engine.Logs(ctx, a.RunID, a.Stream, maxTailBytes, g.identify("slurm.job.logs", map[string]any{"tail_lines": a.TailLines}))
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(answer.Text, "\n")
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	answer.Text = g.Gate.Registry().Hide(c.Caller.Transport, strings.Join(lines[max(0, len(lines)-a.TailLines):], ""))
	return answer, nil
}
