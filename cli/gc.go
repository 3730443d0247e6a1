package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/retention"
)

// GC is the verb that removes what is no longer needed.
type GC struct {
	DryRun     bool           `help:"Show what would be removed, and remove nothing."`
	Before     bool           `name:"before-restore" help:"Also remove bytes that were stored before this ledger was restored from a backup and that no artifact has. They may be outputs of runs that the restored ledger does not know."`
	Workspaces *time.Duration `name:"workspaces-older-than" help:"Remove workspaces of runs that finished at least this long ago, instead of retention.workspace_days (0s: of all finished runs)." placeholder:"DURATION"`
}

// Run sweeps once.
func (c GC) Run(ctx context.Context, a *Shell) error {
	args := app.GCArgs{DryRun: c.DryRun, Before: c.Before}
	if c.Workspaces != nil {
		args.Workspaces = new(int64(c.Workspaces.Seconds()))
	}
	return ask(ctx, a, "gateway.gc", args, func(w io.Writer, r app.GCAnswer) { printSwept(w, r.Report, c.next()) })
}

// next carries out what a dry run showed.
func (c GC) next() fault.Step {
	if c.Workspaces == nil {
		return fault.Do("gateway.gc")
	}
	return fault.Do("gateway.gc", "workspaces_older_than", c.Workspaces.String())
}

func printSwept(w io.Writer, r retention.Report, next fault.Step) {
	verb := "removed"
	if r.DryRun {
		verb = "would remove"
	}
	for _, t := range []struct {
		what, field string
		tally       retention.Tally
	}{
		{"workspaces of finished runs", "retention.workspace_days", r.Workspaces},
		{"imports that no run used", "retention.import_days", r.Imports},
		{"bytes without an artifact", "", r.Bytes},
	} {
		since := "kept for ever: " + t.field + " is 0"
		if t.tally.KeptSince != "" {
			since = "before " + t.tally.KeptSince
		}
		fmt.Fprintf(w, "%-12s  %6d  %-28s %9s  (%s)\n", verb, t.tally.Count, t.what, bytesText(t.tally.Bytes), since)
		if r.DryRun {
			for _, name := range t.tally.Named {
				fmt.Fprintf(w, "    %s\n", name)
			}
		}
	}
	for _, k := range r.Kept {
		fmt.Fprintf(w, "kept  %s  %s\n", k.Name, clipLine(k.Why, 160))
	}
	if r.DryRun && r.Workspaces.Count+r.Imports.Count+r.Bytes.Count > 0 {
		printNext(w, next)
	}
}
