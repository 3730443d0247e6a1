package mcp

import (
	"context"
	"encoding/json"
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/visible"
)

// answered answers a successful call.
func (s *server) answered(ctx context.Context, t gate.Tool, req gate.Request, res gate.Response) *sdk.CallToolResult {
	if !t.Chat.TextAlone || res.ResultRef != nil {
		return answer(s.words, t, req, res)
	}
	text := documentText(s.words, t.Name(), said(t, json.RawMessage(visible.Strings(res.Result))))
	if t.ID == "tool.show" {
		text = s.contract(ctx, res.Result, text)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, Meta: correlation(req, res.TraceID)}
}

// contract describes how a chat calls a tool, and what is in the answer.
func (s *server) contract(ctx context.Context, result json.RawMessage, text string) string {
	var d struct {
		ToolID string `json:"tool_id"`
	}
	_ = json.Unmarshal(result, &d) // what cannot be read names no tool
	t, ok := s.now().ids[d.ToolID]
	if !ok {
		return d.ToolID + " is an operation that a chat does not have. Next: tool_list names those that it has."
	}
	return fmt.Sprintf("%s %s: %s\n%s\nNext: %s", t.ID, t.Version, plainLines(describe(t), maxDescription), text,
		whereIDs(s.spelled(ctx, t, example(t, nil, details{})), "…"))
}

// notATool returns the fault for a name that is no tool's.
func notATool(message string) error { return fault.New(fault.NotFound, "tool_not_found", message) }
