package app

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/site"
)

// NewGate returns a gate of the tools: the gateway's, or that of a shell's process for an operation on files.
func NewGate(c gate.Config, tools ...gate.Tool) (_ *gate.Gate, err error) {
	if c.Registry, err = gate.NewRegistry(tools...); err != nil {
		return nil, err
	}
	return gate.New(c), nil
}

// OpenGate opens the gate with the gateway's tools.
func (g *Gateway) OpenGate(ctx context.Context) (err error) {
	tools := append(g.packTools(), g.serviceTools()...)
	for _, m := range g.Domain.Tools() {
		if i := slices.IndexFunc(tools, func(t gate.Tool) bool { return t.ID == m.ToolID }); i >= 0 {
			tools[i].Kind = m.Kind
		}
	}
	for _, o := range g.Operations() {
		if o.Needs == Ledger || o.Needs == Engine {
			if o.Covers == nil {
				of := o
				o.Covers = func(ctx context.Context, c gate.Call) (gate.Coverage, error) { return g.coversProject(ctx, c, of) }
			}
			o = g.resolving(g.guarded(o))
			t := o.Tool()
			t.Covers = o.Covers
			tools = append(tools, t)
		}
	}
	key, err := g.Ledger.GateKey(ctx)
	if err != nil {
		return err
	}
	g.fileKey = key
	journal := gate.Journal(g.Ledger)
	if g.Journal != nil {
		known := map[string]bool{} // not the registry: records that a killed gateway left are written before the registry exists
		for _, t := range tools {
			known[t.ID] = true
		}
		journal = g.Journal(g.Ledger, func(id string) bool { return known[id] })
	}
	if g.Gate, err = NewGate(gate.Config{Policy: rulesOf{g.Policy, g.RunLimits()}, Together: g.Policy.Concurrency.Global,
		Limits: gateLimits(g.Site.Limits, g.Policy.Workers), Journal: journal,
		Spill: gate.Spill{Dir: g.Spill, Written: g.Ledger.Recorded}, Promises: g.Ledger,
		Owners: owners{g.Ledger}, Supposer: g, Artifacts: artifacts{g}, Words: g.Words, Key: key, Secrets: g.Secrets, Log: g.Log},
		tools...); err != nil {
		return err
	}
	folders := map[string]string{g.Site.Gateway.StateDir: "[state_dir]", g.Site.Gateway.ArtifactDir: "[artifact_dir]",
		g.Site.DomainDir: "[domain_dir]"}
	for _, s := range g.Site.Clusters() {
		folders[s.Storage.RunsDir], folders[s.Storage.ImageStore] = "[runs_dir]", "[image_store]"
	}
	g.Gate.Registry().Conceal(folders)
	g.offered, err = g.hashCatalogue()
	return err
}

func gateLimits(l site.Limits, w policy.Workers) gate.Limits {
	return gate.Limits{Services: w.MaxCalls, Calls: l.Calls, CallsPerCaller: l.CallsPerCaller, WaitsPerCaller: l.WaitsPerCaller,
		Previews: l.Previews, PreviewsPerCaller: l.PreviewsPerCaller, Hashes: l.Hashes, HashesPerCaller: l.HashesPerCaller,
		Records: gate.Allowance{PerMinute: l.CallerRecordsPerMinute, PerDay: l.CallerRecordsPerDay},
		Memory:  min(callMemory, debug.SetMemoryLimit(-1)/4)}
}

// callMemory is how many bytes of memory all calls may reserve together by the size of their input, where the process
// has four times as much.
const callMemory = 512 << 20

// RunLimits returns the limits of concurrency.per_tool that apply to runs, by tool name: those of toolpacks. The
// engine enforces them.
func (g *Gateway) RunLimits() map[string]int {
	limits := map[string]int{}
	for _, p := range g.jobPacks() {
		if n := g.Policy.Concurrency.PerTool[p.ToolName()]; n > 0 {
			limits[p.ToolName()] = n
		}
	}
	return limits
}

// Rules returns a policy in the form that a gate uses, without limits of runs.
func Rules(p *policy.Policy) gate.Policy { return rulesOf{Policy: p} }

// rulesOf is the policy in the form that the gate uses.
type rulesOf struct {
	*policy.Policy
	runs map[string]int // limits of runs, not of calls
}

// Rules returns the limits of a tool's calls.
func (p rulesOf) Rules(toolName string) gate.Rules {
	r := gate.Rules{Timeout: time.Duration(p.DefaultTimeoutSec) * time.Second}
	if p.runs[toolName] == 0 {
		r.Together = p.Concurrency.PerTool[toolName]
	}
	if p.NeedsConsent(toolName) {
		r.Consent = &gate.ConsentRule{Ask: time.Duration(p.Consent.RequestExpiresSecs) * time.Second,
			Answer: time.Duration(p.Consent.ApprovalExpiresSecs) * time.Second}
	}
	return r
}

// artifacts gives the gate access to artifacts, for data that is too large for an envelope.
type artifacts struct{ *Gateway }

// Read implements [gate.Artifacts].
func (k artifacts) Read(ctx context.Context, artifactID string, limit int64) ([]byte, error) {
	a, f, err := k.opened(ctx, artifactID)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if a.SizeBytes > limit {
		return nil, fault.New(fault.Validation, "args_too_large",
			fmt.Sprintf("%s has %d bytes; the limit for arguments is %d", artifactID, a.SizeBytes, limit))
	}
	return io.ReadAll(io.LimitReader(f, limit+1))
}

// Keep implements [gate.Artifacts].
func (k artifacts) Keep(ctx context.Context, who gate.Principal, label string, data []byte) (string, error) {
	a, err := k.addBytes(ctx, run.Artifact{ProjectID: who.Own(), Caller: k.countsAs(who), Type: "JSON", Label: label, Source: "result"}, data)
	return a.ID, err
}

// addBytes stores data of the gateway itself as an artifact.
func (g *Gateway) addBytes(ctx context.Context, a run.Artifact, data []byte) (stored run.Artifact, err error) {
	if g.Importer == nil {
		return a, fault.New(fault.Conflict, "answer_too_large",
			"the answer is too large to be shown while no gateway is running").WithNext("ask for less, or start the gateway")
	}
	if a.SHA256, a.SizeBytes, err = g.Importer.Keep(ctx, data); err != nil {
		return a, err
	}
	if a.ID, err = plan.ArtifactID(a.ProjectID, a.SHA256, a.Type, a.Label); err != nil {
		return a, err
	}
	stored, _, err = g.Ledger.AddArtifact(ctx, a)
	return stored, err
}

// Tend deletes old records of calls that changed nothing, often enough that a flood of calls cannot fill the disk.
func (g *Gateway) Tend(ctx context.Context) {
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		a := g.Site.Audit
		for _, c := range []struct {
			chain            string
			days, number, mb int
		}{{gate.Looks, a.LookDays, a.Looks, a.LookMB}, {gate.Refused, a.RefusedDays, a.Refused, a.RefusedMB}} {
			n, err := g.Ledger.DropCalls(ctx, c.chain, ledger.CallLimits{Since: time.Now().AddDate(0, 0, -c.days), Keep: int64(c.number),
				Bytes: int64(c.mb) << 20})
			switch {
			case err != nil && ctx.Err() == nil:
				g.Log.Error("old records of calls could not be dropped", "chain", c.chain, "err", err)
			case n > 0:
				g.Log.Info("old records of calls dropped", "chain", c.chain, "records", n)
			}
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}
