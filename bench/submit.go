package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"slurmgate/ledger"
	"slurmgate/run"
)

// submit measures, on one ledger that grows: the submit race, status compared with squeue, then everything about
// 100,000 runs.
func (m *measurement) submit(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return err
	}
	defer g.close()
	sent, err := m.race(ctx, g)
	if err != nil {
		return err
	}
	if err := g.during(ctx, func() error { _, err := g.send(ctx, sent, m.sizes.Large-sent); return err }); err != nil {
		return err
	}
	m.say("%d runs are in Slurm", m.sizes.Large)
	if err := m.onlyOurs(ctx); err != nil {
		return err
	}
	if err := g.quiet(ctx); err != nil {
		return err
	}
	if err := m.status(ctx, g); err != nil {
		return err
	}
	if err := g.seed(ctx, m.sizes.Large, m.sizes.Ledger-m.sizes.Large); err != nil {
		return err
	}
	m.say("%d runs are in the ledger", m.sizes.Ledger)
	if err := m.cold(ctx); err != nil {
		return err
	}
	if err := m.memory(ctx); err != nil {
		return err
	}
	return m.replayTimes(ctx)
}

// onlyOurs removes the bare jobs from the queue and waits until slurmctld has purged them.
func (m *measurement) onlyOurs(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, "scancel", "--name="+bareName).CombinedOutput(); err != nil {
		return fmt.Errorf("scancel: %w: %s", err, out)
	}
	for range 90 { // MinJobAge is 5 s; slurmctld purges every 30 to 60
		out, err := exec.CommandContext(ctx, "squeue", "-h", "-t", "all", "-u", user, "--name="+bareName).Output()
		if err != nil || len(out) == 0 {
			return err
		}
		time.Sleep(2 * time.Second)
	}
	return fmt.Errorf("slurmctld does not purge the bare jobs")
}

// status compares the time to get the fresh state of every run with the time of squeue for the same jobs. Two bare
// commands serve as references: the shortest that prints state and name, and the one the gateway itself runs.
func (m *measurement) status(ctx context.Context, g *rig) error {
	var ours, short, same, toShort, toSame []float64
	for range m.sizes.Looks {
		a, err := timed(func() error { return squeue(ctx, "-h", "-r", "-t", "all", "-u", user, "-o", "%i|%T|%j") })
		if err != nil {
			return err
		}
		b, err := timed(func() error {
			return profiled(ctx, m.sizes.Profiles, "status", func(ctx context.Context) error { return g.lookAtAll(ctx, m.sizes.Large) })
		})
		if err != nil {
			return err
		}
		c, err := timed(func() error { _, err := g.cli.Jobs(ctx, nil); return err })
		if err != nil {
			return err
		}
		ours, short, same = append(ours, ms(b)), append(short, ms(a)), append(same, ms(c))
		toShort, toSame = append(toShort, float64(b)/float64(a)), append(toSame, float64(b)/float64(c))
	}
	runs := fmt.Sprint("runs=", m.sizes.Large)
	m.print("status_time", median(ours), "ms", "", runs)
	m.print("squeue_time", median(short), "ms", "", runs, "columns=id,state,name")
	m.print("queue_time", median(same), "ms", "", runs, "columns=all")
	m.print("status_ratio", median(toShort), "ratio", "<=2", runs, "min="+number(quantile(toShort, 0)), "max="+number(quantile(toShort, 1)))
	m.print("status_ratio_same_columns", median(toSame), "ratio", "", runs)
	return nil
}

// lookAtAll runs one watch cycle, and then reads every run from the ledger.
func (g *rig) lookAtAll(ctx context.Context, want int) error {
	if _, err := g.engine.Cycle(ctx); err != nil {
		return err
	}
	seen := 0
	for cursor := ""; ; {
		page, err := g.ledger.List(ctx, ledger.Filter{Limit: 500, Cursor: cursor})
		if err != nil {
			return err
		}
		for _, r := range page.Runs {
			if r.Phase == run.Pending && r.SlurmState == "PENDING" && r.JobID != "" {
				seen++
			}
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if seen != want {
		return fmt.Errorf("%d of %d runs are pending", seen, want)
	}
	return nil
}

func squeue(ctx context.Context, args ...string) error {
	_, err := exec.CommandContext(ctx, "/usr/bin/squeue", args...).Output()
	return err
}

func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
