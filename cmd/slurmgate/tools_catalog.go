package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"

	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/plan"
)

// catalogTools show the tools.
func (g *gateway) catalogTools() []gate.Tool {
	return []gate.Tool{
		builtin("tool.list", "List tools", "The tools of this gateway that you may call.", gate.Read,
			object("", prop("all", `{"type":"boolean","description":"gateway operations too"}`)), handler(g.listTools)),
		builtin("tool.show", "Show a tool", "A tool's contract: what goes in, what comes out.", gate.Read,
			object("tool_id", prop("tool_id", `{"type":"string","maxLength":128}`)), handler(g.showTool))}
}

type toolRow struct {
	ToolID      string   `json:"tool_id"`
	Version     string   `json:"tool_version"`
	DisplayName string   `json:"display_name"`
	Description string   `json:"description"`
	SideEffect  string   `json:"side_effect"`
	Purposes    []string `json:"capabilities"` // what the tool is for
	Caps        []string `json:"required_capabilities"`
}

type toolDoc struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	toolRow
	ContractVersion string          `json:"contract_version"`
	Determinism     string          `json:"determinism"`
	InputSchema     json.RawMessage `json:"input_schema"`
	OutputSchema    json.RawMessage `json:"output_schema"`     // of the answer to the call
	RunOutputSchema json.RawMessage `json:"run_output_schema"` // of result_json.output of the finished run
	Inputs          []packInput     `json:"inputs"`
	Outputs         []packOutput    `json:"outputs"`
	Image           *string         `json:"image"`
}

type packInput struct {
	Role  string   `json:"role"`
	Param string   `json:"param"`
	Types []string `json:"types"`
}

type packOutput struct {
	Role  string `json:"role"`
	Type  string `json:"type"`
	Label string `json:"label"`
}

type toolArgs struct {
	ToolID string `json:"tool_id,omitzero"`
	All    bool   `json:"all,omitzero"`
}

type toolList struct {
	ProvenanceRunID string    `json:"provenance_run_id"`
	DomainID        string    `json:"domain_id"`
	Version         string    `json:"version"`
	Total           int       `json:"total"`
	Tools           []toolRow `json:"tools"`
}

// catalogParams are the canonical params of a call that lists or shows tools: they change only with the catalogue that the caller sees.
type catalogParams struct {
	DomainID string `json:"domain_id"`
	Version  string `json:"version"`
	All      bool   `json:"all"`
	ToolID   string `json:"tool_id"`
}

// hashCatalogue hashes everything that lists of tools show: the domain's files, the policy, and all that the registry says.
func (g *gateway) hashCatalogue() (string, error) {
	var entries []httpapi.Entry
	workers := map[string]*gate.Worker{}
	for _, t := range g.gate.Registry().List() {
		entries = append(entries, httpapi.EntryOf(g.gate, t))
		workers[t.ID] = t.Worker
	}
	doc, err := plan.Marshal(map[string]any{"domain": g.domain.CatalogVersion(), "policy": g.policy.Hash, "tools": entries,
		"workers": workers})
	return plan.Hash(doc), err
}

// catalogVersion is the version of the catalogue as a caller sees it (AX-03): the manifest's, with a hash of the whole catalogue and of
// which tools the caller may call, e.g. 1.0.0+3f9a0c51d2e4.
func (g *gateway) catalogVersion(who gate.Caller) string {
	sum := sha256.New()
	io.WriteString(sum, g.catalogue)
	for _, t := range g.gate.Offered(who) {
		io.WriteString(sum, "\n"+t.ID)
	}
	return g.domain.Version() + "+" + hex.EncodeToString(sum.Sum(nil))[:12]
}

func (g *gateway) catalogLook(ctx context.Context, c gate.Call, toolID string, a toolArgs) (string, error) {
	return g.provenance(ctx, toolID, catalogParams{g.domain.ID(), g.catalogVersion(c.Caller), a.All, a.ToolID})
}

func rowOf(t gate.Tool) toolRow {
	return toolRow{t.ID, t.Version, t.Title, t.Description, string(t.SideEffect), append([]string{}, t.Purposes...), t.Capabilities}
}

// listTools lists the tools that the caller may call.
func (g *gateway) listTools(ctx context.Context, c gate.Call, a toolArgs) (any, error) {
	prov, err := g.catalogLook(ctx, c, "tool.list", a)
	if err != nil {
		return nil, err
	}
	out := toolList{ProvenanceRunID: prov, DomainID: g.domain.ID(), Version: g.catalogVersion(c.Caller), Tools: []toolRow{}}
	for _, t := range g.gate.Offered(c.Caller) {
		if a.All || !contains(t.Capabilities, "gateway") {
			out.Tools = append(out.Tools, rowOf(t))
		}
	}
	out.Total = len(out.Tools)
	return out, nil
}

func (g *gateway) showTool(ctx context.Context, c gate.Call, a toolArgs) (any, error) {
	t, err := g.gate.Offer(c.Caller, a.ToolID)
	if err != nil {
		return nil, err
	}
	prov, err := g.catalogLook(ctx, c, "tool.show", a)
	if err != nil {
		return nil, err
	}
	d := toolDoc{ProvenanceRunID: prov, toolRow: rowOf(t), ContractVersion: t.ContractVersion, Determinism: t.Determinism,
		InputSchema:  t.Input,
		OutputSchema: orNull(t.Output), RunOutputSchema: orNull(t.RunOutput), Inputs: []packInput{}, Outputs: []packOutput{}}
	if p, err := g.domain.Packs().Get(t.ID); err == nil {
		for _, in := range p.Inputs() {
			d.Inputs = append(d.Inputs, packInput{in.Role, in.Param, in.Types})
		}
		for _, o := range p.Outputs() {
			d.Outputs = append(d.Outputs, packOutput{o.Role, o.Type, o.Label})
		}
		if img := p.Image(); img != "" {
			digest, _ := g.domain.Lock().Digest(img)
			ref := img + "@" + digest
			d.Image = &ref
		}
	}
	return d, nil
}

func orNull(b json.RawMessage) json.RawMessage {
	if len(b) == 0 {
		return json.RawMessage("null")
	}
	return b
}
