package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/site"
)

// siteOf returns the site file that was given, if it exists and serves the domain in dir; else empty.
func (a *Shell) siteOf(dir string) string {
	s, err := site.Load(a.Site)
	if err != nil {
		return ""
	}
	one, err := os.Stat(s.DomainDir)
	if err != nil {
		return ""
	}
	if other, err := os.Stat(dir); err != nil || !os.SameFile(one, other) {
		return ""
	}
	return a.Site
}

// Domain groups the verbs on a domain package.
type Domain struct {
	Check domainCheckCmd `cmd:"" help:"Check a domain package and whether its policy, tools and images fit together."`
}

type domainCheckCmd struct{ app.DomainCheckArgs }

// Run checks a domain.
func (c domainCheckCmd) Run(ctx context.Context, a *Shell) error {
	c.Site = a.siteOf(c.Dir)
	return ask(ctx, a, "domain.check", c.DomainCheckArgs, func(w io.Writer, r app.DomainAnswer) {
		fmt.Fprintf(w, "domain %s %s, policy %s\n", r.DomainID, r.Version, r.PolicyHash)
		list(w, "tool|version|plan|runs|image|pack hash", r.Tools, func(t app.DomainTool) []string {
			return []string{t.ToolID, t.Version, orDash(t.PlanKind), t.Execution, orDash(t.Image), t.PackHash[:19]}
		})
		printLines(w, "warning: ", r.Warnings)
		for _, m := range r.Missing {
			printNext(w, fault.Do("image add", "name", m))
		}
		if len(r.Missing) == 0 {
			fmt.Fprintln(w, "no mistakes")
		}
	})
}

type toolSchemaCmd struct{}

// Run prints the JSON Schema of the format, as one JSON document with or without --json.
func (toolSchemaCmd) Run(ctx context.Context, a *Shell) error {
	var r app.TextAnswer
	if err := a.here(ctx, "tool.schema", struct{}{}, &r); err != nil {
		return err
	}
	_, err := fmt.Fprint(a.Out, r.Text)
	return err
}

type toolRunnerCmd struct{ app.RunnerArgs }

// Run prints a runner.
func (c toolRunnerCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "tool.runner", c.RunnerArgs, func(w io.Writer, r app.TextAnswer) {
		fmt.Fprint(w, r.Text)
		a.Say("put it into the image as %s", r.Path)
	})
}
