package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/convert"
	"slurmgate/fault"
)

type toolConvertCmd struct{ app.ConvertArgs }

// Run converts files.
func (c toolConvertCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "tool.convert", c.ConvertArgs, func(w io.Writer, r app.ConvertAnswer) {
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
