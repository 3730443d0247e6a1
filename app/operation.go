package app

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"slurmgate/gate"
)

// Operation is a tool of the gateway's own. Its literal says everything about it.
type Operation struct {
	ID          string
	Title       string
	Description string
	Effect      gate.SideEffect
	Repeat      string // what the same call again does, e.g. [gate.Idempotent]
	Outcome     string // whether the same call gives the same answer, e.g. [gate.BestEffort]
	Capability  string // that the caller must have beside [gate.CapGateway], on the project that the call is about
	SiteWide    bool   // the call is about no project but about all: the caller must have them on project [gate.All]
	Needs       Needs
	Faces       []gate.Transport
	Verb        string        // of the shell that makes the call and prints the answer, e.g. "runs list"; empty: none
	Limit       time.Duration // of a call; 0: policy's default_timeout_sec
	Work        gate.Work     // what its calls share a limit for; empty: nothing
	Input       json.RawMessage
	Reveals     []string // see [gate.Tool]
	Body        int64    // see [gate.Tool]
	Each        string   // see [gate.Tool]
	Does        work
	DryRun      work                                                        // without any effect; zero: there is nothing to show
	Starts      func(gate.Call) []string                                    // see [gate.Tool]
	Covers      func(context.Context, gate.Call) (gate.Coverage, error)     // see [gate.Tool]; nil: the project that the arguments name
	Names       func(context.Context, gate.Call) (map[string]string, error) // see [gate.Tool]
}

// Needs is what must be open for an operation.
type Needs string

// From little to much: each includes those before it.
const (
	Files  Needs = "files"  // nothing: it works on the caller's files, in the shell's process, and leaves no record
	Site   Needs = "site"   // a site's files: it works in the shell's process, under the site's policy, and is recorded in its ledger
	Ledger Needs = "ledger" // the gateway, with its ledger and store
	Engine Needs = "engine" // the gateway and a site's engine
)

// The faces an operation may have.
var (
	everywhere = []gate.Transport{gate.Local, gate.MCP, gate.Other}
	noChat     = []gate.Transport{gate.Local, gate.Other} // what decides over others is no chat's
	shellOnly  = []gate.Transport{gate.Local}
)

// BuiltinVersion is the version of every operation.
const (
	BuiltinVersion  = "1.0.0"
	builtinContract = "v1"
)

// Tool is the operation as the registry has it.
func (o Operation) Tool() gate.Tool {
	return gate.Tool{ID: o.ID, Version: BuiltinVersion, ContractVersion: builtinContract, Title: o.Title, Description: o.Description,
		SideEffect: o.Effect, Idempotency: o.Repeat, Determinism: o.Outcome, Availability: gate.OfflineOK,
		Capabilities: []string{gate.CapGateway, o.Capability}, SiteWide: o.SiteWide, Bindings: o.Faces, Timeout: o.Limit, Work: o.Work,
		Input:   o.Input,
		Output:  o.Does.answer(),
		Reveals: o.Reveals, Body: o.Body, Names: o.Names, Starts: o.Starts, Each: o.Each, Handle: o.Does.handle, DryRun: o.DryRun.handle}
}

// Operations are all of them. Those that need more than files work only with what their gateway has open.
func (g *Gateway) Operations() []Operation {
	return slices.Concat(g.lifecycle(), g.runs(), g.batches(), g.artifacts(), g.previews(), g.catalogue(), g.tokens(), g.approvals(),
		g.events(), g.retention(), g.exporting(), g.drains(), g.siteList(), g.erasing(), g.removals(), g.usage(),
		g.receipts(), g.notices(), g.references(),
		[]Operation{g.progress(), verification(), g.finding(), g.traces()}, g.Host.files(), g.Host.images(), g.Host.backups())
}

// Find is the operation with an id; ok is false if there is none.
func (g *Gateway) Find(id string) (o Operation, ok bool) {
	list := g.Operations()
	i := slices.IndexFunc(list, func(o Operation) bool { return o.ID == id })
	if i < 0 {
		return o, false
	}
	return list[i], true
}

// OperationIDs are the ids no toolpack may have.
func OperationIDs() []string {
	ids := gate.ReservedIDs()
	for _, o := range new(Gateway).Operations() {
		if o.Needs != Files {
			ids = append(ids, o.ID)
		}
	}
	return ids
}

// work carries out calls and knows the schema of its answers.
type work struct {
	handle gate.Handler
	answer func() json.RawMessage
}

// does makes work of a function: its arguments are decoded from what satisfies the operation's input schema, and the schema of its answer
// is that of its type.
func does[A, R any](f func(ctx context.Context, c gate.Call, a A) (R, error)) work {
	handle := func(ctx context.Context, c gate.Call) (any, error) {
		var a A
		if err := c.Into(&a); err != nil {
			return nil, err
		}
		r, err := f(ctx, c, a)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	return work{handle, gate.SchemaOf[R]}
}

// look makes work of a function that also gives what its answer depends on. The call is a run with these params, and the answer says which.
func look[A, R any, P interface {
	*R
	isRun(id string)
}](g *Gateway, f func(ctx context.Context, c gate.Call, a A) (r R, params any, err error)) work {
	return does(func(ctx context.Context, c gate.Call, a A) (R, error) {
		r, params, err := f(ctx, c, a)
		if err != nil {
			return r, err
		}
		id, err := g.provenance(ctx, c, params)
		P(&r).isRun(id)
		return r, err
	})
}

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

// idPrefixSchema is the schema of the beginning of an id.
func idPrefixSchema(prefix string) string {
	return `{"type":"string","pattern":"^` + prefix + `[0-9A-HJKMNP-TV-Z]{1,26}$","description":"only those whose id begins with this"}`
}

// Schemas of arguments that several operations have.
const (
	runIDSchema     = `{"type":"string","pattern":"^run_[0-9A-HJKMNP-TV-Z]{26}$","description":"a run id, run_…"}`
	waitSchema      = `{"type":"integer","minimum":0,"maximum":30,"description":"seconds to wait for the run to finish"}`
	projectSchema   = `{"type":"string","minLength":1,"maxLength":128,"description":"project id (proj_…) or name; the site's default project when absent"}`
	artifactSchema  = `{"type":"string","pattern":"^art_[0-9A-HJKMNP-TV-Z]{26}$","description":"an artifact id, art_…"}`
	timeSchema      = `{"type":"string","format":"date-time","maxLength":40,"description":"RFC 3339, e.g. 2026-11-21T08:00:00Z"}`
	principalSchema = `{"type":"string","minLength":1,"maxLength":1024,"description":"a principal's name or id, a login name of the gateway's host, or me"}`
	reasonSchema    = `{"type":"string","maxLength":512}`
	cursorSchema    = `{"type":"string","maxLength":256}`
	limitSchema     = `{"type":"integer","minimum":1,"maximum":200}`
	pathSchema      = `{"type":"string","minLength":1,"maxLength":4096}`
	yesNo           = `{"type":"boolean"}`
)
