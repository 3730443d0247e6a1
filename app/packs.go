package app

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// jobPacks returns the toolpacks whose calls become jobs.
func (g *Gateway) jobPacks() []*toolpack.Pack {
	services := g.services()
	return slices.DeleteFunc(g.Domain.Packs().List(), func(p *toolpack.Pack) bool {
		return slices.ContainsFunc(services, func(s toolpack.Service) bool { return s.ID == p.ID() })
	})
}

// packTools returns a tool for each toolpack whose calls become jobs.
func (g *Gateway) packTools() []gate.Tool {
	var out []gate.Tool
	Listed := map[string]toolpack.ManifestTool{}
	for _, m := range g.Domain.Tools() {
		Listed[m.ToolID] = m
	}
	for _, p := range g.jobPacks() {
		input, _ := g.inputOf(p)
		t := gate.Tool{Says: blocks.Reader[run.SubmitAnswer](), SaysDryRun: blocks.Reader[run.Preview](),
			ID: p.ID(), ToolName: p.ToolName(), Version: p.Version(), ContractVersion: p.ContractVersion(), Title: p.DisplayName(),
			Description: p.Description(),
			SideEffect:  gate.Execute, Idempotency: gate.Idempotent, Determinism: gate.NonDeterministic, Availability: gate.OfflineOK,
			Capabilities: []string{gate.CapSlurm}, Purposes: p.Capabilities(), Bindings: []gate.Transport{gate.Local, gate.MCP, gate.Other},
			RunTimeoutSec: Listed[p.ID()].TimeoutSec, Input: input, Output: gate.SchemaOf[run.SubmitAnswer](), RunOutput: p.OutputSchema(),
			Names: g.namesIn(p.ID(), paramsOf(p), func(ctx context.Context, c gate.Call) (string, error) {
				return g.inputProject(ctx, c, paramsOf(p))
			}),
			Handle: g.packHandler(p), DryRun: g.packRehearsal(p), Covers: func(ctx context.Context, c gate.Call) (gate.Coverage, error) {
				order, first, err := g.packOrder(ctx, c, p)
				if err != nil || len(first.promised) > 0 {
					return gate.Coverage{Waits: true}, err
				}
				return g.coversOrder(order)
			}}
		if p.Deterministic() {
			t.Determinism = gate.Deterministic
		}
		if w := Listed[p.ID()].Transport; w != nil { // a job has no network
			t.Worker = &gate.Worker{Type: w.Type, Endpoint: w.Endpoint}
			t.Egress = slices.Concat(g.Policy.EgressAllowlist, Listed[p.ID()].EgressAllowlist)
			slices.Sort(t.Egress)
			t.Egress = slices.Compact(t.Egress)
		}
		out = append(out, t)
	}
	return out
}

// packOrder turns a call of a pack into a canonical plan and has policy check it. The run belongs to the project of
// its inputs. A call that takes outputs of runs is first matched with earlier calls by its arguments, before the
// states of those runs are read: a repeated call is the same run in any case.
func (g *Gateway) packOrder(ctx context.Context, c gate.Call, p *toolpack.Pack) (order run.Order, first before, err error) {
	project, err := g.inputProject(ctx, c, paramsOf(p))
	if err != nil {
		return order, first, err
	}
	named := g.resolver(ctx, project, c.Names)
	args, err := named.arguments(c.Args, p.ID(), paramsOf(p))
	if first.references = named.artifacts; err != nil {
		return order, first, err
	}
	asked, promised, err := g.promises(ctx, args, p, project, true)
	if err != nil {
		return order, first, err
	}
	if len(promised) == 0 {
		return g.orderOf(ctx, c, p, project, args, first)
	}
	waits := before{references: first.references, promised: promised}
	order, waits, err = g.orderOf(ctx, c, p, project, asked, waits)
	if err == nil {
		if known, err := g.askedBefore(ctx, order); known || err != nil {
			return order, waits, err
		}
	}
	args, later, err1 := g.promises(ctx, args, p, project, false)
	if err1 != nil || len(later) > 0 {
		return order, waits, cmp.Or(err1, err)
	}
	return g.orderOf(ctx, c, p, project, args, first)
}

