package app

import (
	"cmp"
	"context"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
)

// maxTraced bounds the artifacts of a trace, because people and models read it. A call may ask for fewer.
const maxTraced = 200

// traces returns the operation that shows where an artifact came from.
func (g *Gateway) traces() Operation {
	return Operation{
		ID: "artifact.trace", Title: "Show where an artifact came from", Verb: "trace",
		Description: "Returns which run made an artifact: its tool, version, image digest and inputs, and " +
			"what made those, back to the imports: " +
			"each artifact once, the one asked for first, at most limit of them (default 200).",
		Chat:   gate.Chat{Has: true, Bound: "limit", Most: 4},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.trace),
	}
}

// TraceArgs are the arguments of artifact.trace.
type TraceArgs struct {
	ArtifactArgs
	Limit int `json:"limit,omitzero" min:"1" max:"200" kong:"-"` // 0: maxTraced
}

// Traced is an artifact and its origin.
type Traced struct {
	ArtifactID string     `json:"artifact_id"`
	Type       string     `json:"type"`
	Label      string     `json:"label"`
	SizeBytes  int64      `json:"size_bytes"`
	SHA256     string     `json:"checksum_sha256"`
	Origin     string     `json:"origin" enum:"run,import,reference,arguments"`
	Reference  string     `json:"reference,omitempty"` // the site's name for it
	Removed    string     `json:"removed,omitempty"`   // the removal that deleted its bytes
	MadeBy     *TracedRun `json:"made_by,omitempty" help:"absent: no run made it"`
	CutOff     bool       `json:"cut_off,omitempty"` // made by a run that is left out because of the limit
}

// TracedRun is the run that made an artifact.
type TracedRun struct {
	RunID       string        `json:"run_id"`
	OutputRole  string        `json:"output_role"`
	ToolID      string        `json:"tool_id"`
	ToolVersion string        `json:"tool_version"`
	Image       string        `json:"image,omitempty"` // sha256:…; absent: a call of a service worker
	ParamsHash  string        `json:"params_hash"`
	PolicyHash  string        `json:"policy_hash"`
	Site        string        `json:"site"`
	ExecutedAs  string        `json:"executed_as,omitempty"`
	FinishedAt  *time.Time    `json:"finished_at"`
	Inputs      []TracedInput `json:"inputs"` // at most the call's limit
	InputsTotal int           `json:"inputs_total"`
}

// TracedInput is an input of a run. Its artifact is among the traced ones, unless the trace was cut off.
type TracedInput struct {
	Role       string `json:"role"`
	ArtifactID string `json:"artifact_id"`
}

// TraceAnswer is the answer of artifact.trace.
type TraceAnswer struct {
	CallRunID
	Of       string   `json:"traced_artifact_id"`
	Traced   []Traced `json:"traced"`   // each artifact once, the requested one first
	Complete bool     `json:"complete"` // no artifact is cut off
}

func (g *Gateway) trace(ctx context.Context, _ gate.Call, a TraceArgs) (out TraceAnswer, err error) {
	out = TraceAnswer{Of: a.ArtifactID, Complete: true}
	most := cmp.Or(a.Limit, maxTraced)
	x, err := g.Ledger.Artifact(ctx, a.ArtifactID)
	if fault.CodeOf(err) == ledger.RemovedByRequest {
		err = nil
	}
	if err != nil {
		return out, err
	}
	todo, seen := []run.Artifact{x}, map[string]bool{x.ID: true}
	for len(todo) > 0 {
		x, todo = todo[0], todo[1:]
		n := Traced{ArtifactID: x.ID, Type: x.Type, Label: x.Label, SizeBytes: x.SizeBytes, SHA256: x.SHA256, Removed: x.Removed,
			Origin: origin(x.Source)}
		docs := []ArtifactDoc{docOf(x)}
		if err := g.nameReferences(ctx, docs, x.ProjectID); err != nil {
			return out, err
		}
		n.Reference = docs[0].Reference
		if plan.IsRunID(x.Source) && len(out.Traced) > 0 && len(seen) >= most {
			n.CutOff, out.Complete = true, false
		} else if plan.IsRunID(x.Source) {
			inputs, err := g.tracedRun(ctx, x, &n)
			if err != nil {
				return out, err
			}
			for _, in := range inputs {
				switch {
				case seen[in.ArtifactID]:
				case len(seen) < most:
					seen[in.ArtifactID], todo = true, append(todo, in.Artifact)
				default:
					out.Complete = false
				}
			}
			n.MadeBy.Inputs = n.MadeBy.Inputs[:min(len(inputs), most)]
		}
		out.Traced = append(out.Traced, n)
	}
	return out, nil
}

// tracedRun adds the run that made an artifact, and returns the run's inputs.
func (g *Gateway) tracedRun(ctx context.Context, a run.Artifact, n *Traced) (inputs []run.Output, err error) {
	of, err := g.Ledger.RunRecord(ctx, a.Source)
	if err != nil {
		return nil, err
	}
	p, err := plan.DecodeParams(of.Params)
	if err != nil {
		return nil, err
	}
	r := &TracedRun{RunID: of.Run.ID, ToolID: of.Run.ToolID, ToolVersion: of.Run.ToolVersion, ParamsHash: of.Run.ParamsHash,
		PolicyHash: of.Run.PolicyHash, Site: of.Run.Site, ExecutedAs: of.Run.ExecutedAs, FinishedAt: of.Run.FinishedAt,
		Image: p.Spec.Execution.Container.Image, Inputs: []TracedInput{}}
	for _, o := range of.Outputs {
		if o.ArtifactID == a.ID {
			r.OutputRole = o.Role
		}
	}
	for _, in := range of.Inputs {
		r.Inputs = append(r.Inputs, TracedInput{in.Role, in.ArtifactID})
	}
	r.InputsTotal, n.MadeBy = len(of.Inputs), r
	return of.Inputs, nil
}

// origin returns the kind of an artifact's origin.
func origin(source string) string {
	switch {
	case plan.IsRunID(source):
		return "run"
	case source == "import":
		return "import"
	case strings.HasPrefix(source, "arguments of "):
		return "arguments"
	}
	return "reference"
}
