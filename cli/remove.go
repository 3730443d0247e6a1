package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
)

// removing holds the options of the verbs that remove what they name.
type removing struct {
	app.RemovalArgs
	Yes bool `short:"y" help:"Do not ask. Without a terminal nothing is asked anyway."`
}

type artifactRemoveCmd struct {
	Artifacts []string `arg:"" name:"artifact" help:"Artifact ids, or the beginnings of some."`
	WithRuns  bool     `help:"Also remove the workspaces of finished runs that have copies of the artifacts."`
	removing
}

// Run removes artifacts.
func (c artifactRemoveCmd) Run(ctx context.Context, a *Shell) error {
	return c.remove(ctx, a, artifactIDs, c.Artifacts, "artifact.remove", func(ids []string, r app.RemovalArgs) any {
		return app.RemoveArtifactsArgs{ArtifactIDs: ids, WithRuns: c.WithRuns, RemovalArgs: r}
	})
}

type runsRemoveCmd struct {
	Runs []string `arg:"" name:"run" help:"Run ids, or the beginnings of some."`
	removing
}

// Run removes runs.
func (c runsRemoveCmd) Run(ctx context.Context, a *Shell) error {
	return c.remove(ctx, a, runIDs, c.Runs, "run.remove", func(ids []string, r app.RemovalArgs) any {
		return app.RemoveRunsArgs{RunIDs: ids, RemovalArgs: r}
	})
}

// remove asks on a terminal, after it has shown what would go.
func (c removing) remove(ctx context.Context, a *Shell, k idKind, given []string, verb string,
	args func(ids []string, r app.RemovalArgs) any) error {
	return a.With(ctx, func(s *Session) error {
		ids := []string{}
		for _, text := range given {
			id := text
			if isShort(k, text) {
				var err error
				if id, err = s.whole(ctx, k, text); err != nil {
					return err
				}
			}
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		var r app.RemovalAnswer
		if !c.DryRun && !c.Yes && !a.JSON && a.tty && isTerminal(os.Stdin) {
			preview := c.RemovalArgs
			preview.DryRun = true
			if err := s.call(ctx, verb, args(ids, preview), &r); err != nil {
				return err
			}
			printDocument(a.Err, r.Says(), nothing)
			fmt.Fprint(a.Err, "Remove this? There is no way back. [y/N] ")
			line, err := bufio.NewReader(os.Stdin).ReadString('\n')
			if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
				return fault.New(fault.Canceled, "not_removed", "nothing was removed")
			}
		}
		if err := s.call(ctx, verb, args(ids, c.RemovalArgs), &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) { printDocument(w, r.Says(), nothing) })
	})
}
