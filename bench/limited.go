package main

import (
	"context"
	"fmt"
	"time"

	"slurmgate/ledger"
	"slurmgate/run"
)

// careful holds the rates that `slurmgate site init` writes where slurmctld limits each user to 2 RPCs a second: a
// little less.
var careful = rates{rpcPerMinute: 114, floor: 10 * time.Second, ceiling: time.Minute}

// limited submits all runs at once under slurmctld's own rate limit. The host counts the refusals in slurmctld's log; here every run must
// have got its job by its first sbatch, and that sbatch must not have been killed.
func (m *measurement) limited(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, careful)
	if err != nil {
		return err
	}
	defer g.close()
	n := m.sizes.Limited
	m.say("sending %d runs at %d RPCs a minute, about %s", n, careful.rpcPerMinute,
		time.Duration(float64(n)/float64(careful.rpcPerMinute)*float64(time.Minute)).Round(time.Second))
	began := time.Now()
	if err := g.during(ctx, func() error { return g.ask(ctx, n) }); err != nil {
		return err
	}
	took := time.Since(began)
	killed, again := 0, 0
	for cursor := ""; ; {
		page, err := g.ledger.List(ctx, ledger.Filter{Limit: 500, Cursor: cursor})
		if err != nil {
			return err
		}
		for _, r := range page.Runs {
			v, err := g.ledger.View(ctx, r.ID)
			if err != nil {
				return err
			}
			sends, err := g.ledger.Sends(ctx, v.Submission.Token)
			if err != nil {
				return err
			}
			if len(sends) != 1 {
				again++
			}
			for _, s := range sends {
				if s.Outcome != run.SendAccepted || s.ExitCode == nil || *s.ExitCode != 0 {
					killed++
				}
			}
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	runs := fmt.Sprint("runs=", n)
	m.print("killed_clients", float64(killed), "sbatch", "=0", runs)
	m.print("sent_again", float64(again), "run", "=0", runs)
	m.print("limited_rate", float64(n)/took.Minutes(), "run/min", "", runs, fmt.Sprint("rpc_per_minute=", careful.rpcPerMinute))
	return nil
}

// ask submits n runs at once and waits until each is with Slurm.
func (g *rig) ask(ctx context.Context, n int) error {
	err := parallel(ctx, 64, 0, n, func(i int) error {
		// The answer comes after two minutes at the latest; the run continues.
		_, err := g.engine.Submit(ctx, g.order(i))
		return err
	})
	if err != nil {
		return err
	}
	return g.engine.Settled(ctx)
}
