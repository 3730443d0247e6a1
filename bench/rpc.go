package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

const cyclesCounted = 5

// rpc counts what watch cycles and replays cost.
func (m *measurement) rpc(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return err
	}
	defer g.close()
	have := 0
	for _, n := range []int{m.sizes.Small, m.sizes.Middle, m.sizes.Large} {
		if err := g.during(ctx, func() error { _, err := g.send(ctx, have, n-have); return err }); err != nil {
			return err
		}
		have = n
		m.say("%d runs are in Slurm", n)
		if err := g.quiet(ctx); err != nil {
			return err
		}
		if err := m.cycles(ctx, g, n, n); err != nil {
			return err
		}
	}
	if err := g.seed(ctx, have, m.sizes.Ledger-have); err != nil {
		return err
	}
	m.say("%d runs are in the ledger", m.sizes.Ledger)
	if err := m.cycles(ctx, g, have, m.sizes.Ledger); err != nil {
		return err
	}
	if err := m.replays(ctx, g); err != nil {
		return err
	}
	return m.vanished(ctx, g, have)
}

// cycles counts the RPCs of some watch cycles without other work.
func (m *measurement) cycles(ctx context.Context, g *rig, inSlurm, inLedger int) error {
	d, err := g.atRest(ctx)
	if err != nil {
		return err
	}
	params := []string{fmt.Sprint("runs=", inSlurm), fmt.Sprint("ledger=", inLedger)}
	m.print("rpcs_per_cycle", float64(d.mine)/cyclesCounted, "rpc", "<=2", append(params, "types="+words(d.ctld))...)
	m.print("dbd_rpcs_per_cycle", float64(sum(d.dbd))/cyclesCounted, "rpc", "<=1", params...)
	return nil
}

// atRest counts cycles in which nothing changes. slurmctld sets a job's reason for waiting up to a minute after it took the job, and the
// watcher writes that down: then the count starts again.
func (g *rig) atRest(ctx context.Context) (rpcs, error) {
	for range 30 {
		before, err := countRPCs(ctx)
		if err != nil {
			return rpcs{}, err
		}
		still := true
		for range cyclesCounted {
			moved, err := g.engine.Cycle(ctx)
			if err != nil {
				return rpcs{}, fmt.Errorf("a cycle at rest: %w", err)
			}
			still = still && !moved
		}
		after, err := countRPCs(ctx)
		if err != nil || still {
			return after.since(before), err
		}
		time.Sleep(5 * time.Second)
		if err := g.quiet(ctx); err != nil {
			return rpcs{}, err
		}
	}
	return rpcs{}, errors.New("the runs do not come to rest")
}

// vanished counts the cycle in which jobs have left squeue: it queries accounting once, however many they are.
func (m *measurement) vanished(ctx context.Context, g *rig, inSlurm int) error {
	gone := inSlurm / 10
	var ids []string
	for i := range gone {
		_, id, err := g.order(i).Identity()
		if err != nil {
			return err
		}
		v, err := g.ledger.View(ctx, id.RunID())
		if err != nil {
			return err
		}
		ids = append(ids, v.Submission.JobID)
	}
	if out, err := exec.CommandContext(ctx, "scancel", ids...).CombinedOutput(); err != nil {
		return fmt.Errorf("scancel: %w: %s", err, out)
	}
	for range 60 { // MinJobAge is 5 s; slurmctld purges every 30 to 60
		out, err := exec.CommandContext(ctx, "squeue", "-h", "-r", "-t", "all", "-u", user, "-o", "%T").Output()
		if err != nil {
			return err
		}
		if !strings.Contains(string(out), "CANCELLED") {
			break
		}
		time.Sleep(2 * time.Second)
	}
	before, err := countRPCs(ctx)
	if err != nil {
		return err
	}
	moved, err := g.engine.Cycle(ctx)
	if err != nil || !moved {
		return fmt.Errorf("a cycle without %d of the jobs: moved %v: %w", gone, moved, err)
	}
	after, err := countRPCs(ctx)
	if err != nil {
		return err
	}
	d := after.since(before)
	m.print("rpcs_per_cycle_vanished", float64(d.mine), "rpc", "<=2", fmt.Sprint("runs=", inSlurm), fmt.Sprint("vanished=", gone))
	m.print("dbd_rpcs_per_cycle_vanished", float64(sum(d.dbd)), "rpc", "<=1", fmt.Sprint("runs=", inSlurm), fmt.Sprint("vanished=", gone),
		"types="+words(d.dbd))
	return nil
}

// replays repeats requests for runs that exist.
func (m *measurement) replays(ctx context.Context, g *rig) error {
	before, err := countRPCs(ctx)
	if err != nil {
		return err
	}
	if err := g.replay(ctx, m.sizes.Large/2, m.sizes.Replays, nil); err != nil {
		return err
	}
	after, err := countRPCs(ctx)
	if err != nil {
		return err
	}
	d := after.since(before)
	m.print("replay_rpcs", float64(d.mine+sum(d.dbd)), "rpc", "=0", fmt.Sprint("replays=", m.sizes.Replays),
		fmt.Sprint("ledger=", m.sizes.Ledger))
	return nil
}

// replay repeats n requests for runs that exist, from the given one on, and records how long each call took.
func (g *rig) replay(ctx context.Context, from, n int, took *[]time.Duration) error {
	for i := range n {
		o := g.order(from + i)
		began := time.Now()
		a, err := g.engine.Submit(ctx, o)
		if took != nil {
			*took = append(*took, time.Since(began))
		}
		if err != nil || !a.Replayed {
			return fmt.Errorf("replay of run %d: replayed %v: %w", from+i, a.Replayed, err)
		}
	}
	return nil
}
