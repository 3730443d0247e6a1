package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/run"
)

// Retry is the verb that opens a new attempt of a run.
type Retry struct {
	RunID  string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Reason string `help:"Reason; recorded with the run." placeholder:"TEXT"`
	After  int    `name:"after-attempt" help:"The attempt that the new one follows; the latest when absent. The same command with the same number does its work once." placeholder:"N"`
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
			if err := s.call(ctx, "slurm.job.get", app.RunArgs{RunID: c.RunID}, &now); err != nil {
				return err
			}
			c.After = now.Attempt
		}
		args := app.RunArgs{RunID: c.RunID, After: c.After, Reason: c.Reason, Resources: more}
		return submitOptions{Wait: c.Wait, Key: c.Key}.submit(ctx, a, s, "slurm.job.retry", app.BuiltinVersion, args)
	})
}

// Recollect is the verb that collects late outputs again.
type Recollect struct {
	RunID  string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Reason string `help:"Reason; recorded with the run." placeholder:"TEXT"`
}

// Run collects late outputs again.
func (c Recollect) Run(ctx context.Context, a *Shell) error {
	args := app.RunArgs{RunID: c.RunID, Reason: c.Reason}
	return ask(ctx, a, "slurm.job.recollect", args, func(w io.Writer, r app.RecollectAnswer) {
		if !r.Recollected {
			fmt.Fprintln(w, "the outputs of this run are not late; nothing was done")
		}
		printState(w, r.GetState)
	})
}

// Adopt is the verb that assigns a job to a run in doubt.
type Adopt struct {
	RunID string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	JobID string `arg:"" name:"job" help:"Slurm job id; the job must have the run's job name."`
}

// Run adopts.
func (c Adopt) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "slurm.job.adopt", app.AdoptArgs{RunID: c.RunID, JobID: c.JobID}, printResolved)
}

// DeclareAbsent is the verb that ends an attempt whose job cannot be found.
type DeclareAbsent struct {
	RunID  string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Reason string `help:"Reason; recorded with the run." placeholder:"TEXT"`
}

// Run declares absent.
func (c DeclareAbsent) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "slurm.job.absent", app.RunArgs{RunID: c.RunID, Reason: c.Reason}, printResolved)
}

func printResolved(w io.Writer, r app.StateAnswer) { printState(w, r.GetState) }

func printState(w io.Writer, r run.GetState) {
	fmt.Fprintf(w, "%s  %s (%s)  attempt %d  %s\n", r.RunID, r.State, r.Phase, r.Attempt, r.Reason)
	printNext(w, r.NextSteps...)
}

// CancelAll is the verb that cancels all unfinished runs.
type CancelAll struct {
	Tool    string `help:"Only runs of this tool." placeholder:"ID"`
	Project string `help:"Only runs of this project (name or id)." placeholder:"NAME"`
	Reason  string `help:"Reason; recorded with each run." placeholder:"TEXT"`
	Yes     bool   `help:"Cancel the runs. Without this option they are only listed."`
}

type cancelAllAnswer struct {
	Cancelled []app.CancelAnswer `json:"cancelled"`
	Would     []string           `json:"would_cancel"`
	Failed    []string           `json:"failed"`
}

// Run cancels every unfinished run, with one call per run: each is a decision of its own in the history.
func (c CancelAll) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		out := cancelAllAnswer{Cancelled: []app.CancelAnswer{}, Would: []string{}, Failed: []string{}}
		var open []app.RunRow
		for _, state := range []run.State{run.Queued, run.Running, run.Blocked} {
			for args := (app.RunListArgs{State: state, ToolID: c.Tool, ProjectID: c.Project, Limit: 200}); ; {
				var l app.RunList
				if err := s.call(ctx, "run.list", args, &l); err != nil {
					return err
				}
				open = append(open, l.Runs...)
				if l.Cursor == nil {
					break
				}
				args.Cursor = *l.Cursor
			}
		}
		for _, r := range open {
			if !c.Yes {
				out.Would = append(out.Would, r.RunID)
				continue
			}
			var got app.CancelAnswer
			if err := s.call(ctx, "slurm.job.cancel", app.RunArgs{RunID: r.RunID, Reason: c.Reason}, &got); err != nil {
				a.Say("%s: %v", r.RunID, err)
				out.Failed = append(out.Failed, r.RunID)
				continue
			}
			out.Cancelled = append(out.Cancelled, got)
		}
		err := a.show(out, func(w io.Writer) {
			printLines(w, "", out.Would)
			for _, r := range out.Cancelled {
				fmt.Fprintf(w, "%s  %s  %s\n", r.RunID, r.State, r.Message)
			}
			switch {
			case len(open) == 0:
				fmt.Fprintln(w, "nothing to cancel")
			case !c.Yes:
				fmt.Fprintf(w, "%d runs would be cancelled. Next: repeat the command with --yes\n", len(open))
			}
		})
		if err == nil && len(out.Failed) > 0 {
			return quietFailure{fault.Transport}
		}
		return err
	})
}
