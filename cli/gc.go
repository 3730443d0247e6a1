package cli

import (
	"context"
	"io"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
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
	return ask(ctx, a, "gateway.gc", args, func(w io.Writer, r app.GCAnswer) {
		printDocument(w, r.Says(), args)
		if r.DryRun && r.Workspaces.Count+r.Imports.Count+r.Bytes.Count > 0 {
			printNext(w, c.next())
		}
	})
}

// next carries out what a dry run showed.
func (c GC) next() fault.Step {
	if c.Workspaces == nil {
		return fault.Do("gateway.gc")
	}
	return fault.Do("gc", "workspaces_older_than", c.Workspaces.String())
}
