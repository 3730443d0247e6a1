package app

import (
	"context"
	"maps"
	"slices"

	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
)

// aliasKey is the context's key of the run_id of a call, if that is an alias of the run that the call is about.
type aliasKey struct{}

// resolving makes an operation accept the ids under which runs waited for their inputs: its handlers see only ids of
// runs.
func (g *Gateway) resolving(o Operation) Operation {
	wrap := func(h gate.Handler) gate.Handler {
		if h == nil {
			return nil
		}
		return func(ctx context.Context, c gate.Call) (any, error) {
			ctx, c, err := g.resolve(ctx, c)
			if err != nil {
				return nil, err
			}
			return h(ctx, c)
		}
	}
	o.Does.handle, o.DryRun.handle = wrap(o.Does.handle), wrap(o.DryRun.handle)
	if starts := o.Starts; starts != nil {
		o.Starts = func(ctx context.Context, c gate.Call) ([]string, error) {
			ctx, c, err := g.resolve(ctx, c)
			if err != nil {
				return nil, err
			}
			return starts(ctx, c)
		}
	}
	if covers := o.Covers; covers != nil {
		o.Covers = func(ctx context.Context, c gate.Call) (gate.Coverage, error) {
			ctx, c, err := g.resolve(ctx, c)
			if err != nil {
				return gate.Coverage{}, err
			}
			return covers(ctx, c)
		}
	}
	return o
}

// resolve replaces aliases among the arguments of a call by the ids of their runs.
func (g *Gateway) resolve(ctx context.Context, c gate.Call) (context.Context, gate.Call, error) {
	args, _ := c.Value.(map[string]any)
	other := map[string]any{}
	resolve := func(asked any) (runID any, changed bool, err error) {
		id, _ := asked.(string)
		if !plan.IsRunID(id) {
			return asked, false, nil
		}
		is, err := g.Ledger.RunOf(ctx, id)
		return is, is != id, err
	}
	for _, key := range []string{"run_id", "a", "b"} {
		is, changed, err := resolve(args[key])
		if err != nil {
			return ctx, c, err
		}
		if changed {
			other[key] = is
		}
	}
	list, _ := args["run_ids"].([]any)
	ids := slices.Clone(list)
	for i := range list {
		is, changed, err := resolve(list[i])
		if err != nil {
			return ctx, c, err
		}
		if changed {
			ids[i], other["run_ids"] = is, ids
		}
	}
	if len(other) == 0 {
		return ctx, c, nil
	}
	if _, is := other["run_id"]; is {
		ctx = context.WithValue(ctx, aliasKey{}, args["run_id"])
	}
	args = maps.Clone(args)
	maps.Copy(args, other)
	raw, err := plan.Marshal(args)
	c.Args, c.Stored, c.Value = raw, raw, args
	return ctx, c, err
}

// aliasOf returns the id by which a call asks for a run, if it is an alias of the run, else an empty text.
func aliasOf(ctx context.Context, asked, runID string) string {
	if alias, is := ctx.Value(aliasKey{}).(string); is {
		return alias
	}
	if asked != runID { // it has started during the call
		return asked
	}
	return ""
}

// startedRun reads a run that has an attempt.
func (g *Gateway) startedRun(ctx context.Context, runID string) (run.View, error) {
	v, err := g.Ledger.View(ctx, runID)
	if err == nil && v.Waiting != nil {
		err = run.NotStarted(v)
	}
	return v, err
}
