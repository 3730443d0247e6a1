package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/slurm"
	"slurmgate/toolpack"
)

// packTools makes one tool of each toolpack.
func (g *gateway) packTools() []gate.Tool {
	var out []gate.Tool
	egress := map[string][]string{}
	for _, m := range g.domain.Tools() {
		egress[m.ToolID] = m.EgressAllowlist
	}
	for _, p := range g.domain.Packs().List() {
		determinism := gate.NonDeterministic
		if p.Deterministic() {
			determinism = gate.Deterministic
		}
		out = append(out, gate.Tool{ID: p.ID(), Version: p.Version(), ContractVersion: p.ContractVersion(), Title: p.DisplayName(), Description: p.Description(),
			SideEffect: gate.Execute, Idempotency: gate.Idempotent, Determinism: determinism, Availability: gate.OfflineOK, Capabilities: []string{gate.CapSlurm},
			Bindings: []gate.Transport{gate.Local, gate.MCP, gate.Other}, Egress: append(slices.Clone(g.policy.EgressAllowlist), egress[p.ID()]...), Input: p.InputSchema(), Output: gate.SchemaOf[run.SubmitAnswer](), RunOutput: p.OutputSchema(), Handle: g.packHandler(p), DryRun: g.packRehearsal(p)})
	}
	return out
}

// catalogTools show the tools.
func (g *gateway) catalogTools() []gate.Tool {
	return []gate.Tool{
		builtin("tool.list", "List tools", "The tools of this gateway.", gate.Read, object("", prop("all", `{"type":"boolean","description":"gateway operations too"}`)), handler(g.listTools)),
		builtin("tool.show", "Show a tool", "A tool's contract: what goes in, what comes out.", gate.Read, object("tool_id", prop("tool_id", `{"type":"string","maxLength":128}`)), handler(g.showTool))}
}

// packOrder turns a call of a pack into a canonical plan and has policy check it. The run belongs to the project of its inputs.
func (g *gateway) packOrder(ctx context.Context, c gate.Call, p *toolpack.Pack) (run.Order, []toolpack.Made, error) {
	project, err := g.inputProject(ctx, c)
	if err != nil {
		return run.Order{}, nil, err
	}
	look := func(id string) (toolpack.ArtifactInfo, error) {
		a, err := g.artifactFor(ctx, c, id)
		if err != nil {
			return toolpack.ArtifactInfo{}, err
		}
		if a.ProjectID != project {
			return toolpack.ArtifactInfo{}, fault.New(fault.NotFound, "tool", "artifact_not_found", "there is no artifact "+id+" in the project of the other inputs")
		}
		return toolpack.ArtifactInfo{SHA256: a.SHA256, Type: a.Type, SizeBytes: a.SizeBytes, Label: a.Label}, nil
	}
	canonical, err := p.Canonicalize(c.Args, toolpack.Env{Image: g.domain.Lock().Digest, Artifact: look, Bind: g.site.BindVersion,
		Project: func() string { return project }, Passthrough: g.policy.Env, Local: g.pickLocal(p.ToolName(), p.Image())})
	if err != nil {
		return run.Order{}, nil, err
	}
	spec, at := g.place(c, project, canonical.Spec)
	if err := g.allowOrder(spec, p.ToolName(), p.Image(), canonical.InputBytes); err != nil {
		return run.Order{}, nil, err
	}
	definition, err := p.Definition()
	if err != nil {
		return run.Order{}, nil, err
	}
	binds := canonical.Extra.Binds
	order := run.Order{ToolID: p.ID(), ToolName: p.ToolName(), ToolVersion: p.Version(), ContractVersion: p.ContractVersion(), PackHash: p.Hash(), Pack: definition,
		Params: canonical.Params(project, slurm.ScriptVersion), Placement: at, Warnings: bindWarnings(binds),
		PolicyHash: g.policy.Hash, Policy: g.policy.Snapshot, Actor: c.Request.Actor.Kind}
	return order, canonical.Made, charged(c, project, spec)
}

// place adds to a pack's plan what it leaves to the site and to the caller: that is what runs, and what policy judges. at is nil for a plan that
// runs on the gateway's own host.
func (g *gateway) place(c gate.Call, project string, spec plan.Spec) (placed plan.Spec, at *plan.Placement) {
	if spec.Local() {
		return spec, nil
	}
	site := siteDefaults(g.site)
	if own := c.Caller.Account(project); own != "" {
		site.Account = own
	}
	spec.Placement = spec.Placement.Resolve(site)
	return spec, &spec.Placement
}

// packHandler submits the plan of a call.
func (g *gateway) packHandler(p *toolpack.Pack) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		order, made, err := g.packOrder(ctx, c, p)
		if err != nil {
			return nil, err
		}
		if err := g.keep(ctx, p.ID(), order.Params.ProjectID, made); err != nil {
			return nil, err
		}
		r, err := g.engine.Submit(ctx, order)
		r.Reason = g.told(c, r.Reason)
		return r, err
	}
}

// packRehearsal returns the plan of a call and the job script, without submitting.
func (g *gateway) packRehearsal(p *toolpack.Pack) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		order, _, err := g.packOrder(ctx, c, p)
		if err != nil {
			return nil, err
		}
		return g.engine.Preview(ctx, order)
	}
}

