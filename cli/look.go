package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/run"
)

// Get is the verb that shows the state of a run.
type Get struct {
	RunID string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Wait  int    `help:"Wait up to this many seconds for the run to finish (0 to 30)." placeholder:"SECONDS"`
}

// Run shows the state once.
func (c Get) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		s.fresh(ctx)
		return ask(ctx, a, "slurm.job.get", app.RunArgs{RunID: c.RunID, WaitSeconds: c.Wait}, printGet)
	})
}

func printGet(w io.Writer, g run.GetAnswer) {
	fmt.Fprintf(w, "run     %s\nstate   %s (%s)\n", g.TargetRunID, g.State, g.Phase)
	if g.Alias != "" {
		fmt.Fprintf(w, "alias   %s  (the run's name while it waited for its inputs)\n", g.Alias)
	}
	if g.Reason != nil && g.State != run.Succeeded {
		fmt.Fprintf(w, "reason  %s\n", *g.Reason)
	}
	fmt.Fprintf(w, "job     %s\n", text(g.SlurmJobID))
	if g.ExitCode != nil {
		fmt.Fprintf(w, "exit    %d\n", *g.ExitCode)
	}
	if g.Moving != nil {
		fmt.Fprintf(w, "moving  %s  %s\n", g.Moving.What, movingText(*g.Moving))
	}
	if g.ObservedAt != nil {
		fmt.Fprintf(w, "seen    %s\n", g.ObservedAt.Format(time.RFC3339))
	}
	for _, role := range slices.Sorted(maps.Keys(g.ArtifactsByRole)) {
		fmt.Fprintf(w, "output  %s  %s\n", g.ArtifactsByRole[role], role)
	}
	printLines(w, "warning ", g.Warnings)
	printNext(w, g.NextSteps...)
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
	RunID string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Wait  int    `help:"Wait up to this many seconds for the run to finish (0 to 30)." placeholder:"SECONDS"`
	To    string `help:"Copy the outputs into this folder." type:"path" placeholder:"DIR"`
}

// Run reports, and copies.
func (c Collect) Run(ctx context.Context, a *Shell) error {
	return a.With(ctx, func(s *Session) error {
		s.fresh(ctx)
		var r run.CollectAnswer
		if err := s.call(ctx, "slurm.job.collect", app.RunArgs{RunID: c.RunID, WaitSeconds: c.Wait}, &r); err != nil {
			return err
		}
		if c.To != "" && r.Ready {
			var story app.RunStory
			err := s.call(ctx, "run.show", app.RunArgs{RunID: c.RunID}, &story)
			if err == nil {
				err = a.fetch(ctx, s, story, c.To)
			}
			if err != nil {
				return err
			}
		}
		if err := a.show(r, func(w io.Writer) { printCollect(w, r) }); err != nil {
			return err
		}
		if r.Ready && r.State != run.Succeeded {
			return quietFailure{fault.Tool}
		}
		return nil
	})
}

func printCollect(w io.Writer, r run.CollectAnswer) {
	if !r.Ready {
		fmt.Fprintf(w, "not ready: %s is %s\n", r.TargetRunID, r.State)
		printNext(w, r.NextSteps...)
		return
	}
	fmt.Fprintf(w, "%s  %s\n", r.TargetRunID, r.State)
	for _, role := range slices.Sorted(maps.Keys(r.ArtifactsByRole)) {
		fmt.Fprintf(w, "  %s  %s\n", r.ArtifactsByRole[role], role)
	}
	printLines(w, "warning ", r.Warnings)
	if r.State != run.Succeeded {
		printNext(w, r.NextSteps...)
	}
}

// Logs is the verb that prints the end of a run's log.
type Logs struct {
	RunID  string `arg:"" name:"run" ids:"run" help:"Run id, or the beginning of one."`
	Stream string `help:"log (everything), stdout or stderr." enum:"log,stdout,stderr" default:"log"`
	Tail   int    `help:"Number of lines from the end." default:"200"`
}

// Run prints the end of a stream.
func (c Logs) Run(ctx context.Context, a *Shell) error {
	args := app.RunArgs{RunID: c.RunID, Stream: c.Stream, TailLines: c.Tail}
	return ask(ctx, a, "slurm.job.logs", args, func(w io.Writer, l run.LogsAnswer) {
		switch {
		case l.Text != "":
			io.WriteString(w, l.Text)
		case l.Final:
			a.Say("the %s of this run is empty", l.Stream)
		default:
			a.Say("nothing yet; the run is %s", l.State)
		}
	})
}
