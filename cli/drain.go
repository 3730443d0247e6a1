package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
)

// Drain is the verb that stops new runs.
type Drain struct {
	Reason string `help:"Why, for whoever asks for a run meanwhile." placeholder:"TEXT"`
	Only   string `name:"site-name" help:"Only this site; default: all." placeholder:"NAME"`
	Queue  bool   `help:"Accept new runs and let them wait, instead of refusing them."`
}

// Run drains.
func (c Drain) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "gateway.drain", app.DrainArgs{Site: c.Only, Reason: c.Reason, Queue: c.Queue}, func(w io.Writer, r app.DrainAnswer) {
		fmt.Fprintf(w, "drained: %s. %d runs are with Slurm or being collected; they go on\n", strings.Join(r.Changed, ", "), r.Runs["running"])
		printNext(w, fault.Do("run.list", "state", "running"), fault.Do("resume"))
	})
}

// Resume is the verb that ends a drain.
type Resume struct {
	Only string `name:"site-name" help:"Only this site; default: all." placeholder:"NAME"`
}

// Run resumes.
func (c Resume) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "gateway.resume", app.DrainArgs{Site: c.Only}, func(w io.Writer, r app.DrainAnswer) {
		if len(r.Changed) == 0 {
			fmt.Fprintln(w, "no site was drained")
			return
		}
		fmt.Fprintf(w, "resumed: %s\n", strings.Join(r.Changed, ", "))
	})
}

// Status is the verb that shows the gateway as a whole.
type Status struct{}

// Run shows the status.
func (Status) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "gateway.status", nothing, func(w io.Writer, r app.StatusAnswer) {
		line := func(name, text string) { fmt.Fprintf(w, "%-10s %s\n", name, text) }
		when := func(t *time.Time, none string) string {
			if t == nil {
				return none
			}
			return dateTime(*t)
		}
		line("ledger", fmt.Sprintf("%s, schema %d", r.Ledger, r.Schema))
		var runs []string
		for _, state := range slices.Sorted(maps.Keys(r.Runs)) {
			runs = append(runs, fmt.Sprintf("%d %s", r.Runs[state], state))
		}
		line("runs", strings.Join(runs, ", "))
		line("backup", when(r.Backup, "none is known"))
		if r.Restored != nil {
			line("restored", dateTime(*r.Restored))
		}
		if r.Problem != nil {
			line("problem", *r.Problem)
		}
		for _, s := range r.Sites {
			said := "Slurm answered " + when(s.Answered, "not yet")
			switch {
			case s.Drain != nil && s.Drain.Queue:
				said = s.Drain.String() + "; new runs wait"
			case s.Drain != nil:
				said = s.Drain.String() + "; new runs are refused"
			case s.Problem != nil:
				said = *s.Problem
			}
			line("site", s.Site+"  "+said)
		}
	})
}
