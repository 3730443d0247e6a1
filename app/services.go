package app

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/toolpack"
	"slurmgate/worker"
)

// This file has the tools that a service worker executes. A call is a run (see package run), and its answer is the
// worker's output itself.

// serviceGrace is the time that a call has after its deadline: to wait for a slot, and to store the answer.
const serviceGrace = 15 * time.Second

// services returns the tools whose calls go to a service worker: all service tools, and the hybrid ones that policy
// sends there.
func (g *Gateway) services() []toolpack.Service {
	return slices.DeleteFunc(g.Domain.Services(), func(s toolpack.Service) bool {
		return s.Kind == toolpack.Hybrid && !slices.Contains(g.Policy.Workers.Hybrid, s.Name)
	})
}

// ServiceURLs returns the only addresses that the gateway's client of workers may call.
func ServiceURLs(d *toolpack.Domain) (urls []string) {
	for _, s := range d.Services() {
		urls = append(urls, s.URL)
	}
	return urls
}

// serviceTools returns a tool for each service.
func (g *Gateway) serviceTools() (out []gate.Tool) {
	listed := map[string]toolpack.ManifestTool{}
	for _, m := range g.Domain.Tools() {
		listed[m.ToolID] = m
	}
	for _, s := range g.services() {
		input, params := servesReferences(s)
		t := gate.Tool{SaysDryRun: blocks.Reader[ServicePreview](),
			ID: s.ID, Version: s.Version, ContractVersion: s.ContractVersion, Title: s.Title, Description: s.Description,
			SideEffect: gate.Execute, Idempotency: gate.IdempotentWithKey, Determinism: gate.NonDeterministic, Availability: gate.RequiresNetwork,
			Capabilities: []string{gate.CapWorker}, Purposes: s.Purposes, Bindings: everywhere, Input: input, Output: s.Output,
			Egress: slices.Compact(slices.Sorted(slices.Values(slices.Concat(g.Policy.EgressAllowlist, s.Egress)))),
			Worker: &gate.Worker{Type: "http", Endpoint: "/run"}, Timeout: g.serviceTimeout(s), Grace: serviceGrace, Work: gate.Service,
			Resumes: true, Sensitive: s.Sensitive, Handle: g.serviceHandler(s), DryRun: g.serviceRehearsal(s), Covers: g.coversService(s),
			Names: g.namesIn(s.ID, params, func(ctx context.Context, c gate.Call) (string, error) { return g.serviceProject(ctx, c, params) })}
		if w := listed[s.ID].Transport; w != nil {
			t.Worker = &gate.Worker{Type: w.Type, Endpoint: w.Endpoint}
		}
		if s.Deterministic {
			t.Idempotency, t.Determinism = gate.Idempotent, gate.Deterministic
		}
		out = append(out, t)
	}
	return out
}

// serviceTimeout returns how long the gateway waits for a worker's answer.
func (g *Gateway) serviceTimeout(s toolpack.Service) time.Duration {
	if s.TimeoutSec > 0 {
		return time.Duration(s.TimeoutSec) * time.Second
	}
	return time.Duration(g.Policy.DefaultTimeoutSec) * time.Second
}

// serviceArgs returns the arguments of a call with the schema's defaults: as the worker gets them, and as they may be
// stored. A dry run has no sensitive values, and their placeholders need not satisfy the schema.
func serviceArgs(c gate.Call, s toolpack.Service) (sent, stored json.RawMessage, err error) {
	if c.Hidden != nil && c.Request.DryRun {
		return nil, c.Stored, nil
	}
	if sent, err = s.Arguments(c.Args); err != nil || c.Hidden == nil {
		return sent, sent, err
	}
	doc, err := plan.Read(sent)
	if err != nil {
		return nil, nil, err
	}
	kept := maps.Clone(doc.Value.(map[string]any)) // arguments are an object
	for _, name := range s.Sensitive {
		if _, given := kept[name]; given {
			kept[name] = gate.Redacted
		}
	}
	stored, err = plan.Marshal(kept)
	return sent, stored, err
}

