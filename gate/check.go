package gate

import (
	"context"
	"encoding/json"

	"slurmgate/plan"
)

// Check decides about a call as [Gate.Call] does before the tool is reached: whether the caller may make it, its
// arguments without secrets and valid for the tool's schema, and the things that they name. It returns the call as
// the tool would get it. With dry, what an earlier dry run of an import would have stored counts as stored. Check
// records nothing and leaves consent and limits to the call.
func (g *Gate) Check(ctx context.Context, who Caller, toolID string, args json.RawMessage, dry bool) (c Call, err error) {
	e, err := g.registry.reach(toolID, who.Transport)
	if err == nil {
		err = g.allowed(who, e.tool)
	}
	if err != nil {
		return c, err
	}
	var t trail
	if t.given, err = plan.Read(args); err != nil {
		return c, err
	}
	req := Request{ToolID: toolID, ToolVersion: e.tool.Version, Args: args, DryRun: dry}
	if err := g.understand(ctx, who, e, req, &t); err != nil {
		return c, err
	}
	return Call{Caller: who, Needs: e.tool.Capabilities, Request: req, Args: t.args.Bytes, Value: t.args.Value, Stored: t.args.Bytes,
		Hidden: t.hidden}, nil
}
