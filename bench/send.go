package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"golang.org/x/sync/errgroup"

	"slurmgate/plan"
	"slurmgate/run"
)

// callers is the number of concurrent submits: chats and shells, more than there are sends in flight.
const callers = 16

// parallel calls f for each of from … from+n-1, at most width at a time, and stops at the first error.
func parallel(ctx context.Context, width, from, n int, f func(i int) error) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(width)
	for i := range n {
		workers.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return f(from + i)
		})
	}
	return workers.Wait()
}

// send submits n runs through the engine, which must be working, and waits for all receipts.
func (g *rig) send(ctx context.Context, from, n int) (time.Duration, error) {
	began := time.Now()
	err := parallel(ctx, callers, from, n, func(i int) error {
		a, err := g.engine.Submit(ctx, g.order(i))
		if err == nil && (a.Replayed || a.SlurmJobID == nil) {
			err = fmt.Errorf("run %d is %s (%s) after its submit: %v", i, a.State, a.Phase, plan.OrBlank(a.Reason))
		}
		return err
	})
	return time.Since(began), err
}

// quiet waits until the watcher has seen every run in Slurm and nothing is left to write.
func (g *rig) quiet(ctx context.Context) error {
	for range 600 {
		if err := g.engine.Settled(ctx); err != nil {
			return err
		}
		moved, err := g.engine.Cycle(ctx)
		if err != nil {
			return err
		}
		if !moved {
			return nil
		}
	}
	return errors.New("the runs do not come to rest")
}

// bareJob returns the sbatch command line of a run that was sent, for a job of another name.
func (g *rig) bareJob(ctx context.Context, i int) ([]string, error) {
	o := g.order(i)
	_, id, err := o.Identity()
	if err != nil {
		return nil, err
	}
	v, err := g.ledger.View(ctx, id.RunID())
	if err != nil {
		return nil, err
	}
	argv, err := g.cli.Argv(run.JobSpec{RunID: v.Run.ID, N: 1, Token: v.Submission.Token, JobName: v.Submission.JobName, Spec: o.Params.Spec,
		RunDir: g.staging.RunDir(v.Run.ID)})
	for k, a := range argv {
		if a == "--job-name="+v.Submission.JobName {
			argv[k] = "--job-name=" + bareName
		}
	}
	return argv, err
}

const bareName = "bare"

// sendBare starts sbatch n times with the arguments, width at a time, and nothing else.
func sendBare(ctx context.Context, argv []string, width, n int) (time.Duration, error) {
	began := time.Now()
	err := parallel(ctx, width, 0, n, func(int) error {
		out, err := exec.CommandContext(ctx, "/usr/bin/sbatch", argv...).Output()
		if err != nil || len(out) < 2 {
			err = fmt.Errorf("bare sbatch: %w (%q)", err, out)
		}
		return err
	})
	return time.Since(began), err
}
