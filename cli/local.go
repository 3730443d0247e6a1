package cli

import (
	"context"
	"encoding/json"

	"slurmgate/app"
	"slurmgate/gate"
	"slurmgate/site"
)

// operation finds one of the operations that need no gateway.
func (a *Shell) operation(id string) gate.Tool {
	o, _ := (&app.Gateway{Host: a.Host}).Find(id)
	return o.Tool()
}

// local runs an operation that needs no gateway, through a gate of its own.
func (a *Shell) local(ctx context.Context, id string, args, result any) error {
	return alone(ctx, a.operation(id), args, result)
}

func alone(ctx context.Context, t gate.Tool, args, result any) error {
	r, err := gate.NewRegistry(t)
	if err != nil {
		return err
	}
	return through(ctx, gate.New(gate.Config{Registry: r}), gate.Process(), t, args, result)
}

// onSite carries out a tool of a site in this process.
func (a *Shell) onSite(ctx context.Context, s *site.Site, id string, args, result any) error {
	t := a.operation(id)
	g, who, err := a.SiteGate(ctx, a, s, t)
	switch {
	case err != nil && t.SideEffect != gate.Read:
		return err
	case err != nil: // a look at files that the user can read without slurmgate
		a.Say("this look is not recorded: %v", err)
		return alone(ctx, t, args, result)
	}
	defer g.Close()
	return through(ctx, g, who, t, args, result)
}

func through(ctx context.Context, g *gate.Gate, who gate.Caller, t gate.Tool, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return decode(g.Call(ctx, who, gate.NewRequest(t.ID, t.Version, raw)), result)
}
