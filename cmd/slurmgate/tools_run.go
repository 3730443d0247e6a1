package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
)

const (
	builtinVersion  = "1.0.0"
	builtinContract = "v1"
	submitToolID    = "slurm.submit"
	maxWaitSeconds  = 30
	maxTailBytes    = 256 << 10
)

const (
	runIDSchema   = `{"type":"string","pattern":"^run_[0-9A-HJKMNP-TV-Z]{26}$","description":"a run id, run_…"}`
	waitSchema    = `{"type":"integer","minimum":0,"maximum":30,"description":"seconds to wait for the run to finish"}`
	projectSchema = `{"type":"string","minLength":1,"maxLength":128,"description":"project id (proj_…) or name; the site's default project when absent"}`
)

// object writes a strict object schema.
func object(required string, properties ...string) json.RawMessage {
	req := "[]"
	if required != "" {
		req = `["` + strings.ReplaceAll(required, " ", `","`) + `"]`
	}
	return json.RawMessage(`{"type":"object","additionalProperties":false,"required":` + req + `,"properties":{` + strings.Join(properties, ",") + `}}`)
}

func prop(name, schema string) string { return `"` + name + `":` + schema }

// builtin fills what all gateway operations have in common.
func builtin(id, title, description string, effect gate.SideEffect, input json.RawMessage, h gate.Handler) gate.Tool {
	return gate.Tool{ID: id, Version: builtinVersion, ContractVersion: builtinContract, Title: title, Description: description, SideEffect: effect,
		Idempotency: gate.Idempotent, Determinism: gate.BestEffort, Availability: gate.OfflineOK, Capabilities: needs(id, effect),
		Bindings: []gate.Transport{gate.Local, gate.MCP, gate.Other}, Input: input, Handle: h}
}

// handler decodes a call's arguments, which satisfy the tool's schema, into A.
func handler[A any](f func(ctx context.Context, c gate.Call, a A) (any, error)) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		var a A
		if err := plan.Decode(c.Args, &a); err != nil {
			return nil, err
		}
		return f(ctx, c, a)
	}
}

type runArgs struct {
	RunID       string `json:"run_id"`
	WaitSeconds int    `json:"wait_seconds,omitzero"`
	Reason      string `json:"reason,omitzero"`
	Stream      string `json:"stream,omitzero"`
	TailLines   int    `json:"tail_lines,omitzero"`
}

type adoptArgs struct {
	RunID string `json:"run_id"`
	JobID string `json:"job_id"`
}

// look is the identity of a call that looks at a run (ARC-11).
func (g *gateway) look(toolID string) plan.Identity {
	return plan.Identity{ToolName: strings.ReplaceAll(toolID, ".", "_"), ContractVersion: builtinContract, PolicyHash: g.policy.Hash}
}