// serviceOrder returns the run's order for a call. If the tool has an argument project_id the run belongs to the
// project there, else to that of the first artifact among the arguments.
func (g *Gateway) serviceOrder(ctx context.Context, c gate.Call, s toolpack.Service) (o run.Order, sent json.RawMessage, first before,
	err error) {
	_, params := servesReferences(s)
	project, err := g.serviceProject(ctx, c, params)
	if err != nil {
		return o, nil, first, err
	}
	named := g.resolver(ctx, project, c.Names)
	first.references = named.artifacts
	if c.Args, err = named.arguments(c.Args, s.ID, params); err == nil {
		c.Stored, err = named.arguments(c.Stored, s.ID, params)
	}
	if err != nil {
		return o, nil, first, err
	}
	sent, stored, err := serviceArgs(c, s)
	if err != nil {
		return o, nil, first, err
	}
	call := &plan.Call{Input: stored, ID: c.ID, ToolVersion: s.Version}
	if s.Deterministic {
		call.ID = ""
	}
	return run.Order{ToolID: s.ID, ToolName: s.Name, ToolVersion: s.Version, ContractVersion: s.ContractVersion, PackHash: s.Hash,
		Pack: s.Definition, Params: plan.Params{ProjectID: project, Worker: call}, PolicyHash: g.Policy.Hash, Policy: g.Policy.Snapshot,
		Actor: c.Request.Actor.Kind, Asking: g.asking(ctx, c)}, sent, first, nil
}

func (g *Gateway) serviceProject(ctx context.Context, c gate.Call, params []string) (string, error) {
	args, _ := c.Value.(map[string]any)
	if named, ok := args["project_id"].(string); ok {
		return g.projectOf(c, named)
	}
	return g.inputProject(ctx, c, params)
}

func (g *Gateway) serviceHandler(s toolpack.Service) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		order, input, first, err := g.serviceOrder(ctx, c, s)
		if err != nil {
			return nil, err
		}
		if err := g.keep(ctx, c, s.ID, order.Params.ProjectID, first); err != nil {
			return nil, err
		}
		deadline := time.Now().Add(g.serviceTimeout(s))
		v, replayed, err := g.Sites.CallWorker(ctx, run.WorkerCall{Order: order, Deadline: deadline, Interrupted: c.Interrupted,
			Send: func(ctx context.Context, v run.View) run.CallEnd {
				return g.callWorker(ctx, c.Hidden, s, v, worker.Request{Input: input, Meta: worker.Meta{TraceID: c.Request.TraceID, ToolRunID: v.Run.ID,
					DomainID: g.Domain.ID(), DeadlineMS: deadline.UnixMilli()}})
			}})
		if v.Run.ID != "" {
			gate.Made(ctx, v.Run.ID)
		}
		if err != nil {
			return nil, err
		}
		return g.serviceAnswer(ctx, v, replayed)
	}
}

// found is the output of an earlier call.
type found struct{ json.RawMessage }

// Unchanged returns true: no call was sent.
func (found) Unchanged() bool { return true }

// serviceAnswer returns the answer for the end of a call.
func (g *Gateway) serviceAnswer(ctx context.Context, v run.View, replayed bool) (any, error) {
	if !v.Run.State.Terminal() {
		return nil, fault.New(fault.Timeout, "still_running", "the worker has not answered an earlier call yet, which is the same run "+v.Run.ID).
			WithSteps(fault.Do("slurm.job.collect", "run_id", v.Run.ID, "wait_seconds", run.LongWait))
	}
	end, err := run.EndOf(v)
	switch {
	case err != nil:
		return nil, err
	case end.Error != nil:
		e := end.Error
		return nil, &gate.Reported{Err: fault.New(e.Kind, e.Code, e.Message).WithNext(e.Next).
			WithSteps(fault.Do("run.show", "run_id", v.Run.ID)), Retryable: e.Retryable, Details: e.Details}
	case end.OutputRef != "":
		id := strings.TrimPrefix(end.OutputRef, gate.RefPrefix)
		a, err := g.Ledger.Artifact(ctx, id)
		if err != nil && !fault.Is(err, fault.NotFound) { // the artifact may have been removed since
			return nil, err
		}
		return gate.Stored{ArtifactID: id, SHA256: a.SHA256, Again: replayed}, nil
	case replayed:
		return found{end.Output}, nil
	}
	return end.Output, nil
}

// callWorker sends a call, and returns how it ended. The worker's answer is checked, bounded and cleaned of secrets
// before it is stored.
func (g *Gateway) callWorker(ctx context.Context, hidden *gate.Hidden, s toolpack.Service, v run.View, r worker.Request) run.CallEnd {
	a, err := g.Workers.Call(ctx, s.URL, s.Headers, r)
	if err != nil {
		return run.CallEnd{Error: g.callError(hidden, err)}
	}
	refuse := func(code, why string) run.CallEnd {
		return run.CallEnd{Error: &run.CallError{Kind: fault.Internal, Code: code, Message: hidden.Text(why), Sent: true}}
	}
	doc, err := plan.ReadUpTo(a.Output, worker.AnswerBytes)
	if err != nil {
		return refuse(worker.Envelope, "the worker's output cannot be read: "+fault.First(err))
	}
	if bad := g.Gate.Registry().CheckOutput(s.ID, doc); len(bad) > 0 {
		return refuse("worker_output", "the worker's answer violates the output schema of "+s.ID+": "+bad[0].String())
	}
	if doc, err = hidden.Doc(doc); err == nil {
		doc, err = g.Gate.Clean(doc)
	}
	if err != nil {
		return refuse(worker.Envelope, "the worker's output cannot be read: "+fault.First(err))
	}
	if len(doc.Bytes) <= gate.MaxInline {
		return run.CallEnd{Output: doc.Bytes}
	}
	art, err := g.outputArtifact(context.WithoutCancel(ctx), s, v, doc.Bytes)
	if err != nil {
		return refuse("output_not_stored", fmt.Sprintf("the worker answered, but its output of %d bytes could not be stored: %s",
			len(doc.Bytes), fault.Prose(err)))
	}
	return run.CallEnd{OutputRef: gate.RefPrefix + art.ID, Artifact: &art}
}

