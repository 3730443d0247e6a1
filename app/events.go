package app

import (
	"context"
	"time"

	"slurmgate/gate"
	"slurmgate/ledger"
)

// callsAsked is the first part of an answer about recorded calls.
type callsAsked struct {
	CallRunID
	Snapshot callSnapshot `json:"snapshot"`
}

// callSnapshot names the newest and the oldest record that an answer covers, by hash. Records are chained and never
// change.
type callSnapshot struct {
	Newest string `json:"newest"` // empty: no record
	Oldest string `json:"oldest"`
	Total  int64  `json:"total"` // as in the answer
}

// CallEvent is a recorded call.
type CallEvent = ledger.CallEvent

// EventListArgs are the arguments of event.list.
type EventListArgs struct {
	ToolID    string    `json:"tool_id,omitzero" max:"256" name:"tool" help:"Only calls of this tool." placeholder:"ID"`
	Principal string    `json:"principal,omitzero" kind:"principal" help:"Only calls of this principal: its name (user:alice, token:ci), its id, a login name, or me." placeholder:"NAME"`
	Run       string    `json:"run_id,omitzero" ids:"run" help:"Only calls about this run: that made it, asked for it, looked at it or changed it; or that answered with it as provenance_run_id." placeholder:"RUN"`
	RunID     string    `json:"provenance_run_id,omitzero" kind:"run" kong:"-"` // calls with this provenance_run_id
	Since     time.Time `json:"since,omitzero" kong:"-"`
	Until     time.Time `json:"until,omitzero" kong:"-"`
	Face      gate.Face `json:"face,omitzero" enum:",shell,socket,http,mcp" default:"" help:"Only calls that came by this interface: shell, socket (other programs of this host), http or mcp." placeholder:"FACE"`
	Address   string    `json:"address,omitzero" max:"256" help:"Only calls from this client address." placeholder:"ADDRESS"`
	Chain     string    `json:"chain,omitzero" enum:",effects,looks,refused" default:"" help:"Only effects, only looks, or only refused calls." placeholder:"CHAIN"`
	Outcome   string    `json:"outcome,omitzero" max:"256" help:"Only calls with this outcome: the code of their error, such as unauthenticated." placeholder:"CODE"`
	Failed    bool      `json:"failed,omitzero" help:"Only calls that were refused or failed."`
	Page
}

// EventList is one page of the recorded calls.
type EventList struct {
	callsAsked
	Listed
	Events []ledger.CallEvent `json:"events"`
	Cursor *string            `json:"cursor"`
}

// EventShowArgs are the arguments of event.show.
type EventShowArgs struct {
	ToolCallID string `json:"tool_call_id" pattern:"^([0-9a-fA-F-]{36}|(effects|looks|refused)/[0-9]{1,18}|artifact://tool_payloads/[0-9a-fA-F-]{36}/(args|result)(/[0-9a-f]{64})?)$" about:"the id of the call, or its record, such as looks/12, or the handle of its arguments or result as its event has it" arg:"" name:"call" help:"Id of the call, a UUID, or its record, such as looks/12."`
}

// EventStory is a recorded call with its redacted arguments and result.
type EventStory struct {
	callsAsked
	ledger.CallEvent
	Payloads []ledger.CallPayload `json:"payloads"`
	Others   []string             `json:"others"` // records of later calls with the same id, e.g. looks/12
}

// EventsVerified is the answer of event.verify.
type EventsVerified struct {
	CallRunID
	OK      bool                `json:"ok"` // always true: a failed check is an error
	Calls   []ledger.ChainState `json:"calls"`
	History int64               `json:"history"` // events of runs and artifacts, checked too
	Erased  []ledger.Erasure    `json:"erased"`  // of secrets: the records that they changed are checked in the changed form
}

// events returns the operations on the records of calls.
func (g *Gateway) events() []Operation {
	return []Operation{{
		ID: "event.record", Title: "Record a call",
		Description: "Records a call of image or doctor that a shell carried out in its own process, as the caller's. Without an event it only " +
			"checks whether the caller may.",
		Effect: gate.Write, Repeat: gate.IdempotentWithKey, Capability: gate.CapAdmin, Needs: Ledger, Faces: shellOnly,
		Does: withProvenance(g, g.recordShell),
	}, {
		ID: "event.list", Title: "List calls", Verb: "events list",
		Description: "Lists the recorded tool calls, newest first: who called what, by which interface and from which address, and the outcome.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.listCalls),
	}, {
		ID: "event.show", Title: "Show a call", Verb: "events show",
		Description: "Returns one recorded call with its redacted arguments and result, or just the one that a handle of its event names " +
			"(args_ref, result_ref). Of several calls with one id it is the first, and others names the records of the rest.",
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.showCall),
	}, {
		ID: "event.verify", Title: "Verify the records", Verb: "events verify",
		Description: "Checks the hash chains of all recorded calls and of the history of runs.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger, Faces: noChat,
		Does: withProvenance(g, g.verifyCalls),
	}}
}

func (g *Gateway) listCalls(ctx context.Context, c gate.Call, a EventListArgs) (out EventList, err error) {
	p, err := g.Ledger.Calls(ctx, ledger.CallFilter{Run: a.Run, RunID: a.RunID, ToolID: a.ToolID, Principal: principalAsked(c, a.Principal),
		Chain: a.Chain, Outcome: a.Outcome, Face: string(a.Face), Address: a.Address, Since: a.Since, Until: a.Until, Failed: a.Failed,
		Cursor: a.Cursor, Limit: a.Limit})
	out = EventList{Listed: listedOf(p.Total), Events: p.Calls, Cursor: known(p.Cursor)}
	out.Snapshot.Total = p.Total.N
	if n := len(p.Calls); n > 0 {
		out.Snapshot.Newest, out.Snapshot.Oldest = p.Calls[0].Hash, p.Calls[n-1].Hash
	}
	return out, err
}

func (g *Gateway) showCall(ctx context.Context, c gate.Call, a EventShowArgs) (out EventStory, err error) {
	e, payloads, others, err := g.Ledger.Call(ctx, a.ToolCallID)
	snapshot := callSnapshot{e.Hash, e.Hash, 1 + int64(len(others))}
	return EventStory{callsAsked{Snapshot: snapshot}, e, payloads, append([]string{}, others...)}, err
}

func (g *Gateway) verifyCalls(ctx context.Context, c gate.Call, _ struct{}) (out EventsVerified, err error) {
	out.OK = true
	if out.Calls, err = g.Ledger.VerifyCalls(ctx); err == nil {
		out.History, err = g.Ledger.VerifyEvents(ctx)
	}
	if err == nil {
		out.Erased, err = g.Ledger.Erasures(ctx)
	}
	return out, err
}

// RunEvents lists at most limit events of a run with a number above after, oldest first, and reports whether the run
// can get no others by itself. For the id under which a run waited it lists those of the wait too.
func (g *Gateway) RunEvents(ctx context.Context, id string, after int64, limit int) (events []ledger.Entry, over bool, err error) {
	v, err := g.Ledger.View(ctx, id) // read before the events, so that none is missed
	if err != nil {
		return nil, false, err
	}
	events, err = g.Ledger.EventsAfter(ctx, after, limit, id, v.Run.ID)
	return events, v.Run.State.Terminal() && len(events) < limit, err
}
