package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/fault"
)

type Config struct {
	Check configCheckCmd `cmd:"" help:"Check the site file and report every mistake."`
	Show  configShowCmd  `cmd:"" help:"Print the effective site file with all defaults."`
}

type configCheckCmd struct{}

// Run checks.
func (configCheckCmd) Run(ctx context.Context, a *Shell) error {
	var r app.ConfigAnswer
	if err := a.local(ctx, "config.check", app.ConfigArgs{File: a.Site}, &r); err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) {
		for _, text := range r.Warnings {
			fmt.Fprintf(w, "warning: %s\n", text)
		}
		fmt.Fprintf(w, "%s is a valid site file for %s\n", r.File, r.Site)
		printNext(w, fault.Do("doctor"))
	})
}

type configShowCmd struct{}

// Run prints.
func (configShowCmd) Run(ctx context.Context, a *Shell) error {
	var r app.ConfigAnswer
	if err := a.local(ctx, "config.show", app.ConfigArgs{File: a.Site}, &r); err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) { fmt.Fprint(w, r.Effective) })
}