// outputArtifact stores the bytes of a large output. The run's end adds its row.
func (g *Gateway) outputArtifact(ctx context.Context, s toolpack.Service, v run.View, data []byte) (a run.Artifact, err error) {
	a = run.Artifact{ProjectID: v.Run.ProjectID, Type: "JSON", Label: "output of " + s.ID, Source: v.Run.ID}
	if a.SHA256, a.SizeBytes, err = g.Importer.Keep(ctx, data); err != nil {
		return a, err
	}
	a.ID, err = plan.ArtifactID(a.ProjectID, a.SHA256, a.Type, a.Label)
	return a, err
}

// callError converts the error of a call to the form that its run stores.
func (g *Gateway) callError(hidden *gate.Hidden, err error) *run.CallError {
	code, retryable, details := worker.Code(err)
	e := &run.CallError{Kind: fault.KindOf(err), Code: fault.CodeOf(err), Message: hidden.Text(fault.Said(err)), Retryable: retryable,
		Sent: true}
	if said := fault.Advised(err); said != nil {
		e.Next = said.Next
	}
	switch {
	case e.Kind == fault.Canceled: // a cancelled run has ended already; otherwise the gateway is stopping
		e.Kind, e.Code, e.Message, e.Retryable, e.Sent = fault.Transport, worker.Away, "the gateway stopped before the call was sent", true, false
	case e.Code == worker.Away:
		e.Sent = false
	case e.Code == worker.Unknown && code == "TIMEOUT":
		e.Kind = fault.Timeout
	}
	if doc, err := plan.Read(details); err == nil {
		if doc, err = hidden.Doc(doc); err == nil {
			doc, err = g.Gate.Clean(doc)
		}
		if err == nil {
			e.Details, _ = doc.Value.(map[string]any)
		}
	}
	return e
}

// ServicePreview describes what a call of a service worker would be.
type ServicePreview struct {
	RunID      *string         `json:"run_id"` // null: every call is a new run
	Exists     bool            `json:"exists"` // the run exists: the call would return it
	State      *run.State      `json:"state"`  // of that run
	Endpoint   string          `json:"endpoint"`
	TimeoutSec int64           `json:"timeout_sec"`
	PolicyHash string          `json:"policy_hash"`
	Params     json.RawMessage `json:"params"` // canonical
}

func (g *Gateway) serviceRehearsal(s toolpack.Service) gate.Handler {
	return func(ctx context.Context, c gate.Call) (any, error) {
		order, _, _, err := g.serviceOrder(ctx, c, s)
		if err != nil {
			return nil, err
		}
		canonical, id, there, err := g.Sites.SupposeCall(ctx, order)
		if err != nil {
			return nil, err
		}
		p := ServicePreview{Endpoint: "/run", TimeoutSec: int64(g.serviceTimeout(s).Seconds()), PolicyHash: g.Policy.Hash, Params: canonical}
		if t, err := g.Gate.Registry().Find(s.ID); err == nil {
			p.Endpoint = t.Worker.Endpoint
		}
		if s.Deterministic {
			p.RunID = new(id.RunID())
		}
		if p.Exists = there != nil; p.Exists {
			p.State = &there.Run.State
		}
		return p, nil
	}
}

// coversService returns the coverage of a call: what the worker gets, and the tool's definition. The call's own id is
// not part of it: the approval holds for the same call with another id.
func (g *Gateway) coversService(s toolpack.Service) func(context.Context, gate.Call) (gate.Coverage, error) {
	return func(ctx context.Context, c gate.Call) (gate.Coverage, error) {
		order, _, _, err := g.serviceOrder(ctx, c, s)
		if err != nil {
			return gate.Coverage{}, err
		}
		order.Params.Worker.ID = ""
		canonical, err := order.Params.Canonical()
		return gate.Coverage{ProjectID: order.Params.ProjectID, PackHash: s.Hash, ParamsHash: plan.Hash(canonical)}, err
	}
}
