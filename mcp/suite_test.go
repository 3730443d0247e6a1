package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"slurmgate/gate"
	"slurmgate/gate/conformance"
	"slurmgate/plan"
)

// asked is the gate as a chat's face reaches it, for one caller.
type asked struct {
	gate *gate.Gate
	who  gate.Caller
}

func (a asked) Tools() []gate.Tool                          { return a.gate.Registry().List() }
func (a asked) Visible(_ context.Context, t gate.Tool) bool { return a.gate.Visible(a.who, t) }
func (a asked) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	return a.gate.Call(ctx, a.who, req), nil
}

// overChat is the way through the protocol on standard input and output: an envelope becomes a call of a tool as a client makes it, and
// what the client is answered becomes an envelope again.
type overChat struct{ session *sdk.ClientSession }

// Lacks implements conformance.Partial.
func (overChat) Lacks() map[conformance.Feature]string {
	return map[conformance.Feature]string{
		conformance.ArgsRef: "the arguments of a call are an object in it, never a reference",
		conformance.ToolIDs: "a client calls a tool by its name: test_read is the tool test.read",
	}
}

func (o overChat) Call(ctx context.Context, req gate.Request) (gate.Response, error) {
	now := time.Now().UTC() // the protocol reports neither the time nor what the call touched
	out := gate.Response{SchemaVersion: gate.SchemaVersion, ToolCallID: req.ToolCallID, TraceID: req.TraceID,
		Timing:    gate.Timing{StartedAt: now, EndedAt: now},
		Resources: gate.Resources{WorkspaceIDs: []string{}, Artifacts: []string{}, Files: []string{}, URLs: []string{}}}
	h := map[string]any{"trace_id": req.TraceID, "tool_call_id": req.ToolCallID, "actor": req.Actor, "dry_run": req.DryRun,
		"tool_version": req.ToolVersion}
	if req.SessionID != nil {
		h["session_id"] = *req.SessionID
	}
	if req.IdempotencyKey != nil {
		h["idempotency_key"] = *req.IdempotencyKey
	}
	res, err := o.session.CallTool(ctx, &sdk.CallToolParams{Name: strings.ReplaceAll(req.ToolID, ".", "_"), Arguments: req.Args,
		Meta: sdk.Meta{handshakeKey: h}})
	if err != nil && strings.Contains(err.Error(), "unknown tool") { // the protocol's own way to say so
		out.Error = &gate.ErrorBody{Code: "tool_not_found", Kind: "validation", Message: err.Error(),
			Details: map[string]any{"kind": "not_found"}}
		return out, nil
	}
	if err != nil {
		return out, err
	}
	back, _ := res.Meta[handshakeKey].(map[string]any)
	out.ToolCallID, out.TraceID = fmt.Sprint(back["tool_call_id"]), fmt.Sprint(back["trace_id"])
	if res.IsError {
		out.Error, err = errorOf(res, back)
		return out, err
	}
	out.OK = true
	if said := back["dry_run"]; said != nil {
		out.Result, err = plan.Marshal(said)
		return out, err
	}
	for _, c := range res.Content {
		if l, ok := c.(*sdk.ResourceLink); ok && l.Name == "result" {
			out.ResultRef = &l.URI
			return out, nil
		}
	}
	out.Result, err = plan.Marshal(res.StructuredContent)
	return out, err
}

var refusalForm = regexp.MustCompile(`(?s)^\S+ \(([a-z_]+)\): (.*?)(?:\n(?:Example: |The same call may succeed later|When it is approved: |Correct the|A chat cannot change this).*)?$`)

// errorOf reads an error as a program does, by its code and kind, and its text as a model does.
func errorOf(res *sdk.CallToolResult, back map[string]any) (*gate.ErrorBody, error) {
	said, _ := back["error"].(map[string]any)
	m := refusalForm.FindStringSubmatch(textOf(res))
	if said == nil || m == nil {
		return nil, fmt.Errorf("no error in %v %q", back, textOf(res))
	}
	e := &gate.ErrorBody{Code: fmt.Sprint(said["code"]), Kind: fmt.Sprint(said["kind"]), Message: m[2], Details: map[string]any{"kind": m[1]}}
	e.Retryable, _ = said["retryable"].(bool)
	return e, nil
}

// The face's part of the suite of the gate, over a chat's protocol. What an envelope can say and a call of a tool cannot is left out, and
// named above; a line that is no message is the protocol's own affair (TestBadLines).
//
// proves HTC-06 HTC-12
func TestConformance(t *testing.T) {
	conformance.RunFace(t, gate.MCP, func(t *testing.T, g *gate.Gate, who gate.Principal) conformance.Entry {
		s := New(Config{Reach: reach, Gateway: asked{g, gate.Caller{Principal: who, Transport: gate.MCP}}, Name: "suite",
			Version: "1.0.0"})
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- Serve(context.WithoutCancel(t.Context()), s, in, out) }()
		c, err := sdk.NewClient(&sdk.Implementation{Name: "suite", Version: "1"}, nil).
			Connect(t.Context(), &sdk.IOTransport{Reader: fromServer, Writer: toServer}, nil)
		must(t, err)
		t.Cleanup(func() {
			c.Close()
			toServer.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return overChat{c}
	})
}

// What is listed is what can be called: no more than the caller may do, and only what a chat has.
func TestListOverTheGate(t *testing.T) {
	handle := func(context.Context, gate.Call) (any, error) { return map[string]any{}, nil }
	made := func(id string, by gate.Transport, caps ...string) gate.Tool {
		x := tool(id, gate.Read, caps...)
		x.Bindings, x.Handle = []gate.Transport{by}, handle
		return x
	}
	r, err := gate.NewRegistry(made("test.mine", gate.MCP, gate.CapRead), made("test.other", gate.MCP, gate.CapSlurm), made("test.elsewhere",
		gate.Other, gate.CapRead), made("artifact.get", gate.MCP, gate.CapGateway, gate.CapRead), made("run.show", gate.MCP, gate.CapGateway,
		gate.CapRead))
	must(t, err)
	who := gate.Caller{Principal: gate.Principal{Name: "a", Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead},
		[]string{gate.All})}, Transport: gate.MCP}
	c := connect(t, New(Config{Gateway: asked{gate.New(gate.Config{Registry: r}), who}, Name: "x", Version: "1"}), nil)
	l, err := c.ListTools(t.Context(), nil)
	must(t, err)
	names := map[string]bool{}
	for _, x := range l.Tools {
		names[x.Name] = true
	}
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, []string{"artifact_get", "test_mine"}) {
		t.Error(got)
	}
	for _, name := range []string{"test_other", "test_elsewhere"} {
		res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(`{}`)})
		if err != nil || !res.IsError {
			t.Errorf("%s was answered with %+v, %v; want an error in the result", name, res, err)
		}
	}
	// A tool can be called by its id too, as programs do; for a tool that the caller may not call that reveals
	// nothing.
	res, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "test.mine", Arguments: json.RawMessage(`{}`)})
	if h, ok := res.Meta[handshakeKey].(map[string]any); err != nil || res.IsError || !ok || h["tool_id"] != "test.mine" {
		t.Errorf("test.mine by its id: %+v %v", res, err)
	}
	for _, id := range []string{"test.other", "test.elsewhere"} {
		_, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: id, Arguments: json.RawMessage(`{}`)})
		if err == nil || !strings.Contains(err.Error(),
			"there is no tool \""+id+"\". Next: the tools of this domain are test_mine; tool_list {\"all\":true} names the others too") {
			t.Errorf("%s: %v", id, err)
		}
	}
}
