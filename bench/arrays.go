package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"slurmgate/ledger"
	"slurmgate/run"
)

// inArrays sets when the rig's runs leave together.
var inArrays = run.Arrays{Min: 1000, Linger: time.Second}

// arrays submits runs that leave as job arrays, and compares them with the floor of an array – the same durable records
// and one sbatch for a thousand – and with one sbatch after the other; then cancels them.
func (m *measurement) arrays(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, unlimited)
	if err != nil {
		return err
	}
	defer g.close()
	g.arrays = inArrays
	return g.during(ctx, func() error {
		n, loop := m.sizes.Large, m.sizes.Large/10
		if _, err := g.send(ctx, 0, 1); err != nil { // the source of the bare command line
			return err
		}
		argv, err := g.bareJob(ctx, 0)
		if err != nil {
			return err
		}
		least, err := openFloor(filepath.Join(m.dir, "floor"), argv)
		if err != nil {
			return err
		}
		defer least.close()
		before, err := countRPCs(ctx)
		if err != nil {
			return err
		}
		var ours time.Duration
		if err := profiled(ctx, m.sizes.Profiles, "arrays", func(ctx context.Context) (err error) {
			ours, err = g.sendAll(ctx, 1, n)
			return err
		}); err != nil {
			return err
		}
		after, err := countRPCs(ctx)
		if err != nil {
			return err
		}
		floor, err := least.sendArrays(ctx, 0, n)
		if err != nil {
			return err
		}
		sequential, err := sendBare(ctx, argv, 1, loop)
		if err != nil {
			return err
		}
		runs := []string{fmt.Sprint("runs=", n)}
		rate := func(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }
		m.print("arrays_rate", rate(n, ours), "run/s", "", runs...)
		m.print("array_floor_rate", rate(n, floor), "run/s", "", runs...)
		m.print("sbatch_loop_rate", rate(loop, sequential), "job/s", "", fmt.Sprint("jobs=", loop))
		m.print("arrays_to_floor_ratio", rate(n, ours)/rate(n, floor), "ratio", ">=0.8", runs...)
		m.print("arrays_to_loop_ratio", rate(n, ours)/rate(loop, sequential), "ratio", ">=5", append(runs, "moonshot=10")...)
		m.print("submit_rpcs_per_1000_runs", 1000*float64(after.since(before).ctld[submitRPC])/float64(n), "rpc", "<=5", runs...)
		return m.cancelAll(ctx, g, 1, n)
	})
}

const (
	sentStamp = "sent"                    // a file with the time at which all runs were with Slurm
	logTime   = "2006-01-02T15:04:05.000" // as slurmctld's log has it
	submitRPC = "REQUEST_SUBMIT_BATCH_JOB"
	cancelRPC = "REQUEST_KILL_JOB"
)

// cancelAll cancels runs one after the other, as a caller does, and waits until Slurm was asked about all of them.
func (m *measurement) cancelAll(ctx context.Context, g *rig, from, n int) error {
	before, err := countRPCs(ctx)
	if err != nil {
		return err
	}
	took, err := timed(func() error {
		err := parallel(ctx, callers, from, n, func(i int) error {
			_, id, err := g.order(i).Identity()
			if err != nil {
				return err
			}
			a, err := g.engine.Cancel(ctx, id.RunID(), "measured", run.Withdrawal{All: true})
			if err == nil && (a.State != run.Cancelled || a.Executed != "never") {
				err = fmt.Errorf("run %d is %s after its cancel, and executed %q", i, a.State, a.Executed)
			}
			return err
		})
		if err == nil {
			err = g.engine.Settled(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	after, err := countRPCs(ctx)
	if err != nil {
		return err
	}
	d := after.since(before)
	kills := 0
	for name, n := range d.ctld {
		if strings.HasPrefix(name, cancelRPC) {
			kills += n
		}
	}
	runs := fmt.Sprint("runs=", n)
	m.print("cancel_rate", float64(n)/took.Seconds(), "run/s", "", runs)
	m.print("cancel_rpcs_per_1000_runs", 1000*float64(kills)/float64(n), "rpc", "<=20", runs, "all="+words(d.ctld))
	out, err := exec.CommandContext(ctx, "squeue", "-h", "-r", "-u", user, "-t", "pending", "-o", "%j").Output()
	if left := strings.Count(string(out), "sg-"); err == nil && left > 1 { // the first run was not cancelled
		err = fmt.Errorf("%d jobs are left after the cancel", left)
	}
	return err
}

// sendAll submits n runs, none of which is waited for, and then waits until all are with Slurm.
func (g *rig) sendAll(ctx context.Context, from, n int) (time.Duration, error) {
	began := time.Now()
	err := parallel(ctx, callers, from, n, func(i int) error {
		o := g.order(i)
		o.Prompt = true
		_, err := g.engine.Submit(ctx, o)
		return err
	})
	if err != nil {
		return 0, err
	}
	for {
		if err := g.engine.Settled(ctx); err != nil {
			return 0, err
		}
		waiting, err := g.parts.Index.Waiting(ctx, "", 1, run.Staging, run.Deferred, run.Submitting, run.Unconfirmed)
		if err != nil || len(waiting) == 0 {
			return time.Since(began), errors.Join(err, g.allSent(ctx, n))
		}
		select {
		case <-time.After(10 * time.Millisecond): // some were put off
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// allSent makes sure that n runs or more have their jobs.
func (g *rig) allSent(ctx context.Context, n int) error {
	sent := 0
	for cursor := ""; ; {
		page, err := g.ledger.List(ctx, ledger.Filter{Limit: 500, Cursor: cursor})
		if err != nil {
			return err
		}
		for _, r := range page.Runs {
			if r.JobID != "" {
				sent++
			}
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if sent < n {
		return fmt.Errorf("%d of %d runs have a job", sent, n)
	}
	return nil
}

// limitedArrays is limited with arrays, compared with one sbatch after the other, which waits whenever slurmctld makes
// it wait.
func (m *measurement) limitedArrays(ctx context.Context) error {
	g, err := openRig(ctx, m.dir, careful)
	if err != nil {
		return err
	}
	defer g.close()
	g.arrays = inArrays
	n := m.sizes.Limited
	return g.during(ctx, func() error {
		if _, err := g.send(ctx, 0, 1); err != nil {
			return err
		}
		argv, err := g.bareJob(ctx, 0)
		if err != nil {
			return err
		}
		ours, err := g.sendAll(ctx, 1, n)
		if err != nil {
			return err
		}
		// Refusals in slurmctld's log until now are about the arrays.
		if err := os.WriteFile(filepath.Join(m.dir, sentStamp), []byte(time.Now().Format(logTime)), 0o644); err != nil {
			return err
		}
		m.say("%d runs took %s; now one sbatch after the other", n, ours.Round(time.Millisecond))
		loop, err := sendBare(ctx, argv, 1, n)
		if err != nil {
			return err
		}
		runs := fmt.Sprint("runs=", n)
		m.print("limited_arrays_time", ours.Seconds(), "s", "", runs)
		m.print("limited_loop_time", loop.Seconds(), "s", "", runs)
		m.print("limited_loop_to_arrays_ratio", loop.Seconds()/ours.Seconds(), "ratio", ">=30", runs, "moonshot=150")
		return nil
	})
}