func (g *gateway) lifecycleTools() []gate.Tool {
	return []gate.Tool{
		builtin(submitToolID, "Submit a plan", "Submit a whole plan (SlurmJobSpec v1) as one Slurm job. The same plan again is the same run; nothing is ever submitted twice.", gate.Execute,
			object("job_spec", prop("project_id", projectSchema), prop("job_spec", `{"type":"object"}`)), handler(g.submit)),
		builtin("slurm.job.get", "Look at a run", "State of a run, from the ledger. \"Not ready\" is a normal answer: look again after poll_after_seconds.", gate.Read,
			object("run_id", prop("run_id", runIDSchema), prop("wait_seconds", waitSchema)), handler(func(ctx context.Context, c gate.Call, a runArgs) (any, error) {
				return g.engine.Get(ctx, a.RunID, time.Duration(a.WaitSeconds)*time.Second, g.look("slurm.job.get"))
			})),
		builtin("slurm.job.collect", "Collect a run", "Whether a run is finished, and its artifacts by role. The gateway collects by itself when the job ends.", gate.Read,
			object("run_id", prop("run_id", runIDSchema), prop("wait_seconds", waitSchema)), handler(func(ctx context.Context, c gate.Call, a runArgs) (any, error) {
				return g.engine.Collect(ctx, a.RunID, time.Duration(a.WaitSeconds)*time.Second, g.look("slurm.job.collect"))
			})),
		builtin("slurm.job.cancel", "Cancel a run", "Cancel a run. Before its job has started this is definite at once; a finished run stays as it is.", gate.Write,
			object("run_id", prop("run_id", runIDSchema), prop("reason", `{"type":"string","maxLength":512}`)), handler(func(ctx context.Context, c gate.Call, a runArgs) (any, error) {
				return g.engine.Cancel(ctx, a.RunID, a.Reason)
			})),
		builtin("slurm.job.retry", "Retry a run", "Open a new attempt of a run that failed or was cancelled. This is the only way a tool's own failure is repeated.", gate.Execute,
			object("run_id", prop("run_id", runIDSchema), prop("reason", `{"type":"string","maxLength":512}`)), handler(func(ctx context.Context, c gate.Call, a runArgs) (any, error) {
				return g.engine.Retry(ctx, a.RunID, a.Reason)
			})),
		builtin("slurm.job.absent", "Declare a job absent", "Settle a run whose job cannot be found: from now on no job of this attempt can execute.", gate.Write,
			object("run_id", prop("run_id", runIDSchema), prop("reason", `{"type":"string","maxLength":512}`)), handler(func(ctx context.Context, c gate.Call, a runArgs) (any, error) {
				return g.engine.DeclareAbsent(ctx, a.RunID, a.Reason)
			})),
		builtin("slurm.job.adopt", "Adopt a job", "Give a run in doubt the Slurm job that has its name.", gate.Write,
			object("run_id job_id", prop("run_id", runIDSchema), prop("job_id", `{"type":"string","pattern":"^[0-9]{1,10}$"}`)), handler(func(ctx context.Context, c gate.Call, a adoptArgs) (any, error) {
				return g.engine.Adopt(ctx, a.RunID, a.JobID)
			})),
		builtin("slurm.job.logs", "Read a run's log", "The end of a run's log, standard output or standard error.", gate.Read,
			object("run_id", prop("run_id", runIDSchema), prop("stream", `{"enum":["stdout","stderr","log"]}`), prop("tail_lines", `{"type":"integer","minimum":1,"maximum":5000}`)), handler(g.logs)),
		builtin("run.list", "List runs", "Runs, newest first.", gate.Read, object("", prop("state", `{"enum":["queued","running","blocked","succeeded","failed","cancelled"]}`),
			prop("tool_id", `{"type":"string","maxLength":128}`), prop("project_id", projectSchema), prop("cursor", `{"type":"string","maxLength":256}`),
			prop("limit", `{"type":"integer","minimum":1,"maximum":200}`)), handler(g.listRuns)),
		builtin("run.show", "Show a run", "The whole story of a run: identity, plan, policy, inputs, attempts, sends, events, outputs.", gate.Read,
			object("run_id", prop("run_id", runIDSchema)), handler(g.showRun)),
	}
}

type submitArgs struct {
	ProjectID string          `json:"project_id,omitzero"`
	JobSpec   json.RawMessage `json:"job_spec"`
}

// submit takes a plan as it is: strictly decoded, allowed by policy, its inputs known.
func (g *gateway) submit(ctx context.Context, c gate.Call, a submitArgs) (any, error) {
	spec, err := plan.DecodeSpec(a.JobSpec, plan.Rules{Types: g.domain.Types()})
	if err != nil {
		return nil, err
	}
	if err := g.policy.AllowPlan(spec, true, g.domain.Lock().NameOf(spec.Execution.Container.Image)); err != nil {
		return nil, err
	}
	project := g.project(a.ProjectID)
	if err := g.checkInputs(ctx, project, spec); err != nil {
		return nil, err
	}
	return g.engine.Submit(ctx, run.Order{ToolID: submitToolID, ToolName: "slurm_submit", ToolVersion: builtinVersion, ContractVersion: builtinContract,
		Params: plan.Params{ProjectID: project, Script: slurm.ScriptVersion, Spec: spec}, PolicyHash: g.policy.Hash, Policy: g.policy.Snapshot, Actor: c.Request.Actor.Kind})
}