// stillAllowed checks policy again before a run executes: an earlier policy may have admitted it.
func (g *gateway) stillAllowed(toolID string, p plan.Params) error {
	tool := strings.ReplaceAll(toolID, ".", "_")
	if err := g.policy.AllowTool(tool); err != nil {
		return err
	}
	if err := sameBinds(g.site, p.Tool.Asked()); err != nil {
		return err
	}
	if image := g.domain.Lock().NameOf(p.Spec.Execution.Container.Image); p.Spec.Local() {
		return g.policy.AllowLocal(p.Spec, tool, image, -1)
	}
	return g.policy.AllowPlan(p.Spec, p.Tool == nil, g.domain.Lock().NameOf(p.Spec.Execution.Container.Image))
}

// keep stores the artifacts that a call itself creates before the run that has them as inputs.
func (g *gateway) keep(ctx context.Context, tool, project string, made []toolpack.Made) error {
	for _, m := range made {
		sum, size, err := g.store.Put(ctx, bytes.NewReader(m.Bytes), int64(len(m.Bytes)))
		if err != nil {
			return err
		}
		doc := run.Artifact{ID: m.ID, ProjectID: project, SHA256: sum, Type: m.Type, Label: m.Label, SizeBytes: size, Source: "arguments of " + tool}
		if _, _, err := g.ledger.AddArtifact(ctx, doc); err != nil {
			return err
		}
	}
	return nil
}

type toolRow struct {
	ToolID      string   `json:"tool_id"`
	Version     string   `json:"tool_version"`
	DisplayName string   `json:"display_name"`
	Description string   `json:"description"`
	SideEffect  string   `json:"side_effect"`
	Caps        []string `json:"capabilities"`
}

type toolDoc struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	toolRow
	ContractVersion string          `json:"contract_version"`
	Determinism     string          `json:"determinism"`
	InputSchema     json.RawMessage `json:"input_schema"`
	OutputSchema    json.RawMessage `json:"output_schema"`     // of the answer to the call
	RunOutputSchema json.RawMessage `json:"run_output_schema"` // of result_json.output of the finished run
	Inputs          []packInput     `json:"inputs"`
	Outputs         []packOutput    `json:"outputs"`
	Image           *string         `json:"image"`
}

type packInput struct {
	Role  string   `json:"role"`
	Param string   `json:"param"`
	Types []string `json:"types"`
}

type packOutput struct {
	Role  string `json:"role"`
	Type  string `json:"type"`
	Label string `json:"label"`
}

type toolArgs struct {
	ToolID string `json:"tool_id,omitzero"`
	All    bool   `json:"all,omitzero"`
}

type toolList struct {
	ProvenanceRunID string    `json:"provenance_run_id"`
	DomainID        string    `json:"domain_id"`
	Version         string    `json:"version"`
	Total           int       `json:"total"`
	Tools           []toolRow `json:"tools"`
}

// catalogParams are the canonical params of a call that lists or shows tools: they change only with the domain's catalogue.
type catalogParams struct {
	DomainID string `json:"domain_id"`
	Version  string `json:"version"`
	All      bool   `json:"all"`
	ToolID   string `json:"tool_id"`
}

func (g *gateway) catalogLook(ctx context.Context, toolID string, a toolArgs) (string, error) {
	return g.provenance(ctx, toolID, catalogParams{g.domain.ID(), g.domain.CatalogVersion(), a.All, a.ToolID})
}

func rowOf(t gate.Tool) toolRow {
	return toolRow{t.ID, t.Version, t.Title, t.Description, string(t.SideEffect), t.Capabilities}
}

func (g *gateway) listTools(ctx context.Context, _ gate.Call, a toolArgs) (any, error) {
	prov, err := g.catalogLook(ctx, "tool.list", a)
	if err != nil {
		return nil, err
	}
	out := toolList{ProvenanceRunID: prov, DomainID: g.domain.ID(), Version: g.domain.CatalogVersion(), Tools: []toolRow{}}
	for _, t := range g.gate.Registry().List() {
		if a.All || !contains(t.Capabilities, "gateway") {
			out.Tools = append(out.Tools, rowOf(t))
		}
	}
	out.Total = len(out.Tools)
	return out, nil
}

func (g *gateway) showTool(ctx context.Context, _ gate.Call, a toolArgs) (any, error) {
	t, err := g.gate.Registry().Find(a.ToolID)
	if err != nil {
		return nil, err
	}
	prov, err := g.catalogLook(ctx, "tool.show", a)
	if err != nil {
		return nil, err
	}
	d := toolDoc{ProvenanceRunID: prov, toolRow: rowOf(t), ContractVersion: t.ContractVersion, Determinism: t.Determinism, InputSchema: t.Input, OutputSchema: orNull(t.Output), RunOutputSchema: orNull(t.RunOutput), Inputs: []packInput{}, Outputs: []packOutput{}}
	if p, err := g.domain.Packs().Get(t.ID); err == nil {
		for _, in := range p.Inputs() {
			d.Inputs = append(d.Inputs, packInput{in.Role, in.Param, in.Types})
		}
		for _, o := range p.Outputs() {
			d.Outputs = append(d.Outputs, packOutput{o.Role, o.Type, o.Label})
		}
		if img := p.Image(); img != "" {
			digest, _ := g.domain.Lock().Digest(img)
			ref := img + "@" + digest
			d.Image = &ref
		}
	}
	return d, nil
}

func orNull(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return json.RawMessage("null")
	}
	return b
}