// orderOf returns the order of a call whose inputs are all artifacts, or stand for future ones.
func (g *Gateway) orderOf(ctx context.Context, c gate.Call, p *toolpack.Pack, project string, args json.RawMessage, first before) (
	order run.Order, _ before, err error) {
	look := func(id string) (toolpack.ArtifactInfo, error) {
		if x, later := first.promised[id]; later {
			return x.info, nil
		}
		a, named := first.references[id]
		if !named {
			var err error
			if a, err = g.artifactFor(ctx, c, id); err != nil {
				return toolpack.ArtifactInfo{}, err
			}
		}
		if a.ProjectID != project {
			return toolpack.ArtifactInfo{}, fault.New(fault.NotFound, "artifact_not_found",
				"there is no artifact "+id+" in the project of the other inputs")
		}
		return toolpack.ArtifactInfo{SHA256: a.SHA256, Type: a.Type, SizeBytes: a.SizeBytes, Label: a.Label}, nil
	}
	args, asks, err := g.takeAsks(p, args)
	if err != nil {
		return run.Order{}, first, err
	}
	env, sites, why, err := g.packEnv(p, asks)
	if err != nil {
		return run.Order{}, first, err
	}
	env.Artifact, env.Project = look, func() string { return project }
	canonical, err := p.Canonicalize(args, env)
	if err != nil {
		return run.Order{}, first, err
	}
	if !canonical.Docker && asks.Site != "" {
		canonical.Spec.Placement.Site = &asks.Site
	}
	user := ""
	if !canonical.Docker { // hybrid tools run on the gateway's own host, as the gateway
		if user, err = g.executedAs(ctx, c, sites); err != nil {
			return run.Order{}, first, err
		}
	}
	options, err := g.options(ctx, c, p, project, canonical, sites, user)
	if err != nil {
		return run.Order{}, first, err
	}
	definition, err := p.Definition()
	if err != nil {
		return run.Order{}, first, err
	}
	binds := canonical.Extra.Binds
	promise(&canonical, first.promised)
	order = run.Order{ToolID: p.ID(), ToolName: p.ToolName(), ToolVersion: p.Version(), ContractVersion: p.ContractVersion(),
		PackHash: p.Hash(), Pack: definition,
		Params: canonical.Params(project, g.Script), Names: canonical.Names, Warnings: bindWarnings(binds),
		PolicyHash: g.Policy.Hash, Policy: g.Policy.Snapshot, Actor: c.Request.Actor.Kind, Asking: g.asking(ctx, c)}
	order.Params.ExecutedAs = user
	order, err = g.aim(order, why, options)
	first.made = canonical.Made
	return order, first, err
}

// options returns the sites that the run of a pack may go to, each with its placement and policy's decision.
func (g *Gateway) options(ctx context.Context, c gate.Call, p *toolpack.Pack, project string, canonical toolpack.Canonical,
	sites []*site.Site, user string) ([]option, error) {
	spec := canonical.Spec
	if canonical.Docker {
		host := g.Site.LocalSite()
		if err := sameBinds(host, canonical.Extra.Binds); err != nil {
			return nil, err
		}
		err := g.allowOrder(true, spec, p.ToolName(), p.Image(), canonical.InputBytes)
		return []option{{site: host, denied: err}}, nil
	}
	return optionsOn(ctx, sites, func(ctx context.Context, s *site.Site) (*plan.Placement, error) {
		if err := g.runsAs(ctx, c, s, user); err != nil {
			return nil, err
		}
		at, err := g.charged(ctx, c, s, project, user, spec.Placement)
		if err != nil {
			return at, err
		}
		there := spec
		there.Placement = *at
		return at, g.allowOrder(false, there, p.ToolName(), p.Image(), canonical.InputBytes)
	}), nil
}

