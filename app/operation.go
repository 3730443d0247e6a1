package app

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"slurmgate/blocks"
	"slurmgate/gate"
	"slurmgate/run"
)

// Operation is a tool of the gateway itself. One literal declares all of it.
type Operation struct {
	ID          string
	Title       string
	Description string
	Effect      gate.SideEffect
	Repeat      string // the effect of a repeated call, e.g. [gate.Idempotent]
	Outcome     string // whether a repeated call gives the same answer; empty: [gate.BestEffort]
	Capability  string // that the caller needs besides [gate.CapGateway], on the project that the call is about
	Needs       Needs
	Acts        Acting
	Faces       []gate.Transport
	Verb        string        // of the shell that makes the call and prints the answer, e.g. "runs list"; empty: the shell has none
	Limit       time.Duration // of a call; 0: policy's default_timeout_sec
	Work        gate.Work     // the kind of work whose limit its calls share; empty: no limit
	Chat        gate.Chat     // see [gate.Tool], as the next two
	Destructive bool
	Moves       bool
	Checks      bool     // it reads much before its effect: see [gate.Tool]
	Reveals     []string // see [gate.Tool]
	Body        int64    // see [gate.Tool]
	Each        string   // see [gate.Tool]
	Does        work
	DryRun      work                                                        // has no effect; zero: the operation has no dry run
	Starts      func(context.Context, gate.Call) ([]string, error)          // see [gate.Tool]
	Covers      func(context.Context, gate.Call) (gate.Coverage, error)     // see [gate.Tool]; nil: the project that the arguments name
	Names       func(context.Context, gate.Call) (map[string]string, error) // see [gate.Tool]
	Shows       showing                                                     // what an approval covers besides its arguments; nil: nothing
}

// Needs is what must be open for an operation.
type Needs string

// In increasing order: each includes those before it.
const (
	Files  Needs = "files"  // nothing: the operation works on the caller's files, in the shell's process, and leaves no record
	Site   Needs = "site"   // a site's files: it works in the shell's process, under the site's policy, and is recorded in its ledger
	Ledger Needs = "ledger" // the gateway, with its ledger and store
	Engine Needs = "engine" // the gateway and a site's engine
)

// The faces an operation may have.
var (
	everywhere = []gate.Transport{gate.Local, gate.MCP, gate.Other}
	noChat     = []gate.Transport{gate.Local, gate.Other} // decisions over others are not for chats
	shellOnly  = []gate.Transport{gate.Local}
)

// BuiltinVersion is the version of every operation.
const (
	BuiltinVersion  = "1.0.0"
	builtinContract = "v1"
)

// Tool converts the operation to an entry of the registry.
func (o Operation) Tool() gate.Tool {
	return gate.Tool{ID: o.ID, Version: BuiltinVersion, ContractVersion: builtinContract, Title: o.Title, Description: o.Description,
		SideEffect: o.Effect, Idempotency: o.Repeat, Determinism: cmp.Or(o.Outcome, gate.BestEffort), Availability: gate.OfflineOK,
		Capabilities: []string{gate.CapGateway, o.Capability}, SiteWide: o.siteWide(), Bindings: o.Faces, Timeout: o.Limit, Work: o.Work,
		Checks: o.Checks, Chat: o.Chat, Destructive: o.Destructive, Moves: o.Moves,
		Input:  o.Does.input(),
		Output: o.Does.answer(), Described: o.Does.described, Says: o.Does.says, SaysDryRun: o.DryRun.says,
		Reveals: o.Reveals, Body: o.Body, Names: o.Names, Starts: o.Starts, Each: o.Each, Handle: o.Does.handle, DryRun: o.DryRun.handle}
}

// siteWide reports whether a call is about the whole site and not about one project: the caller needs its
// capabilities on project [gate.All].
func (o Operation) siteWide() bool {
	return o.Capability == gate.CapAdmin || o.Capability == gate.CapMetrics
}

// UsersOwn reports whether a user's own rights suffice for the operation: it needs neither files of the site nor a
// right over others.
func (o Operation) UsersOwn() bool {
	users := []string{gate.CapRead, gate.CapImport, gate.CapSlurm}
	return (o.Needs == Ledger || o.Needs == Engine) && slices.Contains(users, o.Capability)
}

// Operations returns all operations. Those that need more than files work only with what their gateway has open.
func (g *Gateway) Operations() []Operation {
	return slices.Concat(g.lifecycle(), g.runs(), g.batches(), g.artifacts(), g.previews(), g.catalogue(), g.tokens(), g.approvals(),
		g.events(), g.retention(), g.exporting(), g.drains(), g.siteList(), g.projects(), g.erasing(), g.removals(), g.usage(),
		g.receipts(), g.notices(), g.references(),
		[]Operation{g.progress(), verification(), g.finding(), g.traces()}, g.Host.files(), g.Host.images(), g.Host.backups())
}

// Find returns the operation with an id; ok is false if absent.
func (g *Gateway) Find(id string) (o Operation, ok bool) {
	list := g.Operations()
	i := slices.IndexFunc(list, func(o Operation) bool { return o.ID == id })
	if i < 0 {
		return o, false
	}
	return list[i], true
}

// WithFacts adds to tools that came from a gateway what the wire does not carry: the documents of their results, and
// how chats show them.
func WithFacts(tools []gate.Tool) []gate.Tool {
	operations := map[string]Operation{}
	for _, o := range new(Gateway).Operations() {
		operations[o.ID] = o
	}
	for i := range tools {
		t, o := &tools[i], operations[tools[i].ID]
		t.Says, t.SaysDryRun, t.Chat, t.Destructive, t.Moves = o.Does.says, o.DryRun.says, o.Chat, o.Destructive, o.Moves
		switch {
		case o.ID != "":
		case t.OfService():
			t.SaysDryRun = blocks.Reader[ServicePreview]()
		default: // a tool of the domain, which starts runs
			t.Says, t.SaysDryRun = blocks.Reader[run.SubmitAnswer](), blocks.Reader[run.Preview]()
		}
	}
	return tools
}

// OperationIDs returns the ids that no toolpack may have.
func OperationIDs() []string {
	ids := gate.ReservedIDs()
	for _, o := range new(Gateway).Operations() {
		if o.Needs != Files {
			ids = append(ids, o.ID)
		}
	}
	return ids
}

// work carries out calls and knows the schemas of its arguments and answers.
type work struct {
	handle    gate.Handler
	input     func() json.RawMessage
	answer    func() json.RawMessage
	described func() json.RawMessage
	says      func(result json.RawMessage) (blocks.Document, error)
}

// does returns work that calls f with decoded arguments. The operation's input schema is that of their type A, and
// the schema of its answer that of R.
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
	return work{handle, argumentsOf[A], gate.SchemaOf[R], gate.DescribedSchemaOf[R], blocks.Reader[R]()}
}

// withProvenance returns work whose answer names the call's own provenance run, see [Gateway.identify].
func withProvenance[A, R any, P interface {
	*R
	runAnswer
}](g *Gateway, f func(ctx context.Context, c gate.Call, a A) (R, error)) work {
	return does(func(ctx context.Context, c gate.Call, a A) (R, error) {
		r, err := f(ctx, c, a)
		if err == nil {
			err = g.identify(ctx, c, P(&r))
		}
		return r, err
	})
}
