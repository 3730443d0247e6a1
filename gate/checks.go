package gate

import (
	"context"

	"slurmgate/fault"
)

// Most calls that may start a run do not depend on their client: once begun they are carried out. A tool that reads
// much before it has an effect ([Tool.Checks]) would continue long after its client has left, and delay a stop. Its
// calls end with their client, and with the gateway, until the handler reports that the effect begins.

// Detached reports whether a call of a tool is carried out although its client leaves.
func (r *Registry) Detached(toolID string, dryRun bool) bool {
	t, err := r.Find(toolID)
	return err == nil && t.SideEffect == Execute && !t.Checks && !dryRun
}

// Effect returns a context for the effect of a call of a tool with [Tool.Checks], which neither its client nor the
// gateway's end cancels. It is an error if the call has ended before.
func Effect(ctx context.Context) (context.Context, error) {
	if err := ctx.Err(); err != nil {
		return ctx, err
	}
	return context.WithoutCancel(ctx), nil
}

// EndChecks ends the calls of such tools that have had no effect yet, and later ones at once.
func (g *Gate) EndChecks() { g.endChecks() }

// checking returns a context that ends when the gateway does.
func (g *Gate) checking(ctx context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(g.checks, func() {
		cancel(fault.New(fault.Transport, "gateway_stopping", "the gateway is being stopped or reloaded, and nothing was started").
			WithNext("make the same call again").WithRetry(retryIn))
	})
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}
