package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// ShellRecord is the record of a call that a shell made in its own process, see [app.onSite].
type ShellRecord struct {
	Chain    string          `json:"chain,omitzero" enum:"effects,looks,refused"`
	Event    json.RawMessage `json:"event,omitzero" kind:"object"`
	Payloads []ShellPayload  `json:"payloads,omitzero" count:"-2"`
}

// ShellPayload is the arguments or the result of such a call.
type ShellPayload struct {
	Kind    string          `json:"kind" enum:"args,result"`
	Payload json.RawMessage `json:"payload"`
}

type shellRecorded struct {
	CallRunID
	Recorded int `json:"recorded"`
}

// Unchanged makes the record of event.record's own call one of the looks: the recorded call has its own record.
func (shellRecorded) Unchanged() bool { return true }

// recordShell stores the record of a call from a shell.
func (g *Gateway) recordShell(ctx context.Context, c gate.Call, a ShellRecord) (out shellRecorded, err error) {
	if len(a.Event) > 0 {
		r, err := a.record(c.Caller)
		if err == nil {
			err = g.Ledger.Record(ctx, []gate.Record{r})
		}
		if err != nil {
			return out, err
		}
		out.Recorded = 1
	}
	return out, nil
}

// record checks the record from a shell: an event of one of the shell's tools, and payloads that match its hashes.
func (a ShellRecord) record(who gate.Caller) (gate.Record, error) {
	bad := func(field, msg string) error {
		return fault.Invalid("", fault.Problem{Code: "SHELL-RECORD", Field: field,
			Rule: "the record of a call of image or doctor", Msg: msg})
	}
	if err := gate.CheckEvent(a.Event); err != nil {
		return gate.Record{}, err
	}
	var e struct {
		ToolCallID string          `json:"tool_call_id"`
		ToolID     string          `json:"tool_id"`
		Transport  gate.Transport  `json:"transport"`
		SideEffect gate.SideEffect `json:"side_effect"`
		OK         bool            `json:"ok"`
		ArgsHash   string          `json:"args_hash"`
		ResultHash string          `json:"result_hash"`
	}
	if err := json.Unmarshal(a.Event, &e); err != nil {
		return gate.Record{}, err
	}
	if !isShells(e.ToolID) || e.Transport != gate.Local {
		return gate.Record{}, bad("event.tool_id", "the event is not about a call of image or doctor")
	}
	if a.Chain == "" || a.Chain == gate.Effects && e.SideEffect == gate.Read {
		return gate.Record{}, bad("chain", "the chain is missing, or has no events of tools that only read")
	}
	event, err := plan.Canonical(a.Event)
	r := gate.Record{Chain: a.Chain, Principal: who.Name, PrincipalID: who.ID, Face: who.Face, Address: who.Address,
		ToolCallID: e.ToolCallID, ToolID: e.ToolID, OK: e.OK,
		At: time.Now(), Event: event}
	for _, p := range a.Payloads {
		doc, err := plan.Canonical(p.Payload)
		if err != nil {
			return r, err
		}
		sum := sha256.Sum256(doc)
		hash := hex.EncodeToString(sum[:])
		if hash != map[string]string{"args": e.ArgsHash, "result": e.ResultHash}[p.Kind] {
			return r, bad("payloads", "the event has another hash of the "+p.Kind)
		}
		r.Payloads = append(r.Payloads, gate.Payload{Kind: p.Kind, JSON: doc, SHA256: hash})
	}
	return r, err
}

// isShells reports whether a shell executes and records a tool's calls.
func isShells(id string) bool {
	o, ok := new(Gateway).Find(id)
	return ok && o.Needs == Site
}
