package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/visible"
)

// chatTools is how many tools an answer of tool_list names; those that fit are shown.
const chatTools = 40

// maxShown bounds what tool_show says of a tool: its schema is what a list of tools would have had, so it may be larger than other answers.
const maxShown = 10_000

// answered is the answer to a successful call. The catalogue's own answers are a text and nothing else: what a model reads twice it pays
// for twice.
func (s *server) answered(ctx context.Context, t gate.Tool, req gate.Request, res gate.Response) *sdk.CallToolResult {
	text := ""
	switch {
	case res.ResultRef != nil:
	case t.ID == "tool.list":
		text = s.toolLines(res.Result)
	case t.ID == "artifact.find":
		var r result
		_ = json.Unmarshal(visible.Strings(res.Result), &r) // what cannot be decoded is left out
		text = r.tell(t)
	case t.ID == "tool.show":
		text = s.contract(ctx, res.Result)
	}
	if text == "" {
		return answer(t, req, res)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, Meta: correlation(req, res.TraceID)}
}

// textAlone are the operations whose answers have no structured content.
var textAlone = map[string]bool{"tool.list": true, "tool.show": true, "artifact.find": true}

// toolLines has a line for each tool of a page.
func (s *server) toolLines(result json.RawMessage) string {
	var l struct {
		Total int `json:"total"`
		Tools []struct {
			ToolID      string `json:"tool_id"`
			Description string `json:"description"`
		} `json:"tools"`
		After *string `json:"after"`
	}
	if json.Unmarshal(result, &l) != nil {
		return ""
	}
	var lines []string
	for _, t := range l.Tools {
		if _, ok := s.now().ids[t.ToolID]; ok { // a chat has not every operation
			line, _, _ := strings.Cut(plain(t.Description, 400), ". ")
			lines = append(lines, t.ToolID+": "+clipWord(line, 90))
		}
	}
	text := fmt.Sprintf("%d tools in all, in the order of their ids:\n%s", l.Total, strings.Join(lines, "\n"))
	if l.After != nil {
		text += fmt.Sprintf("\nThere are more: call tool_list again with after %q.", *l.After)
	}
	return text + "\nNext: tool_show {\"tool_id\":\"…\"} describes one."
}

// clipWord cuts a text between words.
func clipWord(s string, n int) string {
	short := clip(s, n)
	if i := strings.LastIndexByte(short, ' '); len(short) < len(s) && i > 0 {
		return short[:i] + " …"
	}
	return short
}

// contract says how a tool is called, and what it gives.
func (s *server) contract(ctx context.Context, result json.RawMessage) string {
	var d struct {
		ToolID      string          `json:"tool_id"`
		Version     string          `json:"tool_version"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"input_schema"`
		Inputs      []struct {
			Param string   `json:"param"`
			Types []string `json:"types"`
		} `json:"inputs"`
		Outputs []struct {
			Role string `json:"role"`
			Type string `json:"type"`
		} `json:"outputs"`
	}
	if json.Unmarshal(result, &d) != nil {
		return ""
	}
	t, ok := s.now().ids[d.ToolID]
	if !ok {
		return d.ToolID + " is an operation that a chat does not have. Next: tool_list names those that it has."
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s\nArguments, as JSON Schema: %s", d.ToolID, d.Version, plainLines(describe(t), maxDescription),
		clip(string(briefSchema(d.Input)), maxShown))
	for _, in := range d.Inputs {
		fmt.Fprintf(&b, "\nInput %s takes artifacts of type %s.", in.Param, strings.Join(in.Types, ", "))
	}
	for i, o := range d.Outputs {
		if i == 0 {
			b.WriteString("\nOutputs:")
		}
		fmt.Fprintf(&b, " %s (%s)", plain(o.Role, 64), plain(o.Type, 32))
	}
	fmt.Fprintf(&b, "\nNext: %s", whereIDs(s.spelled(ctx, t, example(t, nil, details{})), "…"))
	return b.String()
}

// notATool is the fault of a name that is no tool's.
func notATool(message string) error { return fault.New(fault.NotFound, "tool_not_found", message) }
