package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
)

// Tool groups the verbs on tools and toolpacks.
type Tool struct {
	List  Call[app.ToolListArgs, app.ToolList] `cmd:"" default:"withargs" help:"List the tools."`
	Show  toolShowCmd                          `cmd:"" help:"Show a tool's contract."`
	Check Call[app.CheckArgs, app.CheckAnswer] `cmd:"" help:"Check a folder of toolpacks, or a whole domain, and report all problems."`

	Convert Call[app.ConvertArgs, app.ConvertAnswer] `cmd:"" help:"Convert the tools of another system into files of a domain."`
	Init    Call[app.InitArgs, app.InitAnswer]       `cmd:"" help:"Write a first toolpack that loads without changes."`

	Schema toolSchemaCmd `cmd:"" help:"Print the JSON Schema of *.tool.yaml, for editors."`
	Runner toolRunnerCmd `cmd:"" help:"Print the program that calls the function of a python or node toolpack in its image."`
}

type toolShowCmd struct{ app.ToolArgs }

// Run shows a tool.
func (c toolShowCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "tool.show", c.ToolArgs, func(w io.Writer, d app.ToolDoc) {
		printDocument(w, d.Says(), nothing)
		example := "slurmgate run " + d.ToolID
		for _, in := range d.Inputs {
			if !in.Optional {
				example += " --input " + in.Param + "=FILE"
			}
		}
		if len(d.Inputs) > 0 {
			fmt.Fprintf(w, "Next: %s --wait\n", example)
		}
	})
}
