package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/convert"
	"slurmgate/fault"
)

type toolConvertCmd struct {
	Files []string `arg:"" help:"Files, or folders of them." type:"path"`
	From  string   `required:"" help:"System they are of: ax, handshake, helixmcp or ragx."`
	To    string   `required:"" help:"Folder to write to, e.g. of a new domain." type:"path"`
	Force bool     `help:"Overwrite files there."`
}

// Run converts files.
func (c toolConvertCmd) Run(ctx context.Context, a *Shell) error {
	args := app.ConvertArgs{From: c.From, Files: c.Files, To: c.To, Force: c.Force}
	return ask(ctx, a, "tool.convert", args, func(w io.Writer, r app.ConvertAnswer) {
		notes := func(what string, of []convert.Note) {
			for _, n := range of {
				at := n.File
				if n.Field != "" {
					at += ": " + n.Field
				}
				fmt.Fprintf(w, "%s %s: %s\n", what, at, n.Text)
			}
		}
		notes("kept   ", r.Kept)
		notes("changed", r.Changed)
		printLines(w, "wrote "+r.To+"/", r.Files)
		printNext(w, fault.Do("tool check", "dir", r.To))
	})
}
