package cli

import (
	"context"
	"slices"

	"slurmgate/gate"
	"slurmgate/httpapi"
)

// Chat is the gate behind the socket as a chat assistant sees it: an mcp.Gateway.
type Chat struct {
	link  *link
	tools []gate.Tool
}

// Chat reads the tools that the gateway offers this user.
func (s *Session) Chat(ctx context.Context) (c *Chat, r httpapi.Registry, err error) {
	err = s.retry(ctx, func(c *httpapi.Client) (err error) {
		r, err = c.As(gate.FaceMCP).Registry(ctx)
		return err
	})
	return &Chat{link: s.link, tools: r.Tools}, r, err
}

// Tools implements mcp.Gateway. The gateway has listed only what this user may call.
func (c *Chat) Tools() []gate.Tool { return slices.Clone(c.tools) }

// Visible implements mcp.Gateway.
func (c *Chat) Visible(context.Context, gate.Tool) bool { return true }

// Call implements mcp.Gateway. The file of an import is opened here, as the chat's user. When the gateway goes away the call is sent again
// to the next one, under the same key where it needs one.
func (c *Chat) Call(ctx context.Context, req gate.Request) (res gate.Response, err error) {
	if i := slices.IndexFunc(c.tools, func(t gate.Tool) bool { return t.ID == req.ToolID }); i >= 0 {
		ownKey(&req, c.tools[i].Idempotency)
	}
	req, file, err := handOverIn(req)
	if err != nil {
		return res, err
	}
	if file != nil {
		defer file.Close()
	}
	err = c.link.retry(ctx, func(to *httpapi.Client) (err error) {
		res, err = to.As(gate.FaceMCP).CallWith(ctx, req, file)
		return err
	})
	return res, err
}
