package app

import (
	"context"
	"time"

	"slurmgate/gate"
	"slurmgate/ledger"
)

// callsAsked begins an answer about recorded calls.
type callsAsked struct {
	CallRunID
	Snapshot callSnapshot `json:"snapshot"`
}

// callSnapshot is the newest and the oldest record that an answer covers, by hash. Records are chained and never change.
type callSnapshot struct {
	Newest string `json:"newest"` // empty: none
	Oldest string `json:"oldest"`
	Total  int64  `json:"total"` // as the answer says
}

// CallEvent is a recorded call.
type CallEvent = ledger.CallEvent

// EventListArgs are the arguments of event.list.
type EventListArgs struct {
	Run       string    `json:"run_id,omitzero"`            // calls about this run, or that are it
	RunID     string    `json:"provenance_run_id,omitzero"` // calls that are it
	ToolID    string    `json:"tool_id,omitzero"`
	Principal string    `json:"principal,omitzero"`
	Chain     string    `json:"chain,omitzero"`
	Face      gate.Face `json:"face,omitzero"`
	Address   string    `json:"address,omitzero"`
	Since     time.Time `json:"since,omitzero"`
	Until     time.Time `json:"until,omitzero"`
	Outcome   string    `json:"outcome,omitzero"`
	Failed    bool      `json:"failed,omitzero"`
	Cursor    string    `json:"cursor,omitzero"`
	Limit     int       `json:"limit,omitzero"`
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
	ToolCallID string `json:"tool_call_id"`
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
	Erased  []ledger.Erasure    `json:"erased"`  // of secrets: records that they changed are as they left them
}

// events are the operations on the records of calls.
func (g *Gateway) events() []Operation {
	return []Operation{{
		ID: "event.record", Title: "Record a call",
		Description: "Records a call of image or doctor that a shell carried out in its own process, as the caller's. Without an event it only " +
			"checks whether the caller may.",
		Effect: gate.Write, Repeat: gate.IdempotentWithKey, Outcome: gate.BestEffort, Capability: gate.CapAdmin, SiteWide: true, Needs: Ledger,
		Faces: shellOnly,
		Input: object("", prop("chain", `{"enum":["effects","looks","refused"]}`), prop("event", `{"type":"object"}`),
			prop("payloads", `{"type":"array","maxItems":2,"items":{"type":"object","additionalProperties":false,"required":["kind","payload"],"properties":{"kind":{"enum":["args","result"]},"payload":{}}}}`)),
		Does: look(g, g.recordShell),
	}, {
		ID: "event.list", Title: "List calls", Verb: "events list",
		Description: "Lists the recorded tool calls, newest first: who called what, by which interface and from which address, and the outcome.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapAdmin, SiteWide: true, Needs: Ledger,
		Faces: noChat,
		Input: object("", prop("tool_id", cursorSchema), prop("principal", principalSchema), prop("run_id", runIDSchema),
			prop("provenance_run_id", runIDSchema), prop("face", `{"enum":["shell","socket","http","mcp"]}`), prop("address", cursorSchema),
			prop("since", timeSchema), prop("until", timeSchema),
			prop("chain", `{"enum":["effects","looks","refused"]}`), prop("outcome", cursorSchema), prop("failed", yesNo),
			prop("cursor", cursorSchema), prop("limit", limitSchema)),
		Does: look(g, g.listCalls),
	}, {
		ID: "event.show", Title: "Show a call", Verb: "events show",
		Description: "Returns one recorded call with its redacted arguments and result, or just the one that a handle of its event names " +
			"(args_ref, result_ref). Of several calls with one id it is the first, and others names the records of the rest.",
		Effect: gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapAdmin, SiteWide: true, Needs: Ledger,
		Faces: noChat,
		Input: object("tool_call_id", prop("tool_call_id",
			`{"type":"string","pattern":"^([0-9a-fA-F-]{36}|(effects|looks|refused)/[0-9]{1,18}|artifact://tool_payloads/[0-9a-fA-F-]{36}/(args|result))$","description":"the id of the call, or its record, such as looks/12, or the handle of its arguments or result as its event has it"}`)),
		Does: look(g, g.showCall),
	}, {
		ID: "event.verify", Title: "Verify the records", Verb: "events verify",
		Description: "Checks the hash chains of all recorded calls and of the history of runs.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapAdmin, SiteWide: true, Needs: Ledger,
		Faces: noChat,
		Input: object(""), Does: look(g, g.verifyCalls),
	}}
}

func (g *Gateway) listCalls(ctx context.Context, c gate.Call, a EventListArgs) (out EventList, params any, err error) {
	p, err := g.Ledger.Calls(ctx, ledger.CallFilter{Run: a.Run, RunID: a.RunID, ToolID: a.ToolID, Principal: principalAsked(c, a.Principal),
		Chain: a.Chain, Outcome: a.Outcome, Face: string(a.Face), Address: a.Address, Since: a.Since, Until: a.Until, Failed: a.Failed,
		Cursor: a.Cursor, Limit: a.Limit})
	out = EventList{Listed: listedOf(p.Total), Events: p.Calls, Cursor: cursorOf(p.Cursor)}
	out.Snapshot.Total = p.Total.N
	if n := len(p.Calls); n > 0 {
		out.Snapshot.Newest, out.Snapshot.Oldest = p.Calls[0].Hash, p.Calls[n-1].Hash
	}
	return out, asOf(c, out.Snapshot), err
}

func (g *Gateway) showCall(ctx context.Context, c gate.Call, a EventShowArgs) (out EventStory, params any, err error) {
	e, payloads, others, err := g.Ledger.Call(ctx, a.ToolCallID)
	snapshot := callSnapshot{e.Hash, e.Hash, 1 + int64(len(others))}
	return EventStory{callsAsked{Snapshot: snapshot}, e, payloads, append([]string{}, others...)}, asOf(c, snapshot), err
}

func (g *Gateway) verifyCalls(ctx context.Context, c gate.Call, _ struct{}) (out EventsVerified, params any, err error) {
	out.OK = true
	if out.Calls, err = g.Ledger.VerifyCalls(ctx); err == nil {
		out.History, err = g.Ledger.VerifyEvents(ctx)
	}
	if err == nil {
		out.Erased, err = g.Ledger.Erasures(ctx)
	}
	return out, asOf(c, map[string]any{"chains": out.Calls, "history": out.History}), err
}
