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

// removing are the options of the verbs that remove what they name.
type removing struct {
	Reason string `required:"" help:"Why, for the record." placeholder:"TEXT"`
	DryRun bool   `help:"Show what would be removed, and remove nothing."`
	Yes    bool   `short:"y" help:"Do not ask. Without a terminal nobody is asked anyway."`
}

type artifactRemoveCmd struct {
	Artifacts []string `arg:"" name:"artifact" help:"Artifact ids, or the beginnings of some."`
	WithRuns  bool     `help:"Also remove the workspaces of finished runs that have copies of the artifacts."`
	removing
}

// Run removes artifacts.
func (c artifactRemoveCmd) Run(ctx context.Context, a *Shell) error {
	return c.remove(ctx, a, artifactIDs, c.Artifacts, "artifact.remove", func(ids []string, dry bool) any {
		return app.RemoveArtifactsArgs{ArtifactIDs: ids, Reason: c.Reason, WithRuns: c.WithRuns, DryRun: dry}
	})
}

type runsRemoveCmd struct {
	Runs []string `arg:"" name:"run" help:"Run ids, or the beginnings of some."`
	removing
}

// Run removes runs.
func (c runsRemoveCmd) Run(ctx context.Context, a *Shell) error {
	return c.remove(ctx, a, runIDs, c.Runs, "run.remove", func(ids []string, dry bool) any {
		return app.RemoveRunsArgs{RunIDs: ids, Reason: c.Reason, DryRun: dry}
	})
}

// remove asks on a terminal, after it has shown what would go.
func (c removing) remove(ctx context.Context, a *Shell, k idKind, given []string, verb string,
	args func(ids []string, dry bool) any) error {
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
			if err := s.call(ctx, verb, args(ids, true), &r); err != nil {
				return err
			}
			printRemoved(a.Err, r)
			fmt.Fprint(a.Err, "Remove this? There is no way back. [y/N] ")
			line, err := bufio.NewReader(os.Stdin).ReadString('\n')
			if word := strings.ToLower(strings.TrimSpace(line)); err != nil || word != "y" && word != "yes" {
				return fault.New(fault.Canceled, "not_removed", "nothing was removed")
			}
		}
		if err := s.call(ctx, verb, args(ids, c.DryRun), &r); err != nil {
			return err
		}
		return a.show(r, func(w io.Writer) { printRemoved(w, r) })
	})
}

func printRemoved(w io.Writer, r app.RemovalAnswer) {
	verb := "removed"
	if r.DryRun {
		verb = "would remove"
	}
	for _, id := range r.Runs {
		fmt.Fprintf(w, "%s  %s\n", verb, id)
	}
	for _, x := range r.Artifacts {
		fmt.Fprintf(w, "%s  %s  %s  %s\n", verb, x.ArtifactID, bytesText(x.SizeBytes), clipLine(x.Label, 40))
		if x.Others > 0 {
			fmt.Fprintf(w, "    its bytes stay: other artifacts have the same bytes (%d)\n", x.Others)
		}
	}
	for _, id := range r.Workspaces {
		fmt.Fprintf(w, "%s  the workspace of %s\n", verb, id)
	}
	if r.Records > 0 {
		fmt.Fprintf(w, "%s  %d answers and texts from the records of earlier calls\n", verb, r.Records)
	}
	for _, id := range r.Already {
		fmt.Fprintf(w, "already removed  %s\n", id)
	}
	for _, k := range r.Kept {
		fmt.Fprintf(w, "kept  %s  %s\n", k.Name, clipLine(k.Why, 160))
	}
	for _, id := range r.Copies {
		fmt.Fprintf(w, "still has a copy  the workspace of %s (--with-runs removes it, gc does in time)\n", id)
	}
	for _, k := range r.Pending {
		fmt.Fprintf(w, "still there  %s  %s\n", k.Name, clipLine(k.Why, 160))
	}
	if len(r.Pending) > 0 {
		fmt.Fprintln(w, "what is still there is tried again when the gateway starts")
	}
	fmt.Fprintf(w, "frees %s in the artifact store\n", bytesText(r.FreedBytes))
	if r.ID != "" {
		fmt.Fprintf(w, "removal  %s\n", r.ID)
	}
	if len(r.Artifacts)+len(r.Runs) > 0 {
		fmt.Fprintln(w, "out of reach:")
		for _, o := range r.Outside {
			fmt.Fprintf(w, "  - %s\n", o)
		}
	}
}
