package main

import (
	"context"

	"slurmgate/gate"
	"slurmgate/ledger"
)

type eventListArgs struct {
	ToolID    string `json:"tool_id,omitzero"`
	Principal string `json:"principal,omitzero"`
	Chain     string `json:"chain,omitzero"`
	Failed    bool   `json:"failed,omitzero"`
	Cursor    string `json:"cursor,omitzero"`
	Limit     int    `json:"limit,omitzero"`
}

type eventList struct {
	moment
	Events []ledger.CallEvent `json:"events"`
	Cursor *string            `json:"cursor"`
}

type eventShowArgs struct {
	ToolCallID string `json:"tool_call_id"`
}

type eventStory struct {
	moment
	ledger.CallEvent
	Payloads []ledger.CallPayload `json:"payloads"`
}

type eventsVerified struct {
	moment
	OK      bool                `json:"ok"` // always true: a failed check is an error
	Calls   []ledger.ChainState `json:"calls"`
	History int64               `json:"history"` // events of runs and artifacts, checked too
}

func (g *gateway) eventTools() []gate.Tool {
	text := `{"type":"string","maxLength":256}`
	return []gate.Tool{
		builtin("event.list", "List calls", "Lists the recorded tool calls, newest first: who called what, over which transport, and the outcome.", gate.Read,
			object("", prop("tool_id", text), prop("principal", text), prop("chain", `{"enum":["effects","looks"]}`), prop("failed", `{"type":"boolean"}`), prop("cursor", text),
				prop("limit", `{"type":"integer","minimum":1,"maximum":200}`)), handler(func(ctx context.Context, c gate.Call, a eventListArgs) (any, error) {
				found, cursor, err := g.ledger.Calls(ctx, ledger.CallFilter{ToolID: a.ToolID, Principal: a.Principal, Chain: a.Chain, Failed: a.Failed, Cursor: a.Cursor, Limit: a.Limit})
				if err != nil {
					return nil, err
				}
				out := eventList{Events: found}
				if cursor != "" {
					out.Cursor = &cursor
				}
				out.moment, err = g.at("event.list", c)
				return out, err
			})),
		builtin("event.show", "Show a call", "Returns one recorded call with its redacted arguments and result.", gate.Read,
			object("tool_call_id", prop("tool_call_id", `{"type":"string","pattern":"^[0-9a-fA-F-]{36}$"}`)), handler(func(ctx context.Context, c gate.Call, a eventShowArgs) (any, error) {
				e, payloads, err := g.ledger.Call(ctx, a.ToolCallID)
				if err != nil {
					return nil, err
				}
				when, err := g.at("event.show", c)
				return eventStory{when, e, payloads}, err
			})),
		builtin("event.verify", "Verify the records", "Checks the hash chains of all recorded calls and of the history of runs.", gate.Read, object(""), handler(func(ctx context.Context, c gate.Call, _ struct{}) (any, error) {
			chains, err := g.ledger.VerifyCalls(ctx)
			if err != nil {
				return nil, err
			}
			n, err := g.ledger.VerifyEvents(ctx)
			if err != nil {
				return nil, err
			}
			when, err := g.at("event.verify", c)
			return eventsVerified{when, true, chains, n}, err
		})),
	}
}
