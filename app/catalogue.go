package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/toolpack"
	"slurmgate/visible"
)

// catalogue returns the operations that show the tools.
func (g *Gateway) catalogue() []Operation {
	return []Operation{{
		ID: "tool.list", Title: "List tools", Verb: "tool list",
		Description: "Lists the tools of this gateway that you may call, a line for each, in the order of their ids.",
		Chat:        gate.Chat{Has: true, First: true, Bound: "limit", Most: 40, TextAlone: true},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.listTools),
	}, {
		ID: "tool.show", Title: "Show a tool", Verb: "tool show",
		Description: "Describes a tool: its arguments as JSON Schema, inputs, outputs and the resources of a run.",
		Chat:        gate.Chat{Has: true, First: true, TextAlone: true},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.showTool),
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
	ContractVersion string                 `json:"contract_version"`
	Determinism     string                 `json:"determinism"`
	InputSchema     json.RawMessage        `json:"input_schema"`
	OutputSchema    json.RawMessage        `json:"output_schema"`     // of the answer to the call
	RunOutputSchema json.RawMessage        `json:"run_output_schema"` // of result_json.output of the finished run
	Inputs          []PackInput            `json:"inputs"`
	Outputs         []toolpack.OutputInfo  `json:"outputs"`
	Image           *string                `json:"image"`
	Resources       *toolpack.ResourceInfo `json:"resources"`                // of a run; null where a call starts none
	MaxInputBytes   int64                  `json:"max_input_bytes,omitzero"` // of all inputs together
}

// PackInput is an input of a toolpack.
type PackInput = toolpack.InputInfo

// ToolListArgs are the arguments of tool.list.
type ToolListArgs struct {
	All   bool   `json:"all,omitzero" about:"the gateway's operations too" help:"Also list the gateway's own operations."`
	After string `json:"after,omitzero" max:"128" about:"only tools behind this id, for the next page" kong:"-"`
	Limit int    `json:"limit,omitzero" min:"1" max:"200" kong:"-"` // 0: all
}

// ToolArgs are the arguments of tool.show.
type ToolArgs struct {
	ToolID string `json:"tool_id" max:"128" arg:"" name:"tool" help:"Tool id."`
}

// ToolList is the answer of tool.list.
type ToolList struct {
	CallRunID
	DomainID string    `json:"domain_id"`
	Version  string    `json:"version"`
	Total    int       `json:"total"`
	Tools    []ToolRow `json:"tools"`
	After    *string   `json:"after"` // of the next page; null: this is the last
}

// hashCatalogue hashes everything that lists of tools show: the domain's files, the policy and the registry's
// entries.
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

// CatalogVersion returns the version of the catalogue as a caller sees it (AX-03): the manifest's, with a hash of the
// whole catalogue and of the ids of the tools that the caller may call, e.g. 1.0.0+3f9a0c51d2e4.
func (g *Gateway) CatalogVersion(who gate.Caller) string {
	sum := sha256.New()
	io.WriteString(sum, g.offered)
	for _, t := range g.Gate.Offered(who) {
		io.WriteString(sum, "\n"+t.ID)
	}
	return g.Domain.Version() + "+" + hex.EncodeToString(sum.Sum(nil))[:12]
}

func rowOf(t gate.Tool) ToolRow {
	return ToolRow{t.ID, t.Version, t.Title, t.Description, string(t.SideEffect), append([]string{}, t.Purposes...), t.Capabilities}
}

// listTools lists the tools that the caller may call.
func (g *Gateway) listTools(_ context.Context, c gate.Call, a ToolListArgs) (ToolList, error) {
	out := ToolList{DomainID: g.Domain.ID(), Version: g.CatalogVersion(c.Caller), Tools: []ToolRow{}}
	for _, t := range g.Gate.Offered(c.Caller) {
		if slices.Contains(t.Capabilities, gate.CapGateway) && (!a.All || c.Caller.Transport == gate.MCP && !t.Chat.Has) {
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
	return out, nil
}

// Says implements [blocks.Answer].
func (l ToolList) Says() blocks.Document {
	t := Listed{int64(l.Total), true}.table("tools", "in the order of their ids", "tool", "version*", "what it does")
	for _, x := range l.Tools {
		first, _, _ := strings.Cut(x.Description, ". ")
		t.Rows = append(t.Rows, []any{x.ToolID, x.Version, blocks.Say("%v", visible.ClipWords(visible.Line(first), 90))})
	}
	d := blocks.Document{t, blocks.Details("domain", blocks.Say("%v %v", l.DomainID, l.Version))}
	if l.After != nil {
		d = append(d, blocks.More{Verb: "tool.list", Argument: "after", Value: *l.After})
	}
	next := blocks.Advise("Next: %v describes one.", blocks.Next{fault.Do("tool.show", "tool_id", "…")})
	next.Steps = blocks.Next{fault.Do("tool.show")}
	return append(d, next)
}

// Says implements [blocks.Answer].
func (d ToolDoc) Says() blocks.Document {
	var l blocks.Lines
	for _, in := range d.Inputs {
		shape := ""
		if in.List != nil {
			shape = fmt.Sprintf(", a list of %d to %d", in.List.Min, in.List.Max)
		}
		if in.Optional {
			shape += ", optional"
		}
		if in.Group != "" {
			shape += ", of the group " + in.Group
		}
		l.Add("Input %v takes artifacts of type %v%v.", in.Param, strings.Join(in.Types, ", "), shape)
	}
	for _, o := range d.Outputs {
		label := ""
		if o.Label != "" {
			label = ", labelled " + o.Label
		}
		l.Add("Output %v is of type %v%v.", o.Role, o.Type, label)
	}
	if d.Resources != nil {
		l.Add("A run gets %v.", d.Resources.Summary)
	}
	return blocks.Document{blocks.Details("tool", blocks.Say("%v %v (contract %v)", d.ToolID, d.Version, d.ContractVersion),
		"about", d.Description, "image", d.Image), blocks.Schema(d.InputSchema), l}
}

func (g *Gateway) showTool(_ context.Context, c gate.Call, a ToolArgs) (ToolDoc, error) {
	t, err := g.Gate.Offer(c.Caller, a.ToolID)
	if err != nil {
		return ToolDoc{}, err
	}
	d := ToolDoc{ToolRow: rowOf(t), ContractVersion: t.ContractVersion, Determinism: t.Determinism, InputSchema: t.Input,
		OutputSchema: orNull(t.Output), RunOutputSchema: orNull(t.RunOutput), Inputs: []PackInput{}, Outputs: []toolpack.OutputInfo{}}
	if p, err := g.Domain.Packs().Get(t.ID); err == nil {
		d.Inputs, d.Outputs, d.MaxInputBytes = p.Inputs(), p.Outputs(), p.MaxInputBytes()
		if !t.OfService() { // policy decides so about a hybrid tool too
			d.Resources = p.Resources()
		}
		if img := p.Image(); img != "" {
			digest, _ := g.Domain.Lock().Digest(img)
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
