package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
)

// Trace is the verb that shows where an artifact came from.
type Trace struct{ app.TraceArgs }

// Run prints the tree, from the artifact back to the imports.
func (c Trace) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "artifact.trace", c.TraceArgs, func(w io.Writer, t app.TraceAnswer) {
		p := tracePrinter{w, map[string]app.Traced{}, map[string]bool{}}
		for _, x := range t.Traced {
			p.known[x.ArtifactID] = x
		}
		p.print("", t.Of, "", "")
		if !t.Complete {
			fmt.Fprintf(w, "There is more than this shows; it ends after %d artifacts.\n", len(t.Traced))
		}
	})
}

type tracePrinter struct {
	w     io.Writer
	known map[string]app.Traced
	shown map[string]bool
}

// print prints an artifact after a beginning, and what made it below.
func (p tracePrinter) print(role, id, first, rest string) {
	t, known := p.known[id]
	if !known {
		fmt.Fprintf(p.w, "%s%s  %s  (left out)\n", first, role, id)
		return
	}
	line := fmt.Sprintf("%s  %s  %s  %s", id, t.Type, clipLine(t.Label, 60), bytesText(t.SizeBytes))
	if role != "" {
		line = role + "  " + line
	}
	switch {
	case t.Reference != "":
		line += "  reference " + t.Reference
	case t.Origin != "run":
		line += "  " + t.Origin
	}
	again := p.shown[id] && t.MadeBy != nil
	switch {
	case again:
		line += "  (see above)"
	case t.CutOff:
		line += "  (what made it is left out)"
	}
	if t.Removed != "" {
		line += "  removed (" + t.Removed + ")"
	}
	fmt.Fprintln(p.w, first+line)
	p.shown[id] = true
	if t.MadeBy == nil || again {
		return
	}
	by := fmt.Sprintf("%s of %s  %s %s", t.MadeBy.OutputRole, t.MadeBy.RunID, t.MadeBy.ToolID, t.MadeBy.ToolVersion)
	if t.MadeBy.Image != "" {
		by += "  " + shortDigest(t.MadeBy.Image)
	}
	if t.MadeBy.ExecutedAs != "" {
		by += "  as " + t.MadeBy.ExecutedAs
	}
	fmt.Fprintln(p.w, rest+"└ "+by)
	if more := t.MadeBy.InputsTotal - len(t.MadeBy.Inputs); more > 0 {
		fmt.Fprintf(p.w, "%s  and %d more inputs\n", rest, more)
	}
	for i, in := range t.MadeBy.Inputs {
		head, tail := "  ├ ", "  │ "
		if i == len(t.MadeBy.Inputs)-1 {
			head, tail = "  └ ", "    "
		}
		p.print(in.Role, in.ArtifactID, rest+head, rest+tail)
	}
}

// shortDigest returns the first digits of a digest, which are enough to distinguish it.
func shortDigest(s string) string {
	_, digest, ok := strings.Cut(s, "sha256:")
	if !ok || len(digest) < 12 {
		return s
	}
	return "sha256:" + digest[:12]
}
