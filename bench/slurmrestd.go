package main

import (
	"context"
	"time"

	"slurmgate/slurm/rest"
)

// socket is the address of the slurmrestd of the gateway's user in the devcluster; it knows its callers by their user.
const socket = "unix:/run/slurmrestd/slurmrestd.sock"

// overREST makes the rig ask slurmrestd instead of starting Slurm's commands.
func (g *rig) overREST() error {
	s, err := rest.New(rest.Config{URL: socket, User: user, Script: script, RPCPerMinute: g.rates.rpcPerMinute,
		Control: g.staging.ReadControlFrom})
	if err != nil {
		return err
	}
	g.parts.Renderer, g.parts.Submitter, g.parts.Queue, g.parts.Accounting, g.parts.Canceller, g.parts.Pace = s, s, s, s, s, s.Pace
	g.closers = append(g.closers, s.Close)
	return nil
}

// restRace submits the same script in blocks, in turns: by the engine over slurmrestd, durably, with as many posts at a time as the engine
// has workers; by one sbatch after another; and by as many sbatch at a time.
func (m *measurement) restRace(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return err
	}
	defer g.close()
	if err := g.overREST(); err != nil {
		return err
	}
	return g.during(ctx, func() error {
		if _, err := g.send(ctx, 0, m.sizes.Block); err != nil { // warm, and the source of the bare command line
			return err
		}
		argv, err := g.bareJob(ctx, 0)
		if err != nil {
			return err
		}
		over := &lane{name: "rest_submit", send: g.send}
		loop := &lane{name: "sbatch_loop", send: func(ctx context.Context, _, n int) (time.Duration, error) { return sendBare(ctx, argv, 1, n) }}
		four := &lane{name: "sbatch_workers", send: func(ctx context.Context, _, n int) (time.Duration, error) {
			return sendBare(ctx, argv, workers, n)
		}}
		if _, err := m.turns(ctx, g, []*lane{over, loop, four}); err != nil {
			return err
		}
		m.ratio("rest_submit_ratio", loop, over, ">=2.4", append(m.raceParams(), "beside=sbatch_loop", "moonshot=4"))
		m.ratio("rest_submit_ratio", four, over, "", append(m.raceParams(), "beside=sbatch_workers"))
		return nil
	})
}
