package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// shellTools are the tools that a shell carries out in its own process and records in the site's ledger. config, tool check, tool init and
// domain check are for files that may belong to no site, and leave no record.
func shellTools() []string { return []string{"image.add", "image.list", "image.verify", "site.doctor"} }

// ShellRecord is the record of a call that a shell made in its own process, see [app.onSite].
type ShellRecord struct {
	Chain    string          `json:"chain,omitzero"`
	Event    json.RawMessage `json:"event,omitzero"`
	Payloads []ShellPayload  `json:"payloads,omitzero"`
}

type ShellPayload struct {
	Kind    string          `json:"kind"`
	Payload json.RawMessage `json:"payload"`
}

type shellRecorded struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	Recorded        int    `json:"recorded"`
}

// Unchanged makes the call of event.record itself a look: what it records has a record of its own.
func (shellRecorded) Unchanged() bool { return true }

// recordTool takes the record of a call from a shell. Only an administrator's shell has it: who may add images may also have added one.
func (g *Gateway) recordTool() gate.Tool {
	return builtin("event.record", "Record a call", "Record a call of image or doctor that a shell carried out in its own process, as the "+
		"caller's. Without an event it only tells whether the caller may.", gate.Write,
		object("", prop("chain", `{"enum":["effects","looks"]}`), prop("event", `{"type":"object"}`),
			prop("payloads", `{"type":"array","maxItems":2,"items":{"type":"object","additionalProperties":false,"required":["kind","payload"],"properties":{"kind":{"enum":["args","result"]},"payload":{}}}}`)),
		handler(g.recordShell))
}

func (g *Gateway) recordShell(ctx context.Context, c gate.Call, a ShellRecord) (any, error) {
	prov, err := g.provenance(ctx, "event.record", map[string]any{"args": c.Args})
	if err != nil || len(a.Event) == 0 {
		return shellRecorded{ProvenanceRunID: prov}, err
	}
	r, err := a.record(c.Caller.Name)
	if err == nil {
		err = g.Ledger.Record(ctx, []gate.Record{r})
	}
	return shellRecorded{prov, 1}, err
}

// record checks what a shell sent: an event of one of the shell's tools, and payloads that have its hashes.
func (a ShellRecord) record(principal string) (gate.Record, error) {
	bad := func(field, msg string) error {
		return fault.Invalid("event.record", "", fault.Problem{Code: "SHELL-RECORD", Field: field,
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
	if !slices.Contains(shellTools(), e.ToolID) || e.Transport != gate.Local {
		return gate.Record{}, bad("event.tool_id", "no call of a shell's own")
	}
	if a.Chain == "" || a.Chain == gate.Effects && e.SideEffect == gate.Read {
		return gate.Record{}, bad("chain", "a look is not an effect")
	}
	event, err := plan.Canonical(a.Event)
	r := gate.Record{Chain: a.Chain, Principal: principal, ToolCallID: e.ToolCallID, ToolID: e.ToolID, OK: e.OK, At: time.Now(), Event: event}
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
