package cli

import (
	"context"

	"slurmgate/app"
	"slurmgate/run"
)

// Retry is the verb that opens a new attempt of a run.
type Retry struct {
	app.RunReasonArgs
	After int `name:"after-attempt" help:"The attempt that the new one follows; the latest when absent. The same command with the same number does its work once." placeholder:"N"`
	moreResources
	Wait bool   `help:"Wait for the end and show the outputs."`
	Key  string `name:"idempotency-key" help:"The same command with the same key opens one new attempt, whatever happens in between." placeholder:"KEY"`
}

// Run retries. The attempt it follows is settled before the first try, so a gateway that goes away in between changes nothing.
func (c Retry) Run(ctx context.Context, a *Shell) error {
	more, err := c.asked(0)
	if err != nil {
		return err
	}
	return a.With(ctx, func(s *Session) error {
		if c.After == 0 {
			var now run.GetAnswer
			if err := s.call(ctx, "slurm.job.get", c.RunArgs, &now); err != nil {
				return err
			}
			c.After = now.Attempt
		}
		args := app.RetryArgs{RunReasonArgs: c.RunReasonArgs, After: c.After, Resources: more}
		return submitOptions{Wait: c.Wait, Key: c.Key}.submit(ctx, a, s, operation(a.Host, "slurm.job.retry").Tool(), args)
	})
}
