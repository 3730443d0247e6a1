package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/fault"
)

// Config groups the verbs on the site file.
type Config struct {
	Check configCheckCmd `cmd:"" help:"Check the site file and report every mistake."`
	Show  configShowCmd  `cmd:"" help:"Print the effective site file with all defaults."`
}

type configCheckCmd struct{}

// Run checks.
func (configCheckCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "config.check", app.ConfigArgs{File: a.Site}, func(w io.Writer, r app.ConfigAnswer) {
		printLines(w, "warning: ", r.Warnings)
		fmt.Fprintf(w, "%s is a valid site file for %s\n", r.File, r.Site)
		printNext(w, fault.Do("doctor"))
	})
}

type configShowCmd struct{}

// Run prints.
func (configShowCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "config.show", app.ConfigArgs{File: a.Site}, func(w io.Writer, r app.ConfigAnswer) { fmt.Fprint(w, r.Effective) })
}
