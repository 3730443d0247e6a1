package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/toolpack"
)

// catalogue are the operations that show the tools.
func (g *Gateway) catalogue() []Operation {
	return []Operation{{
		ID: "tool.list", Title: "List tools", Verb: "tool list",
		Description: "Lists the tools of this gateway that you may call, a line for each, in the order of their ids.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("", prop("all", `{"type":"boolean","description":"the gateway's operations too"}`),
			prop("after", `{"type":"string","maxLength":128,"description":"only tools behind this id, for the next page"}`),
			prop("limit", limitSchema)), Does: look(g, g.listTools),
	}, {
		ID: "tool.show", Title: "Show a tool", Verb: "tool show",
		Description: "Describes a tool: its arguments as JSON Schema, the inputs it takes and the outputs it gives.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Input: object("tool_id", prop("tool_id", `{"type":"string","maxLength":128}`)), Does: look(g, g.showTool),
	}}
}

// ToolRow is a tool in a list.
type ToolRow struct {
	ToolID      string   `json:"tool_id"`
	Version     string   `json:"tool_version"`
	DisplayName string   `json:"display_name"`
	Description string   `json:"description"`
	SideEffect  string   `json:"side_effect"`
	Purposes    []string `json:"capabilities"` // what the tool is for
	Caps        []string `json:"required_capabilities"`
}

// ToolDoc is a tool with its contract.
type ToolDoc struct {
	CallRunID
	ToolRow
	ContractVersion string                `json:"contract_version"`
	Determinism     string                `json:"determinism"`
	InputSchema     json.RawMessage       `json:"input_schema"`
	OutputSchema    json.RawMessage       `json:"output_schema"`     // of the answer to the call
	RunOutputSchema json.RawMessage       `json:"run_output_schema"` // of result_json.output of the finished run
	Inputs          []PackInput           `json:"inputs"`
	Outputs         []toolpack.OutputInfo `json:"outputs"`
	Image           *string               `json:"image"`
	MaxInputBytes   int64                 `json:"max_input_bytes,omitzero"` // of all inputs together
}

// PackInput is an input of a toolpack.
type PackInput = toolpack.InputInfo

// ToolArgs are the arguments of tool.list and tool.show.
type ToolArgs struct {
	ToolID string `json:"tool_id,omitzero"`
	All    bool   `json:"all,omitzero"`
	After  string `json:"after,omitzero"` // the last id of the page before
	Limit  int    `json:"limit,omitzero"` // 0: all
}

// ToolList is the answer of tool.list.
type ToolList struct {
	CallRunID
	DomainID string    `json:"domain_id"`
	Version  string    `json:"version"`
	Total    int       `json:"total"`
	Tools    []ToolRow `json:"tools"`
	After    *string   `json:"after"` // of the next page; null: there is none
}

// catalogParams are the canonical params of a call that lists or shows tools: they change only with the catalogue that the caller sees.
type catalogParams struct {
	DomainID string `json:"domain_id"`
	Version  string `json:"version"`
	All      bool   `json:"all"`
	ToolID   string `json:"tool_id"`
	After    string `json:"after,omitzero"`
	Limit    int    `json:"limit,omitzero"`
}

// hashCatalogue hashes everything that lists of tools show: the domain's files, the policy, and all that the registry says.
func (g *Gateway) hashCatalogue() (string, error) {
	var entries []any
	workers := map[string]*gate.Worker{}
	for _, t := range g.Gate.Registry().List() {
		entries = append(entries, g.Entry(g.Gate, t))
		workers[t.ID] = t.Worker
	}
	doc, err := plan.Marshal(map[string]any{"domain": g.Domain.CatalogVersion(), "policy": g.Policy.Hash, "tools": entries,
		"workers": workers})
	return plan.Hash(doc), err
}

// CatalogVersion is the version of the catalogue as a caller sees it (AX-03): the manifest's, with a hash of the whole catalogue and of
// which tools the caller may call, e.g. 1.0.0+3f9a0c51d2e4.
func (g *Gateway) CatalogVersion(who gate.Caller) string {
	sum := sha256.New()
	io.WriteString(sum, g.offered)
	for _, t := range g.Gate.Offered(who) {
		io.WriteString(sum, "\n"+t.ID)
	}
	return g.Domain.Version() + "+" + hex.EncodeToString(sum.Sum(nil))[:12]
}

func (g *Gateway) catalogueOf(c gate.Call, a ToolArgs) catalogParams {
	return catalogParams{g.Domain.ID(), g.CatalogVersion(c.Caller), a.All, a.ToolID, a.After, a.Limit}
}

func rowOf(t gate.Tool) ToolRow {
	return ToolRow{t.ID, t.Version, t.Title, t.Description, string(t.SideEffect), append([]string{}, t.Purposes...), t.Capabilities}
}

// listTools lists the tools that the caller may call.
func (g *Gateway) listTools(_ context.Context, c gate.Call, a ToolArgs) (ToolList, any, error) {
	params := g.catalogueOf(c, a)
	out := ToolList{DomainID: params.DomainID, Version: params.Version, Tools: []ToolRow{}}
	for _, t := range g.Gate.Offered(c.Caller) {
		if !a.All && slices.Contains(t.Capabilities, gate.CapGateway) {
			continue
		}
		out.Total++
		switch last := len(out.Tools) - 1; {
		case t.ID <= a.After:
		case a.Limit == 0 || len(out.Tools) < a.Limit:
			out.Tools = append(out.Tools, rowOf(t))
		default:
			out.After = &out.Tools[last].ToolID
		}
	}
	return out, params, nil
}

func (g *Gateway) showTool(_ context.Context, c gate.Call, a ToolArgs) (ToolDoc, any, error) {
	t, err := g.Gate.Offer(c.Caller, a.ToolID)
	if err != nil {
		return ToolDoc{}, nil, err
	}
	d := ToolDoc{ToolRow: rowOf(t), ContractVersion: t.ContractVersion, Determinism: t.Determinism, InputSchema: t.Input,
		OutputSchema: orNull(t.Output), RunOutputSchema: orNull(t.RunOutput), Inputs: []PackInput{}, Outputs: []toolpack.OutputInfo{}}
	if p, err := g.Domain.Packs().Get(t.ID); err == nil {
		d.Inputs, d.Outputs, d.MaxInputBytes = p.Inputs(), p.Outputs(), p.MaxInputBytes()
		if img := p.Image(); img != "" {
			digest, _ := g.Domain.Lock().Digest(img)
			ref := img + "@" + digest
			d.Image = &ref
		}
	}
	return d, g.catalogueOf(c, a), nil
}

func orNull(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return json.RawMessage("null")
	}
	return b
}
