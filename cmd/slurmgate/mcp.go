package main

import (
	"context"
	"os"
	"slices"

	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/mcp"
)

type mcpCmd struct{}

// Run serves a chat on standard input and output, also through ssh. It uses the gateway's socket, or is the gateway itself while it runs.
func (mcpCmd) Run(ctx context.Context, a *app) error {
	return a.with(ctx, func(s *session) error {
		reg, err := s.registry(ctx)
		if err != nil {
			return err
		}
		chat := mcp.New(mcp.Config{Gateway: &stdioGate{link: s.link, tools: reg.Tools}, Name: reg.DomainID, Version: reg.Version, Log: a.log})
		return mcp.Serve(ctx, chat, os.Stdin, os.Stdout)
	})
}

// registry reads the tools that the gateway offers this user.
func (s *session) registry(ctx context.Context) (r httpapi.Registry, err error) {
	err = s.retry(ctx, func(c *httpapi.Client) (err error) {
		r, err = c.As(gate.MCP).Registry(ctx)
		return err
	})
	return r, err
}

// stdioGate is the gate behind the socket.
type stdioGate struct {
	link  *link
	tools []gate.Tool
}

// Tools implements mcp.Gateway. The gateway has listed only what this user may call.
func (g *stdioGate) Tools() []gate.Tool { return slices.Clone(g.tools) }

// Visible implements mcp.Gateway.
func (g *stdioGate) Visible(context.Context, gate.Tool) bool { return true }

// Call implements mcp.Gateway. When the gateway goes away the call is sent again to the next one, under the same key where it needs one.
func (g *stdioGate) Call(ctx context.Context, req gate.Request) (res gate.Response, err error) {
	if i := slices.IndexFunc(g.tools, func(t gate.Tool) bool { return t.ID == req.ToolID }); i >= 0 {
		ownKey(&req, g.tools[i].Idempotency)
	}
	err = g.link.retry(ctx, func(c *httpapi.Client) (err error) {
		res, err = c.As(gate.MCP).Call(ctx, req)
		return err
	})
	return res, err
}