// checkInputs holds a plan's inputs against the ledger: each is an artifact of the project, with the
// checksum the plan pins.
func (g *gateway) checkInputs(ctx context.Context, project string, spec plan.Spec) error {
	var problems []fault.Problem
	for i, in := range spec.IO.Inputs {
		a, err := g.artifactOf(ctx, project, in.ArtifactID)
		field := fmt.Sprintf("io.inputs[%d].", i)
		switch {
		case fault.Is(err, fault.NotFound):
			problems = append(problems, fault.Problem{Code: "PLAN-ARTIFACT-UNKNOWN", Field: field + "artifact_id", Rule: "an artifact of the run's project", Msg: "there is no " + in.ArtifactID,
				Hint: "slurmgate artifact import FILE"})
		case err != nil:
			return err
		case a.SHA256 != in.ChecksumSHA256:
			problems = append(problems, fault.Problem{Code: "PLAN-CHECKSUM", Field: field + "checksum_sha256", Rule: "the artifact's own checksum", Msg: "the artifact has " + a.SHA256})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fault.Invalid("submit", "the plan's inputs are not what the ledger knows", problems...)
}

// artifactOf reads an artifact as seen from a project: another project's is not there.
func (g *gateway) artifactOf(ctx context.Context, project, id string) (run.Artifact, error) {
	a, err := g.ledger.Artifact(ctx, id)
	if err == nil && a.ProjectID != project {
		return run.Artifact{}, fault.New(fault.NotFound, "artifactOf", "artifact_not_found", "there is no artifact "+id+" in this project")
	}
	return a, err
}

func (g *gateway) logs(ctx context.Context, c gate.Call, a runArgs) (any, error) {
	if a.Stream == "" {
		a.Stream = "log"
	}
	if a.TailLines == 0 {
		a.TailLines = 200
	}
	answer, err := g.engine.Logs(ctx, a.RunID, a.Stream, maxTailBytes, g.look("slurm.job.logs"))
	if err != nil {
		return nil, err
	}
	lines := strings.SplitAfter(answer.Text, "\n")
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	answer.Text = strings.Join(lines[max(0, len(lines)-a.TailLines):], "")
	return answer, nil
}

// runRow is one run in a list.
type runRow struct {
	RunID      string     `json:"run_id"`
	ToolID     string     `json:"tool_id"`
	ProjectID  string     `json:"project_id"`
	State      run.State  `json:"state"`
	Phase      run.Phase  `json:"phase"`
	Reason     string     `json:"reason"`
	SlurmJobID string     `json:"slurm_job_id"`
	CreatedAt  time.Time  `json:"created_at"`
	FinishedAt *time.Time `json:"finished_at"`
}

type listArgs struct {
	State     run.State `json:"state,omitzero"`
	ToolID    string    `json:"tool_id,omitzero"`
	ProjectID string    `json:"project_id,omitzero"`
	Cursor    string    `json:"cursor,omitzero"`
	Limit     int       `json:"limit,omitzero"`
}

type runList struct {
	Runs   []runRow `json:"runs"`
	Cursor *string  `json:"cursor"`
}

func (g *gateway) listRuns(ctx context.Context, _ gate.Call, a listArgs) (any, error) {
	f := ledger.Filter{State: a.State, ToolID: a.ToolID, Cursor: a.Cursor, Limit: a.Limit}
	if a.ProjectID != "" {
		f.ProjectID = g.project(a.ProjectID)
	}
	page, err := g.ledger.List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := runList{Runs: []runRow{}}
	if page.Cursor != "" {
		out.Cursor = &page.Cursor
	}
	for _, v := range page.Runs {
		out.Runs = append(out.Runs, runRow{v.Run.ID, v.Run.ToolID, v.Run.ProjectID, v.Run.State, v.Run.Phase, v.Run.Reason, v.Submission.JobID, v.Run.CreatedAt, v.Run.FinishedAt})
	}
	return out, nil
}

// runStory is everything the ledger knows about a run.
type runStory struct {
	RunID           string          `json:"run_id"`
	ToolID          string          `json:"tool_id"`
	ToolVersion     string          `json:"tool_version"`
	ContractVersion string          `json:"contract_version"`
	ProjectID       string          `json:"project_id"`
	PolicyHash      string          `json:"policy_hash"`
	ParamsHash      string          `json:"params_hash"`
	PlanHash        string          `json:"plan_hash"`
	State           run.State       `json:"state"`
	Phase           run.Phase       `json:"phase"`
	Reason          string          `json:"reason"`
	Detail          string          `json:"detail"`
	Attempt         int             `json:"attempt"`
	JobName         string          `json:"job_name"`
	SlurmJobID      string          `json:"slurm_job_id"`
	Cluster         string          `json:"cluster"`
	SlurmState      string          `json:"slurm_state"`
	Node            string          `json:"node"`
	ExitCode        *int            `json:"exit_code"`
	Usage           json.RawMessage `json:"usage"`
	CreatedAt       time.Time       `json:"created_at"`
	StartedAt       *time.Time      `json:"started_at"`
	FinishedAt      *time.Time      `json:"finished_at"`
	Params          json.RawMessage `json:"params"`
	Inputs          []artifactDoc   `json:"inputs"`
	Outputs         []artifactDoc   `json:"outputs"`
	Sends           []sendDoc       `json:"sends"`
	Events          []ledger.Entry  `json:"events"`
	Warnings        []string        `json:"warnings"`
	Workspace       string          `json:"workspace"` // shown to the shell only; never to a chat (ARC-01)
}

type sendDoc struct {
	Send      int             `json:"send"`
	StartedAt time.Time       `json:"started_at"`
	EndedAt   *time.Time      `json:"ended_at"`
	Outcome   run.SendOutcome `json:"outcome"`
	Text      string          `json:"text"`
}

func (g *gateway) showRun(ctx context.Context, _ gate.Call, a runArgs) (any, error) {
	v, err := g.ledger.View(ctx, a.RunID)
	if err != nil {
		return nil, err
	}
	s := runStory{RunID: v.Run.ID, ToolID: v.Run.ToolID, ToolVersion: v.Run.ToolVersion, ContractVersion: v.Run.ContractVersion, ProjectID: v.Run.ProjectID,
		PolicyHash: v.Run.PolicyHash, ParamsHash: v.Run.ParamsHash, PlanHash: v.Run.PlanHash, State: v.Run.State, Phase: v.Run.Phase, Reason: v.Run.Reason, Detail: v.Run.Detail,
		Attempt: v.Run.AttemptN, JobName: v.Submission.JobName, SlurmJobID: v.Submission.JobID, Cluster: v.Submission.Cluster, SlurmState: v.Attempt.SlurmState, Node: v.Attempt.Node,
		ExitCode: v.Run.ExitCode, Usage: v.Attempt.Usage, CreatedAt: v.Run.CreatedAt, StartedAt: v.Attempt.StartedAt, FinishedAt: v.Run.FinishedAt, Warnings: v.Run.Warnings,
		Workspace: g.engine.Stager.RunDir(v.Run.ID), Sends: []sendDoc{}}
	if s.Usage == nil {
		s.Usage = json.RawMessage("null")
	}
	if s.Params, err = g.ledger.Params(ctx, v.Run.ParamsHash); err != nil {
		return nil, err
	}
	inputs, err := g.ledger.Inputs(ctx, v.Run.ID)
	if err != nil {
		return nil, err
	}
	outputs, err := g.ledger.Outputs(ctx, v.Run.ID)
	if err != nil {
		return nil, err
	}
	s.Inputs, s.Outputs = linkedDocs(inputs), linkedDocs(outputs)
	sends, err := g.ledger.Sends(ctx, v.Submission.Token)
	if err != nil {
		return nil, err
	}
	for _, k := range sends {
		s.Sends = append(s.Sends, sendDoc{k.K, k.StartedAt, k.EndedAt, k.Outcome, k.Text})
	}
	s.Events, err = g.ledger.Events(ctx, v.Run.ID)
	return s, err
}
