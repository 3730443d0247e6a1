package cli

import (
	"context"
	"encoding/json"

	"slurmgate/app"
	"slurmgate/gate"
	"slurmgate/site"
)

// operation returns one of the gateway's own operations by id; zero if absent.
func operation(h app.Host, id string) app.Operation {
	o, _ := (&app.Gateway{Host: h}).Find(id)
	return o
}

// here carries out an operation on files in this process: through a separate gate, or through the site's for one on a
// site's files.
func (a *Shell) here(ctx context.Context, id string, args, result any) error {
	o := operation(a.Host, id)
	if o.Needs == app.Files {
		return alone(ctx, o.Tool(), args, result)
	}
	s, err := site.Load(a.Site)
	if err != nil {
		return err
	}
	g, who, err := a.SiteGate(ctx, a, s, o.Tool())
	switch {
	case err != nil && o.Effect != gate.Read:
		return err
	case err != nil: // reads files that the user can read without slurmgate
		a.Say("this look is not recorded: %v", err)
		return alone(ctx, o.Tool(), args, result)
	}
	defer g.Close()
	return through(ctx, g, who, o.Tool(), args, result)
}

func alone(ctx context.Context, t gate.Tool, args, result any) error {
	g, err := app.NewGate(gate.Config{Words: gate.Words{gate.Local: Words}}, t)
	if err != nil {
		return err
	}
	return through(ctx, g, gate.Process(), t, args, result)
}

func through(ctx context.Context, g *gate.Gate, who gate.Caller, t gate.Tool, args, result any) error {
	raw, err := json.Marshal(args)
	if err != nil {
		return err
	}
	return decode(g.Call(ctx, who, gate.NewRequest(t.ID, t.Version, raw)), result)
}
