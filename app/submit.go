package app

import (
	"context"
	"encoding/json"
	"fmt"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// SubmitArgs are the arguments of slurm.submit.
type SubmitArgs struct {
	ProjectID string          `json:"project_id,omitzero" kind:"project"`
	JobSpec   json.RawMessage `json:"job_spec" kind:"object"`
}

// planOrder accepts a plan unchanged except for the names of references: strictly decoded, allowed by policy, with
// known inputs.
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
		PolicyHash:      g.Policy.Hash, Policy: g.Policy.Snapshot, Actor: c.Request.Actor.Kind, Asking: g.asking(ctx, c)}, why, options)
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
	if err := c.MayStart(order.ToolName); err != nil {
		return run.SubmitAnswer{}, err
	}
	r, err := g.Sites.Submit(ctx, order)
	return g.submitted(c, r, err)
}

func (g *Gateway) rehearseSubmit(ctx context.Context, c gate.Call, a SubmitArgs) (run.Preview, error) {
	order, _, err := g.planOrder(ctx, c, a)
	if err != nil {
		return run.Preview{}, err
	}
	return g.Sites.Preview(ctx, order)
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
				Rule: "an artifact of the run's project",
				Msg:  "the project has no artifact " + in.ArtifactID, Next: []fault.Step{fault.Do("artifact.import")}})
		case err != nil:
			return err
		case a.SHA256 != in.ChecksumSHA256:
			problems = append(problems, fault.Problem{Code: "PLAN-CHECKSUM", Field: field + "checksum_sha256", Rule: "the artifact's own checksum",
				Msg: "the checksum of " + in.ArtifactID + " is " + a.SHA256})
		case in.Directory != (a.Type == plan.Directory):
			problems = append(problems, fault.Problem{Code: "PLAN-DIRECTORY", Field: field + "directory",
				Rule: "true for an artifact of type " + plan.Directory + ", absent for any other",
				Msg: fmt.Sprintf("directory is %t, but %s has the type %s",
					in.Directory, in.ArtifactID, a.Type)})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fault.Invalid("the plan's inputs do not match the ledger", problems...)
}

// artifactOf reads an artifact as seen from a project: it does not find artifacts of other projects.
func (g *Gateway) artifactOf(ctx context.Context, c gate.Call, project, id string) (run.Artifact, error) {
	a, err := g.artifactFor(ctx, c, id)
	if err == nil && a.ProjectID != project {
		return run.Artifact{}, fault.New(fault.NotFound, "artifact_not_found", "there is no artifact "+id+" in this project")
	}
	return a, err
}