// packHandler submits the plan of a call.
func (g *Gateway) packHandler(p *toolpack.Pack) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		order, first, err := g.packOrder(ctx, c, p)
		if err != nil {
			return nil, err
		}
		if len(first.promised) > 0 {
			return g.waitForInputs(ctx, c, p, order, first)
		}
		if c.Unapproved {
			return nil, fault.New(fault.Transport, "input_arrived", "the run that makes an input has ended at this moment, and a run of "+p.ID()+
				" needs a person's approval").WithNext("repeat the call").WithRetry(1)
		}
		if err := c.MayStart(order.ToolName); err != nil {
			return nil, err
		}
		if err := g.keep(ctx, c, p.ID(), order.Params.ProjectID, first); err != nil {
			return nil, err
		}
		order.Prompt, order.Waited, order.Row = byItself(ctx), waitedAs(ctx), rowFor(ctx)
		r, err := g.Sites.Submit(ctx, order)
		if err == nil && order.Waited != nil { // the run may have existed already
			err = g.Ledger.StartWaiting(ctx, *order.Waited, r.RunID)
		}
		if err == nil && r.Replayed {
			g.named(ctx, c, r.RunID, order.Names)
		}
		return g.submitted(c, r, err)
	}
}

// packRehearsal returns the plan of a call and the job script, without submitting.
func (g *Gateway) packRehearsal(p *toolpack.Pack) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		order, first, err := g.packOrder(ctx, c, p)
		if err != nil {
			return nil, err
		}
		if len(first.promised) > 0 {
			return g.rehearseWaiting(ctx, order)
		}
		return g.Sites.Preview(ctx, order)
	}
}

// StillAllowed checks policy again before a run executes: an earlier policy may have admitted it.
func (g *Gateway) StillAllowed(s *site.Site, toolID string, p plan.Params) error {
	tool := g.toolName(toolID)
	if err := g.Policy.AllowTool(tool); err != nil {
		return err
	}
	if err := sameBinds(s, p.Tool.Asked()); err != nil {
		return err
	}
	if image := g.Domain.Lock().NameOf(p.Spec.Execution.Container.Image); p.Docker {
		return g.Policy.AllowLocal(p.Spec, tool, image, -1)
	}
	if err := g.Policy.AllowSite(s.Name); err != nil {
		return err
	}
	return g.Policy.AllowPlan(p.Spec, p.Tool == nil, g.Domain.Lock().NameOf(p.Spec.Execution.Container.Image))
}

// toolName returns the name of a tool by its id. The domain may no longer have the tool of an old run.
func (g *Gateway) toolName(id string) string {
	if p, err := g.Domain.Packs().Get(id); err == nil {
		return p.ToolName()
	}
	return strings.ReplaceAll(id, ".", "_")
}

// before holds what must be stored before a run.
type before struct {
	made       []toolpack.Made
	references map[string]run.Artifact // that the call names, as artifacts of the run's project
	promised   map[string]promised     // outputs of unfinished runs, by the id that stands for each in the plan
}

// keep stores the artifacts that a call itself creates, or takes from the site, before the run with these inputs.
func (g *Gateway) keep(ctx context.Context, c gate.Call, tool, project string, first before) error {
	for _, a := range first.references {
		if _, _, err := g.Ledger.AddArtifact(ctx, a); err != nil {
			return err
		}
	}
	for _, m := range first.made {
		a := run.Artifact{ProjectID: project, Caller: g.countsAs(c.Caller.Principal), Type: m.Type, Label: m.Label,
			Source: "arguments of " + tool}
		if _, err := g.addBytes(ctx, a, m.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// allowOrder asks policy whether a plan made by a tool is allowed, wherever it will run.
func (g *Gateway) allowOrder(docker bool, spec plan.Spec, tool, image string, inputBytes int64) error {
	if docker {
		return g.Policy.AllowLocal(spec, tool, image, inputBytes)
	}
	return g.Policy.AllowPlan(spec, false, image)
}

// pickLocal returns a function that decides where a hybrid tool runs: here if policy allows it, else in Slurm.
func (g *Gateway) pickLocal(tool, image string) func(plan.Spec, int64) bool {
	return func(spec plan.Spec, inputBytes int64) bool {
		return !fault.Is(g.Policy.AllowLocal(spec, tool, image, inputBytes), fault.Policy)
	}
}
