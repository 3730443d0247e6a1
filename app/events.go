package app

import (
	"context"

	"slurmgate/gate"
	"slurmgate/ledger"
)

type EventListArgs struct {
	RunID     string `json:"provenance_run_id,omitzero"`
	ToolID    string `json:"tool_id,omitzero"`
	Principal string `json:"principal,omitzero"`
	Chain     string `json:"chain,omitzero"`
	Failed    bool   `json:"failed,omitzero"`
	Cursor    string `json:"cursor,omitzero"`
	Limit     int    `json:"limit,omitzero"`
}

type EventList struct {
	callsAsked
	Listed
	Events []ledger.CallEvent `json:"events"`
	Cursor *string            `json:"cursor"`
}

type EventShowArgs struct {
	ToolCallID string `json:"tool_call_id"`
}

type EventStory struct {
	callsAsked
	ledger.CallEvent
	Payloads []ledger.CallPayload `json:"payloads"`
}

type EventsVerified struct {
	ProvenanceRunID string `json:"provenance_run_id"`

	OK      bool                `json:"ok"` // always true: a failed check is an error
	Calls   []ledger.ChainState `json:"calls"`
	History int64               `json:"history"` // events of runs and artifacts, checked too
}

func (g *Gateway) eventTools() []gate.Tool {
	text := `{"type":"string","maxLength":256}`
	return []gate.Tool{
		g.recordTool(),
		builtin("event.list", "List calls", "Lists the recorded tool calls, newest first: who called what, over which transport, and the "+
			"outcome.", gate.Read,
			object("", prop("tool_id", text), prop("principal", text), prop("provenance_run_id", runIDSchema),
				prop("chain", `{"enum":["effects","looks"]}`), prop("failed", `{"type":"boolean"}`), prop("cursor", text),
				prop("limit", `{"type":"integer","minimum":1,"maximum":200}`)), handler(func(ctx context.Context, c gate.Call, a EventListArgs) (any,
				error) {
				p, err := g.Ledger.Calls(ctx, ledger.CallFilter{RunID: a.RunID, ToolID: a.ToolID, Principal: a.Principal, Chain: a.Chain,
					Failed: a.Failed, Cursor: a.Cursor, Limit: a.Limit})
				if err != nil {
					return nil, err
				}
				out := EventList{Listed: listedOf(p.Total), Events: p.Calls}
				if p.Cursor != "" {
					out.Cursor = &p.Cursor
				}
				out.Snapshot.Total = p.Total.N
				if n := len(p.Calls); n > 0 {
					out.Snapshot.Newest, out.Snapshot.Oldest = p.Calls[0].Hash, p.Calls[n-1].Hash
				}
				out.ProvenanceRunID, err = g.about(ctx, "event.list", c, out.Snapshot)
				return out, err
			})),
		builtin("event.show", "Show a call", "Returns one recorded call with its redacted arguments and result.", gate.Read,
			object("tool_call_id", prop("tool_call_id", `{"type":"string","pattern":"^[0-9a-fA-F-]{36}$"}`)),
			handler(func(ctx context.Context, c gate.Call, a EventShowArgs) (any, error) {
				e, payloads, err := g.Ledger.Call(ctx, a.ToolCallID)
				if err != nil {
					return nil, err
				}
				snapshot := callSnapshot{e.Hash, e.Hash, 1} // a caller may use an id again; this is the newest record of it
				prov, err := g.about(ctx, "event.show", c, snapshot)
				return EventStory{callsAsked{prov, snapshot}, e, payloads}, err
			})),
		builtin("event.verify", "Verify the records", "Checks the hash chains of all recorded calls and of the history of runs.", gate.Read,
			object(""), handler(func(ctx context.Context, c gate.Call, _ struct{}) (any, error) {
				chains, err := g.Ledger.VerifyCalls(ctx)
				if err != nil {
					return nil, err
				}
				n, err := g.Ledger.VerifyEvents(ctx)
				if err != nil {
					return nil, err
				}
				prov, err := g.about(ctx, "event.verify", c, map[string]any{"chains": chains, "history": n})
				return EventsVerified{prov, true, chains, n}, err
			})),
	}
}
