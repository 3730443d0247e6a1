package cli

import (
	"context"
	"io"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/run"
)

// Get is the verb that shows the state of a run.
type Get struct{ app.RunWaitArgs }

// Run shows the state once.
func (c Get) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		s.fresh(ctx)
		return callAndPrint[run.GetAnswer](ctx, a, "slurm.job.get", c.RunWaitArgs)
	})
}

// Wait is the verb that waits for a run.
type Wait struct {
	RunID   string        `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Timeout time.Duration `help:"Stop waiting after this time (the run continues)." placeholder:"DURATION"`
	To      string        `help:"Copy the outputs into this folder." type:"path" placeholder:"DIR"`
}

// Run waits until the run has ended.
func (c Wait) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		return a.await(ctx, s, c.RunID, submitOptions{Timeout: c.Timeout, To: c.To})
	})
}

// Collect is the verb that lists and copies the outputs of a run.
type Collect struct {
	app.RunWaitArgs
	To string `help:"Copy the outputs into this folder." type:"path" placeholder:"DIR"`
}

// Run reports, and copies.
func (c Collect) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		s.fresh(ctx)
		var r run.CollectAnswer
		if err := s.call(ctx, "slurm.job.collect", c.RunWaitArgs, &r); err != nil {
			return err
		}
		if c.To != "" && r.Ready {
			var story app.RunStory
			err := s.call(ctx, "run.show", c.RunArgs, &story)
			if err == nil {
				err = a.fetch(ctx, s, story, c.To)
			}
			if err != nil {
				return err
			}
		}
		if err := a.show(r, func(w io.Writer) { printDocument(w, r.Says(), nothing) }); err != nil {
			return err
		}
		if r.Ready && r.State != run.Succeeded {
			return quietFailure{fault.Tool}
		}
		return nil
	})
}

// Logs is the verb that prints the end of a run's log.
type Logs struct {
	app.RunArgs
	Stream string `help:"log (everything), stdout or stderr." enum:"log,stdout,stderr" default:"log"`
	Tail   int    `help:"Number of lines from the end." default:"200"`
	Follow bool   `help:"Then print what comes, until the run has ended."`
}

// Run prints the end of a stream, and with Follow what comes after it.
func (c Logs) Run(ctx context.Context, a *Shell) error {
	if c.Follow {
		return a.With(ctx, func(s *Session) error { return c.follow(ctx, a, s) })
	}
	return c.end(ctx, a)
}

// end prints the end of a stream.
func (c Logs) end(ctx context.Context, a *Shell) error {
	args := app.LogsArgs{RunArgs: c.RunArgs, Stream: c.Stream, TailLines: c.Tail}
	return ask(ctx, a, "slurm.job.logs", args, func(w io.Writer, l run.LogsAnswer) {
		switch {
		case l.Text != "":
			if l.Truncated {
				a.Say("the end of the %s; what is before it is left out", l.Stream)
			}
			io.WriteString(w, l.Text)
		case l.Final:
			a.Say("the %s of this run is empty", l.Stream)
		default:
			a.Say("nothing yet; the run is %s", l.State)
		}
	})
}
